"""The server's own page, in a real browser."""

import re
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from ov_specdec import SpeculativePipeline
from tests.browser import CONTRAST, chromium
from tests.server import has_client_left, paused, serving, wait_until


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def pipeline(chat_pair):
    main, draft = chat_pair
    with SpeculativePipeline(main, draft, precision="exact", num_threads=1) as made:
        yield made


@pytest.fixture(scope="module")
def server(browser, pipeline):
    with serving(pipeline, api_keys=("a-key",)) as running:
        complete = running.service.engine.complete
        # Whether drafting pays depends on the machine; here it is to be seen.
        running.service.engine.complete = lambda options, tenant: complete(
            {**options, "num_assistant_tokens": 4}, tenant
        )
        yield running


@pytest.fixture
def page(browser, server):
    with closing(browser.new_context()) as context:
        opened = context.new_page()
        opened.hosts, opened.complaints = set(), []
        opened.on("request", lambda request: opened.hosts.add(urlsplit(request.url).hostname))
        opened.on("pageerror", lambda error: opened.complaints.append(str(error)))
        opened.goto(server.url)
        yield opened
        assert opened.complaints == []
        assert opened.hosts == {"127.0.0.1"}


def expect(locator):
    from playwright.sync_api import expect as sync_expect

    sync_expect.set_options(timeout=30_000)
    return sync_expect(locator)


def send(page, text, tokens=60):
    page.get_by_label("API key").fill("a-key")
    page.get_by_label("Most tokens").fill(str(tokens))
    page.locator("#text").fill(text)
    page.locator("#text").press("Enter")


def test_a_chat_streams_tokens_in_the_colours_of_their_origin(page, server):
    send(page, "return width")
    expect(page.locator("#status")).to_have_text(re.compile(r"tokens in .* draft tokens accepted"))
    answer = page.locator(".assistant").inner_text()
    origins = {span.get_attribute("class") for span in page.locator(".assistant span").all()}
    assert {"draft", "plain"} <= origins
    messages = [{"role": "user", "content": "return width"}]
    body = {"messages": messages, "max_tokens": 60, "temperature": 0}
    expected = server.post("/v1/chat/completions", "a-key", **body).json()
    assert answer == expected["choices"][0]["message"]["content"].strip()


def test_a_second_turn_goes_on_from_the_first(page):
    for number in (1, 2):
        send(page, f"turn {number}", tokens=5)
        expect(page.locator(".assistant")).to_have_count(number)
        expect(page.locator("#send")).to_be_enabled()
    assert page.evaluate("messages.map(m => m.role)") == ["user", "assistant"] * 2


def test_a_wrong_key_is_told(page):
    page.get_by_label("API key").fill("wrong")
    page.locator("#text").fill("x")
    page.locator("#send").click()
    expect(page.locator(".error")).to_contain_text("no valid API key")


def test_stop_ends_the_answer_at_the_server_too(page, server, pipeline, monkeypatch, caplog):
    caplog.set_level("INFO", "ov_specdec.server")
    before = server.metric("generation_tokens_total")
    with paused(pipeline, monkeypatch, after=4) as goes_on:
        send(page, "return width", tokens=230)
        expect(page.locator(".assistant span").first).to_be_visible()
        page.locator("#stop").click()
        expect(page.locator("#status")).to_have_text("Stopped.")
        wait_until(lambda: has_client_left(caplog))
        goes_on.set()
    wait_until(lambda: server.metric("num_requests_running") == 0)
    assert server.metric("generation_tokens_total") - before < 100  # of 230
    expect(page.locator("#send")).to_be_enabled()
    # What came stays in the conversation, as it does on the page.
    shown = page.locator(".assistant").evaluate("element => element.textContent")
    assert shown
    assert page.evaluate("messages.map(m => m.content)") == ["return width", shown]


def test_a_message_without_an_answer_goes_back_into_the_box(page):
    send(page, "first", tokens=5)
    expect(page.locator("#send")).to_be_enabled()
    send(page, "second", tokens=0)
    expect(page.locator(".error")).to_contain_text("max_tokens=0")
    expect(page.locator("#text")).to_have_value("second")
    expect(page.locator(".user")).to_have_count(1)
    assert page.evaluate("messages.map(m => m.role)") == ["user", "assistant"]


def test_enter_twice_sends_once(page):
    page.get_by_label("API key").fill("a-key")
    page.get_by_label("Most tokens").fill("5")
    page.locator("#text").fill("once")
    # Both come while the model is looked for, whose name needs the key.
    page.evaluate("$('form').requestSubmit(); $('form').requestSubmit()")
    expect(page.locator("#status")).to_have_text(re.compile(r"tokens in"))
    expect(page.locator(".user")).to_have_count(1)
    assert page.evaluate("messages.length") == 2


def test_all_text_can_be_read(page):
    for selector in ("h1", ".legend .draft", ".legend .correction", ".legend .bonus", "label"):
        assert page.locator(selector).first.evaluate(CONTRAST) >= 4.5
