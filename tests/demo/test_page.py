"""The demo as a visitor uses it, in a real browser."""

import re
import signal
import sys
from contextlib import ExitStack

import pytest

from ov_specdec.demo.comparison import NUM_STEPS
from ov_specdec.errors import OptionError
from ov_specdec.results.origins import MEANINGS
from tests.support.browser import chromium, demo_process, expect, visit


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def address(browser):
    with demo_process("--profile", "none", "--static-shapes", "4") as (_, found):
        yield found


@pytest.fixture(scope="module")
def chat_address(browser, chat_pair):
    main, draft = map(str, chat_pair)
    models = ("--main", main, "--draft", draft, "--precision", "exact", "--static-shapes", "none")
    with demo_process(*models) as (_, found):
        yield found


@pytest.fixture
def open_chat(browser, chat_address):
    """Opens the demo of a model with a chat template."""
    with ExitStack() as visits:
        yield lambda **settings: visits.enter_context(visit(browser, chat_address, **settings))


@pytest.fixture
def open_page(browser, address):
    """Opens the demo as one more visitor."""
    with ExitStack() as visits:
        yield lambda **settings: visits.enter_context(visit(browser, address, **settings))


@pytest.fixture(scope="module")
def finished(browser, address):
    """The demo after a run with drafts of 4, for tests that only look at it."""
    with visit(browser, address) as page:
        choose(page, "Draft length", "4")  # "auto" may find that it does not pay
        ask_for(page, 128)
        page.locator("#run").click()
        expect_done(page)
        yield page


def expect_done(page):
    expect(page.locator("#run-status")).to_have_text("Done.")
    expect(page.locator("#verdict strong")).to_be_visible()


def open_settings(page):
    if not page.get_by_label("Draft length").is_visible():
        page.get_by_role("button", name="Settings").click()
        page.get_by_label("Draft length").wait_for()
        page.evaluate(UNTIL_IDLE)  # Gradio fills fields once more just after they appear


UNTIL_IDLE = """() => new Promise(done => requestAnimationFrame(() =>
    requestAnimationFrame(() => requestIdleCallback(done))))"""


def ask_for(page, num_tokens):
    open_settings(page)
    field = page.get_by_label("Max new tokens")
    field.fill(str(num_tokens))
    field.press("Tab")


def choose(page, label, option):
    open_settings(page)
    page.get_by_label(label).click()
    page.get_by_role("option", name=option, exact=True).click()


def start_long_run(page):
    ask_for(page, 512)
    page.locator("#run").click()
    expect(page.locator(f"#plain {RUNNING} .text")).to_have_text(re.compile(r"\S{5}"))


RUNNING = "[data-outcome=running]"

STOP_AT_FIRST_WORD = f"""() => new MutationObserver((_, observer) => {{
    if (/\\S{{5}}/.test(document.querySelector("#plain {RUNNING} .text")?.innerText ?? "")) {{
        observer.disconnect()
        document.querySelector("#stop").click()
    }}
}}).observe(document.body, {{childList: true, characterData: true, subtree: true}})"""
"""Clicks in the page itself: on a busy machine a run may end before a test comes to it."""


def say(page, message):
    page.get_by_label("Message", exact=True).fill(message)
    page.get_by_label("Message", exact=True).press("Enter")


def said(page, pane):
    """A pane's messages with their answers."""
    messages = page.locator(f"#{pane} .message").all_inner_texts()
    return list(zip(messages, page.locator(f"#{pane} .answer").all_inner_texts(), strict=True))


def start_sweep(page):
    """What takes longest: the models are in use until it is stopped."""
    ask_for(page, 512)
    page.get_by_role("tab", name="Speed against temperature").click()
    page.locator("#sweep").click()
    expect(page.locator("#sweep-status")).to_contain_text(f"of {NUM_STEPS}")


def top_and_bottom(locator):
    box = locator.bounding_box()
    return box["y"], box["y"] + box["height"]


def test_a_run_fills_both_panes_and_gives_a_ratio(finished):
    expect(finished.locator("#verdict strong")).to_have_text(re.compile(r"\d+\.\d\d\u00d7"))
    expect(finished.locator("#run-status")).to_have_text("Done.")
    texts = [finished.locator(f"#{pane} .text").inner_text() for pane in ("plain", "speculative")]
    assert len(texts[0]) > 100
    assert texts[0] == texts[1]
    for origin in ("draft", "correction", "bonus"):
        marks = [finished.locator(f"#{pane} .text") for pane in ("plain", "speculative")]
        numbers = [text.get_by_title(MEANINGS[origin], exact=True).count() for text in marks]
        assert numbers[0] == 0 < numbers[1]
    details = finished.locator("#details")
    expect(details).to_contain_text(re.compile(r"Draft lengths, in order: 4.*Profile: none"))


def test_nothing_is_fetched_from_elsewhere(finished):
    assert finished.hosts == {"127.0.0.1"}


def test_stop_ends_the_run(open_page):
    page = open_page()

    asked = []

    def answer_early(route):
        # Gradio's page then has the end of the event after all else, and fails at it.
        asked.append(route.request)
        route.fulfill(json={"success": True})

    page.route("**/cancel", answer_early)
    page.evaluate(STOP_AT_FIRST_WORD)
    ask_for(page, 2000)
    page.locator("#run").click()
    expect(page.locator("#plain .pane")).to_have_attribute("data-outcome", "cancelled")
    page.request.post(asked[0].url, data=asked[0].post_data_json)
    page.evaluate(UNTIL_IDLE)
    expect(page.locator("#run-status")).to_have_text("Stopped.")
    expect(page.locator("#plain .pane")).to_have_attribute("data-outcome", "cancelled")
    assert page.locator("#verdict strong").count() == 0


@pytest.mark.parametrize(
    ("prompt", "complaint"),
    [("", "the prompt is empty"), ("area " * 3000, "The prompt is too long")],
    ids=["empty", "too long"],
)
def test_a_prompt_that_cannot_be_used_shows_a_message(open_page, prompt, complaint):
    page = open_page()
    page.get_by_label("Prompt", exact=True).fill(prompt)
    page.locator("#run").click()
    expect(page.locator(".toast-body")).to_contain_text(complaint)
    assert "Traceback" not in page.locator("body").inner_text()


def test_an_error_shows_what_a_visitor_typed_as_text():
    from ov_specdec.demo.panes import shown_error

    html = str(shown_error(OptionError("prompt '<img src=x>' is wrong")))
    assert "&lt;img src=x&gt;" in html


@pytest.mark.deep
def test_visitors_wait_for_one_another_and_stop_only_themselves(open_page):
    first, second = open_page(), open_page()
    status = second.locator("#run-status")
    ask_for(second, 16)
    start_sweep(first)
    second.locator("#run").click()
    expect(status).to_contain_text("queue: 1/1")
    second.locator("#stop").click()
    expect(status).to_have_text("Stopped.")
    expect(first.locator("#sweep-status")).to_contain_text(f"of {NUM_STEPS}")
    second.locator("#run").click()
    expect(status).to_contain_text("queue: 1/1")
    first.locator("#stop-sweep").click()
    expect(first.locator("#sweep-status")).to_have_text("Stopped.")
    expect_done(second)
    assert second.locator("#plain .pane").get_attribute("data-outcome") == "length"


@pytest.mark.deep
def test_who_leaves_lets_the_next_one_run(open_page):
    first, second = open_page(), open_page()
    ask_for(second, 8)
    start_long_run(first)
    first.close()
    second.locator("#run").click()
    expect_done(second)


def test_a_second_turn_stands_below_the_first_and_clear_empties_both(open_chat):
    page = open_chat()
    ask_for(page, 16)
    assert [message for message, _ in said(page, "speculative")] == ["Why is the sky blue?"]
    page.get_by_label("System message").fill("Be brief.")
    say(page, "What is it?")
    expect_done(page)
    first = said(page, "plain")
    assert [message for message, _ in first] == ["What is it?"]
    assert page.get_by_label("Message", exact=True).input_value() == ""
    page.get_by_label("Message", exact=True).fill("And now?")
    page.locator("#run").click()
    expect(page.locator("#speculative .message")).to_have_count(2)
    expect_done(page)
    both = said(page, "plain")
    assert both == said(page, "speculative")
    assert both[:1] == first
    assert both[1][0] == "And now?"
    for pane in ("plain", "speculative"):
        upper, lower = (page.locator(f"#{pane} .message").nth(turn) for turn in (0, 1))
        assert top_and_bottom(upper)[1] < top_and_bottom(lower)[0]
    page.locator("#clear").click()
    expect(page.locator("#plain .message")).to_have_count(0)
    assert said(page, "speculative") == []
    assert page.locator("#verdict strong").count() == 0
    say(page, "What is it?")
    expect_done(page)
    assert said(page, "plain") == first


def test_without_a_chat_template_there_is_no_conversation(finished):
    assert finished.locator("#run").inner_text() == "Run"
    assert finished.locator("#clear, .message").count() == 0
    words = finished.locator("body").inner_text().lower()
    assert ("conversation" in words, "message" in words) == (False, False)


@pytest.mark.deep
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_ctrl_c_ends_the_demo_in_the_middle_of_a_run(browser):
    with demo_process("--static-shapes", "none") as (server, address):
        page = browser.new_page()
        page.goto(address)
        start_long_run(page)
        server.send_signal(signal.SIGINT)
        output, errors = server.communicate(timeout=60)
        page.close()
    assert (server.returncode, output, errors) == (130, "", "interrupted\n")
