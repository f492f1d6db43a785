"""Recordings over a socket, as OpenAI's own client sends them."""

import asyncio
import io
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from threading import Event
from types import SimpleNamespace

import httpx
import openai
import pytest

from ov_specdec import AudioError
from ov_specdec.engine.sequence import Cancelled
from ov_specdec.openai.audio import TranscriptionForm
from ov_specdec.server import transcriptions
from ov_specdec.server.settings import Settings
from ov_specdec.server.stream import Stream
from ov_specdec.server.transcriptions import Transcriptions
from ov_specdec.speech.segments import SpeechStats, TranscriptionChunk
from ov_specdec.speech_pipeline import SpeechPipeline
from tests.support.recordings import write_recording
from tests.support.scripted import PATIENCE
from tests.support.server import NAME, official_client, serving, wait_until
from tests.support.tiny_whisper import RATE, recording

FIXED = {"language": "en", "temperature": 0.2, "extra_body": {"seed": 3}}
SAME = {"language": "en", "temperature": 0.2, "seed": 3}
PATH = "/v1/audio/transcriptions"


@pytest.fixture(scope="module")
def pipeline(whisper):
    with SpeechPipeline(whisper.main, whisper.draft, precision="exact", num_threads=1) as made:
        made.prepare(seconds=0.1)
        yield made


@pytest.fixture(scope="module")
def client(server):
    return official_client(server, openai.OpenAI).audio


def wav(seconds=4.1, form="wav"):
    file = io.BytesIO()
    write_recording(file, recording(seconds), RATE, form)
    return f"speech.{form}", file.getvalue()


def post(server, path=PATH, file=None, headers=None, **fields):
    files = {"file": file or wav(1.0)}
    return server.http.post(path, data=fields, files=files, headers=headers)


@pytest.mark.parametrize("form", ["wav", "webm"])
def test_an_answer_is_what_the_pipeline_gives(client, server, pipeline, form):
    name, content = wav(form=form)
    before = server.metric("generation_tokens_total")
    answer = client.transcriptions.create(model=NAME, file=(name, content), **FIXED)
    assert answer.text == pipeline.transcribe(io.BytesIO(content), **SAME).text
    assert server.metric("generation_tokens_total") > before


def test_a_stream_has_the_text_in_pieces(client, pipeline):
    whole = pipeline.transcribe(io.BytesIO(wav()[1]), **SAME).text
    events = list(client.transcriptions.create(model=NAME, file=wav(), stream=True, **FIXED))
    assert [event.type for event in events][-1] == "transcript.text.done"
    assert "".join(event.delta for event in events[:-1]) == events[-1].text == whole


def timed_by(client, unit):
    """A transcription with the times of segments or words."""
    given = {"response_format": "verbose_json", "timestamp_granularities": [unit]}
    return client.transcriptions.create(model=NAME, file=wav(), **given, **FIXED)


def test_segments_and_subtitles_and_translations(client, server, pipeline):
    timed = timed_by(client, "segment")
    assert timed.duration == pytest.approx(4.1)
    assert [segment.id for segment in timed.segments] == list(range(len(timed.segments)))
    answer = post(server, file=wav(), response_format="srt")
    assert answer.headers["content-type"].startswith("application/x-subrip")
    drawn = {"temperature": 0.2, "extra_body": {"seed": 3}}
    translated = client.translations.create(model=NAME, file=wav(), **drawn)
    english = {"task": "translate", "temperature": 0.2, "seed": 3}
    assert translated.text == pipeline.transcribe(io.BytesIO(wav()[1]), **english).text


def test_words_have_times(client, pipeline):
    answer = timed_by(client, "word")
    expected = pipeline.transcribe(io.BytesIO(wav()[1]), word_timestamps=True, **SAME).segments
    words = [(word.word, word.start, word.end) for word in answer.words]
    assert words == [(w.text.strip(), w.start, w.end) for each in expected for w in each.words]
    assert words
    assert answer.segments is None


def test_what_cannot_be_honoured_is_a_400_that_names_the_field(server):
    for file, fields, param in (
        (("a.wav", b"no audio"), {}, "file"),
        (None, {"language": "xx"}, "language"),
    ):
        answer = post(server, file=file, **fields)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert (
        server.http.post(PATH, data={}, files={"other": b"x"}).json()["error"]["param"] == "other"
    )
    missing = server.http.post(PATH, files={"model": (None, NAME)}).json()["error"]
    assert missing["param"] == "file"
    assert post(server, model="another").status_code == 404
    assert post(server, prompt="print " * 200).status_code == 200
    assert server.http.post(PATH, json={}).status_code == 400


def test_a_form_of_another_site_is_refused(server):
    assert post(server, headers={"origin": "https://evil.example"}).status_code == 403
    assert post(server, headers={"origin": server.url}).status_code == 200


class Recordings:
    """In place of a pipeline: transcriptions that wait to be cancelled, or to be let go."""

    def __init__(self):
        self.begun, self.opened, self.streams = Event(), [], []
        self.options = {}

    step_seconds, tokenizer = 0.0, None
    main = SimpleNamespace(runner=SimpleNamespace(max_length=448))

    def read(self, recording, max_seconds, on_block):
        on_block()
        content = recording.read()
        if content == b"none":
            raise AudioError("the file is no recording")
        return content

    def open_stream(self, recording, options, max_seconds, on_block):
        self.options = options
        self.opened.append(self.read(recording, max_seconds, on_block))
        self.streams.append(Waiting(self.begun))
        return self.streams[-1]

    async def let_go(self, number):
        """So many of them, each once it has begun."""
        for place in range(number):
            await asyncio.to_thread(self.begun.wait, PATIENCE)
            self.begun.clear()
            self.streams[place].cancel()


@contextmanager
def transcribing(recordings, **settings):
    """A server whose transcriptions are those."""
    with serving(**settings) as server:
        server.service.take(Transcriptions(recordings, server.service.settings))
        yield server


def test_a_recording_may_be_too_large_or_too_long(pipeline):
    with serving(pipeline, max_body_size=0.001) as server:
        assert post(server).status_code == 413
    with serving(pipeline, max_audio_seconds=1.0) as server:
        assert post(server, file=wav(1.0)).status_code == 200
        answer = post(server, file=wav(1.5, "flac"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_audio")
    assert "longer than 1 seconds" in answer.json()["error"]["message"]


def test_a_queue_of_none_lets_no_recording_wait():
    recordings = Recordings()
    with transcribing(recordings, max_queue=0) as server, ThreadPoolExecutor() as threads:
        first = threads.submit(post, server)
        assert recordings.begun.wait(PATIENCE)
        assert post(server).json()["error"]["code"] == "queue_full"
        recordings.streams[0].cancel()
        first.result()


def test_a_client_that_leaves_ends_the_decoding_of_its_recording():
    recordings, ended, given_up = Recordings(), Event(), Event()

    def read(recording, max_seconds, on_block):
        try:
            while not given_up.wait(0.001):  # a file without an end
                on_block()
        finally:
            ended.set()

    recordings.read = read
    with transcribing(recordings) as server:
        with pytest.raises(httpx.ReadTimeout):
            server.http.post(PATH, files={"file": wav(1.0)}, timeout=0.3)
        has_ended = ended.wait(PATIENCE)
        given_up.set()
    assert has_ended


def test_a_small_file_that_announces_a_large_index_is_refused(server):
    file = io.BytesIO()
    options = {"movflags": "frag_keyframe+empty_moov+default_base_moof"}
    write_recording(file, recording(1.0), RATE, "mp4", options=options)
    content = bytearray(file.getvalue())
    head = content.index(b"trun") + 4
    # No flags: no sample has a size of its own, so that any number fits.
    content[head : head + 8] = bytes(4) + (5_000_000).to_bytes(4, "big")
    answer = post(server, file=("bomb.mp4", bytes(content)))
    assert answer.status_code == 400
    assert "Cannot allocate memory" in answer.json()["error"]["message"]


@pytest.mark.parametrize("what", ["decoding", "a step"])
def test_what_hangs_is_seen(what, monkeypatch):
    monkeypatch.setattr(transcriptions, "STEP_TIMEOUT", 0.1)
    recordings, goes_on = Recordings(), Event()

    def read(recording, max_seconds, on_block):
        on_block()
        if what == "decoding":
            goes_on.wait(PATIENCE)
        else:
            recordings.step_seconds = 1.0
        return recording

    recordings.read = read
    with transcribing(recordings) as server, ThreadPoolExecutor() as threads:
        assert server.http.get("/health").status_code == 200
        answer = threads.submit(post, server)
        wait_until(lambda: server.http.get("/health").status_code == 503)
        assert server.http.get("/health").json()["error"]["code"] == "engine_stalled"
        recordings.step_seconds = 0.0
        goes_on.set()
        assert recordings.begun.wait(PATIENCE)
        assert server.http.get("/health").status_code == 200
        recordings.streams[0].cancel()
        answer.result()


class Waiting:
    def __init__(self, begun):
        self.begun, self.ended = begun, Event()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def __iter__(self):
        self.begun.set()
        assert self.ended.wait(PATIENCE)
        yield TranscriptionChunk("", 0.0, finish_reason="cancelled", stats=SpeechStats(1.0))

    def cancel(self):
        self.ended.set()


def test_a_client_that_leaves_ends_its_transcription():
    recordings = Recordings()
    with transcribing(recordings) as server:
        with pytest.raises(httpx.ReadTimeout):
            server.http.post(PATH, files={"file": wav(1.0)}, timeout=0.3)
        assert recordings.begun.wait(PATIENCE)
        assert recordings.streams[0].ended.wait(PATIENCE)  # nothing else ends it


def test_a_transcription_ends_when_the_time_to_shut_down_is_up():
    recordings = Recordings()
    with transcribing(recordings, shutdown_timeout=0.0) as server, ThreadPoolExecutor() as threads:
        answer = threads.submit(post, server)
        assert recordings.begun.wait(PATIENCE)
        server.stop()
        assert answer.result().json()["error"]["code"] == "draining"
        assert recordings.streams[0].ended.wait(PATIENCE)


def ask_for(name, **fields):
    return TranscriptionForm(file=io.BytesIO(name.encode()), **fields)


@pytest.mark.parametrize(
    ("tenant", "given", "salt"),
    [("one", {"cache_salt": "x"}, "one/x"), ("one", {}, "one"), (None, {"cache_salt": "x"}, "x")],
)
def test_a_salt_parts_what_one_key_has_cached_and_opens_nothing_of_another(tenant, given, salt):
    recordings = Recordings()
    speech = Transcriptions(recordings, Settings(served_model_name=NAME))

    async def serve():
        async with speech.running(ask_for("first", **given), tenant, Stream(1)):
            await asyncio.to_thread(recordings.begun.wait, PATIENCE)

    asyncio.run(serve())
    assert recordings.options["cache_salt"] == salt


def test_tenants_have_their_recordings_transcribed_in_turns():
    recordings = Recordings()
    speech = Transcriptions(recordings, Settings(served_model_name=NAME))

    async def serve():
        names = ("a1", "a2", "a3", "b1")
        async with AsyncExitStack() as running:
            for name in names:
                job = speech.running(ask_for(name), name[0], Stream(1))
                await running.enter_async_context(job)
            await recordings.let_go(len(names))

    asyncio.run(serve())
    assert recordings.opened == [b"a1", b"a2", b"b1", b"a3"]


def test_a_recording_whose_client_leaves_while_it_waits_passes_no_turn_on():
    recordings = Recordings()
    speech = Transcriptions(recordings, Settings(served_model_name=NAME))

    async def serve():
        async with AsyncExitStack() as running:
            await running.enter_async_context(speech.running(ask_for("b1"), "b", Stream(1)))
            await asyncio.to_thread(recordings.begun.wait, PATIENCE)
            leaving = speech.running(ask_for("a1"), "a", Stream(1))
            await leaving.__aenter__()
            for name in ("a2", "b2"):
                await running.enter_async_context(speech.running(ask_for(name), name[0], Stream(1)))
            await leaving.__aexit__(None, None, None)
            await recordings.let_go(3)

    asyncio.run(serve())
    assert recordings.opened == [b"b1", b"a2", b"b2"]


def test_recordings_are_decoded_in_turns_and_counted_meanwhile():
    recordings = Recordings()
    speech = Transcriptions(recordings, Settings(served_model_name=NAME))

    def metric(name, **labels):
        labels = {"model_name": NAME, **labels}
        return speech.metrics.registry.get_sample_value(f"ov_specdec:{name}", labels)

    async def serve():
        names, streams = ("first", "second", "none"), [Stream(1) for _ in range(3)]
        async with AsyncExitStack() as running:
            for name, stream in zip(names, streams, strict=True):
                await running.enter_async_context(speech.running(ask_for(name), None, stream))
            await asyncio.to_thread(recordings.begun.wait, PATIENCE)
            assert recordings.opened == [b"first"]
            assert metric("num_requests_running") == 1
            assert metric("num_requests_waiting") == 2
            assert [each.admitted.is_set() for each in streams] == [True, False, False]
            for job in speech._jobs:
                if job.stream is not streams[2]:
                    job.cancel()
            for stream, error in zip(streams, (Cancelled, Cancelled, AudioError), strict=True):
                with pytest.raises(error):
                    await stream.next()
        assert metric("num_requests_running") == 0

    asyncio.run(serve())
    assert recordings.opened == [b"first"]
    assert metric("request_success_total", finished_reason="cancelled") is None
