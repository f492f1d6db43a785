"""The demo of a speech model: what its service shows, and the page in a real browser."""

import pytest

from ov_specdec.demo.queue import DONE, STOPPED
from ov_specdec.demo.speech import SpeechForm, SpeechService
from ov_specdec.errors import OptionError
from ov_specdec.speech_pipeline import SpeechPipeline
from tests.browser import chromium, demo_process, expect
from tests.recordings import write_recording
from tests.test_demo_page import visit
from tests.tiny_whisper import RATE, recording


@pytest.fixture(scope="module")
def form(tmp_path_factory):
    def make(seconds=4.1, **fields):
        path = tmp_path_factory.mktemp("speech") / "speech.webm"  # as browsers record
        write_recording(path, recording(seconds), RATE, "webm")
        fields = {"language": "en", "task": "transcribe", "draft_length": 4, **fields}
        return SpeechForm(str(path), **fields)

    return make


@pytest.fixture(scope="module")
def service(whisper):
    pipeline = SpeechPipeline(whisper.main, whisper.draft, precision="exact")
    made = SpeechService(pipeline)
    yield made
    made.close()


def test_both_ways_hear_the_same(service, form):
    *_, (comparison, line) = service.compare("a", form())
    assert line == DONE
    assert comparison.plain.token_ids == comparison.speculative.token_ids
    assert comparison.note.startswith("Both texts are the same")
    assert comparison.speculative.accepted > 0
    assert "shares the main model's encoder" in comparison.models


def test_without_a_recording_there_is_an_error(service, form):
    empty = SpeechForm(None, "", "transcribe", "auto")
    with pytest.raises(OptionError, match="there is no recording"):
        list(service.compare("a", empty))
    with pytest.raises(OptionError, match="language='xx'"):
        list(service.compare("a", form(language="xx")))


def test_a_run_may_be_stopped(service, form):
    states = service.compare("a", form(30.0))
    next(states)
    service.cancel("a")
    *_, (comparison, line) = states
    assert line == STOPPED
    assert comparison.speculative.outcome == "cancelled"


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
