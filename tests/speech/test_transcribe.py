"""`ov-specdec transcribe` as it is typed."""

import json
import re

import pytest

from ov_specdec.speech_pipeline import SpeechPipeline
from tests.support.command_line import run
from tests.support.recordings import write_recording
from tests.support.tiny_whisper import RATE, recording


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("speech") / "talk.wav"
    write_recording(path, recording(4.1), RATE)
    return path


@pytest.fixture(scope="module")
def models(whisper):
    return ("--main", whisper.main, "--draft", whisper.draft, "--precision", "exact")


PLAIN = ("--language", "en", "--temperature", 0, "--logprob-threshold", "none")


def test_text_goes_to_stdout_and_figures_to_stderr(whisper, models, file):
    done = run("transcribe", file, *models, *PLAIN, "--num-assistant-tokens", 4)
    assert done.returncode == 0, done.stderr
    with SpeechPipeline(whisper.main, precision="exact") as pipeline:
        options = {"language": "en", "temperature": 0, "logprob_threshold": None}
        text = pipeline.transcribe(file, num_assistant_tokens=0, **options).text
    assert done.stdout.rstrip("\n") == text.rstrip("\n")
    assert done.stderr.count("\n") == 1
    assert re.search(r"4\.1 s in .*real-time factor .* draft tokens accepted", done.stderr)


def test_files_are_written_one_for_each_recording(models, file, tmp_path):
    output = tmp_path / "out"
    other = file.with_name("other.wav")
    write_recording(other, recording(1.5), RATE)
    arguments = (*models, *PLAIN, "--num-assistant-tokens", 4, "--output", output)
    done = run("transcribe", file, other, *arguments, "--format", "json")
    assert done.stdout.split() == [str(output / "talk.json"), str(output / "other.json")]
    content = json.loads((output / "talk.json").read_text())
    assert 0 <= content["segments"][0]["start"] < content["segments"][0]["end"] <= 4.1
    assert content["stats"]["audio_seconds"] == pytest.approx(4.1)


def test_a_bad_recording_is_reported_and_the_others_are_transcribed(models, file, tmp_path):
    other, bad, empty = (tmp_path / name for name in ("other.wav", "bad.mp3", "empty.mp3"))
    write_recording(other, recording(1.5), RATE)
    bad.write_bytes(bytes(range(256)) * 9)
    empty.touch()
    arguments = (*models, *PLAIN, "--num-assistant-tokens", 4)
    texts = [run("transcribe", each, *arguments).stdout for each in (file, other)]
    done = run("transcribe", bad, file, empty, tmp_path, other, "missing.wav", *arguments)
    assert (done.returncode, done.stdout) == (2, "".join(texts))
    said = [line.split(" ")[:2] for line in done.stderr.splitlines()]
    assert said == [
        ["error:", f"'{bad}'"],
        [f"{file}:", "4.1"],
        ["error:", f"'{empty}'"],
        ["error:", f"'{tmp_path}'"],
        [f"{other}:", "1.5"],
        ["error:", "'missing.wav'"],
    ]


def test_words_are_shown_with_their_times(models, file):
    arguments = (*models, *PLAIN, "--word-timestamps", "--format", "json")
    segments = json.loads(run("transcribe", file, *arguments).stdout)["segments"]
    assert segments
    for segment in segments:
        assert "".join(word["word"] for word in segment["words"]) == segment["text"]
        assert all(0 <= word["start"] <= word["end"] <= 4.1 for word in segment["words"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("FILE", "--word-timestamps"), "--word-timestamps has no effect on txt: add --format"),
        (("missing.wav",), "'missing.wav' is not a file"),
        (("FILE", "--language", "xx"), "--language xx is not known to this model"),
        (("FILE", "--logprob-threshold", "low"), "'low' must be a number or none"),
        (("FILE", "FILE", "--output", "out"), "several recordings would be written to"),
        (("PYTHON",), "is no recording that can be read"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(models, file, tmp_path, arguments, message):
    places = {"FILE": file, "PYTHON": __file__}
    given = [places.get(argument, argument) for argument in arguments]
    done = run("transcribe", *given, *models, "--num-assistant-tokens", 4, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_model_for_text_does_not_transcribe(tiny_pair, whisper, file):
    done = run("transcribe", file, "--main", tiny_pair[0])
    assert "does not transcribe: give a Whisper" in done.stderr
    done = run("generate", "a", "--main", whisper.main, "--drafter", "none")
    assert "ov-specdec transcribe" in done.stderr
    done = run("check", whisper.main, whisper.draft)
    assert (done.returncode, "feature extractor: same" in done.stdout) == (0, True)
    done = run("serve", "--main", whisper.main, "--kv", "stateful")
    assert "--kv stateful has no effect with a speech model" in done.stderr
