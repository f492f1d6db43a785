"""OpenAI's forms for recordings: read into options, and answered in its shapes."""

import io
import json

import pytest

from ov_specdec.api.body import UnknownFields, read
from ov_specdec.api.errors import ApiError
from ov_specdec.openai.audio import TranscriptionAnswer, TranscriptionForm, TranslationForm
from ov_specdec.results.stats import GenerationStats, RoundStats
from ov_specdec.speech.segments import TranscriptionChunk
from tests.support.recordings import result

FILE = {"file": [io.BytesIO()]}


def read_transcription(texts):
    return read(TranscriptionForm, FILE | texts, UnknownFields(strict=True))


def read_translation(texts):
    return read(TranslationForm, FILE | texts, UnknownFields(strict=True))


def form(**fields):
    return {name: value if isinstance(value, list) else [value] for name, value in fields.items()}


def test_fields_become_options():
    ask = read_transcription(
        form(
            model="whisper-1",
            language="en",
            prompt="Names: Ada.",
            temperature="0.4",
            response_format="verbose_json",
            seed="7",
            num_assistant_tokens="3",
            user="me",
            **{"timestamp_granularities[]": ["segment"]},
        )
    )
    assert (ask.model, ask.stream, ask.user) == ("whisper-1", None, "me")
    assert ask.options == {
        "task": "transcribe",
        "language": "en",
        "initial_prompt": "Names: Ada.",
        "temperature": 0.4,
        "return_timestamps": True,
        "word_timestamps": False,
        "seed": 7,
        "num_assistant_tokens": 3,
    }


def test_what_is_not_given_is_left_to_the_pipeline():
    # As in OpenAI's reference, 0 leaves the temperature to the thresholds.
    for ask in (read_transcription(form()), read_transcription(form(temperature="0", language=""))):
        timed = {"return_timestamps": False, "word_timestamps": False}
        assert ask.options == {"task": "transcribe", **timed}
    assert read_transcription(form(stream="true")).stream
    assert read_translation(form(response_format="srt")).options == {
        "task": "translate",
        "return_timestamps": True,
    }


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"timestamp_granularities[]": ["word", "line"]}, "timestamp_granularities[1]"),
        ({"timestamp_granularities[]": ["segment"]}, "timestamp_granularities"),
        ({"response_format": "diarized_json"}, "response_format"),
        ({"response_format": "srt", "stream": "true"}, "stream"),
        ({"temperature": "warm"}, "temperature"),
        ({"seed": "1.5"}, "seed"),
        ({"include[]": ["logprobs"]}, "include"),
        ({"languge": "en"}, "languge"),
        ({"model": ["a", "b"]}, "model"),
        ({"file": "/etc/passwd"}, "file"),
        ({"file": ""}, "file"),
    ],
)
def test_what_cannot_be_honoured_is_named(fields, param):
    with pytest.raises(ApiError) as error:
        read_transcription(form(**fields))
    assert (error.value.status, error.value.param) == (400, param)


@pytest.mark.parametrize("field", ["language", "stream", "timestamp_granularities[]"])
def test_a_translation_takes_fewer_fields(field):
    with pytest.raises(ApiError, match="not supported"):
        read_translation({field: ["true"]})


def answered():
    rounds = [RoundStats(0, 0, 1, 0, 0, 0, 0.1), RoundStats(4, 3, 4, 0, 0, 0, 0.1)]
    made = result()
    made.stats.generations.append(GenerationStats(4, rounds))
    return made


def test_answers_have_openais_shapes():
    def body(name):
        whole = answered()
        answer = TranscriptionAnswer(read_transcription(form(response_format=name)), "model", None)
        named = {"segments": whole.segments, "language": whole.language, "stats": whole.stats}
        answer.note(0, TranscriptionChunk(whole.text, 1.0, finish_reason="stop", **named))
        return answer.whole()

    plain = body("json")
    assert plain["text"] == "First line. Second."
    assert plain["usage"] == {"type": "duration", "seconds": 3662}
    assert plain["metrics"]["speculative_decoding"]["num_accepted_draft_tokens"] == 3
    assert body("text") == "First line. Second.\n"
    assert body("srt").startswith("1\n00:00:00,000 --> ")
    assert body("vtt").startswith("WEBVTT")
    verbose = body("verbose_json")
    assert (verbose["task"], verbose["language"], verbose["duration"]) == ("transcribe", "en", 3662)
    assert [segment["id"] for segment in verbose["segments"]] == [0, 1]
    assert verbose["segments"][0]["tokens"] == [1, 2]


def test_a_stream_ends_with_the_whole_text():
    made = answered()
    chunks = [
        TranscriptionChunk("First.", 1.0),
        TranscriptionChunk("", 2.0),
        TranscriptionChunk(" Second.", 3.0),
        TranscriptionChunk("", 3.0, stats=made.stats, finish_reason="stop"),
    ]
    writer = TranscriptionAnswer(read_transcription(form(stream="true")), "model", None)
    sent = [b"".join(writer.add(0, chunk)) for chunk in chunks]
    assert sent[1] == sent[3] == b""
    sent += writer.end()
    lines = b"".join(sent).decode().splitlines()
    data = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data")]
    assert [event.get("delta") for event in data] == ["First.", " Second.", None]
    assert data[-1]["type"] == "transcript.text.done"
    assert data[-1]["text"] == "First. Second."
    assert data[-1]["usage"]["total_tokens"] == 9
