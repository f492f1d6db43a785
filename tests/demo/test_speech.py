"""The demo of a speech model: both transcriptions, and the page in a real browser."""

import pytest

from ov_specdec.demo.comparison import Comparison
from ov_specdec.demo.page import describe_speech, transcribe
from ov_specdec.errors import OptionError
from ov_specdec.speech_pipeline import SpeechPipeline
from tests.support.browser import chromium, demo_process, expect, visit
from tests.support.recordings import write_recording
from tests.support.tiny_whisper import RATE, recording


@pytest.fixture(scope="module")
def pipeline(whisper):
    with SpeechPipeline(whisper.main, whisper.draft, precision="exact") as opened:
        yield opened


@pytest.fixture(scope="module")
def heard(pipeline, tmp_path_factory):
    """Transcribes a recording with both methods; gives the comparison after each piece."""

    def hear(seconds=4.1, **fields):
        path = tmp_path_factory.mktemp("speech") / "speech.webm"  # as browsers record
        write_recording(path, recording(seconds), RATE, "webm")
        options = {"language": "en", "task": "transcribe", "num_assistant_tokens": 4, **fields}
        return transcribe(pipeline, Comparison(), str(path), options)

    return hear


def test_both_methods_hear_the_same(pipeline, heard):
    *_, comparison = heard()
    assert comparison.status == "Done."
    assert comparison.plain.output.token_ids == comparison.speculative.output.token_ids
    assert comparison.note.startswith("Both texts are the same")
    assert comparison.speculative.output.stats.accepted > 0
    assert "shares the main model's encoder" in describe_speech(pipeline)


def test_without_a_recording_there_is_an_error(pipeline, heard):
    with pytest.raises(OptionError, match="there is no recording"):
        list(transcribe(pipeline, Comparison(), None, {}))
    with pytest.raises(OptionError, match="language='xx'"):
        list(heard(language="xx"))


def test_a_transcription_may_be_stopped(heard):
    running = heard(30.0)
    comparison = next(running)
    running.close()
    assert (comparison.status, comparison.speculative.chunks) == ("Stopped.", [])


@pytest.mark.deep
def test_a_visitor_transcribes_a_file_in_the_browser(whisper, tmp_path):
    path = tmp_path / "speech.m4a"
    write_recording(path, recording(4.1), RATE, "mp4")
    models = ("--main", str(whisper.main), "--draft", str(whisper.draft), "--precision", "exact")
    with (
        chromium() as browser,
        demo_process(*models) as (_, address),
        visit(browser, address) as page,
    ):
        page.locator("#recording input[type=file]").set_input_files(path)
        page.get_by_label("Language").fill("en")
        expect(
            page.locator("#recording audio, #recording .waveform-container").first
        ).to_be_attached()
        page.locator("#run").click()
        expect(page.locator("#verdict strong")).to_be_visible()
        expect(page.locator("#verdict .note")).to_contain_text("Both texts are the same")
        assert page.hosts <= {"127.0.0.1", None}  # what the page holds itself has no host
