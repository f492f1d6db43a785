"""The server's own page, in a real browser."""

import re
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import pytest

from ov_specdec import SpeculativePipeline
from ov_specdec.server.run import open_engine
from tests.browser import CONTRAST, chromium, expect
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


@contextmanager
def visit(browser, url, **settings):
    with closing(browser.new_context(**settings)) as context:
        opened = context.new_page()
        opened.hosts, opened.complaints = set(), []
        opened.on("request", lambda request: opened.hosts.add(urlsplit(request.url).hostname))
        opened.on("pageerror", lambda error: opened.complaints.append(str(error)))
        opened.goto(url)
        yield opened
        assert opened.complaints == []
        assert opened.hosts == {"127.0.0.1"}


@pytest.fixture
def page(browser, server):
    with visit(browser, server.url) as opened:
        yield opened


@pytest.fixture(scope="module")
def code_server(browser):
    """The embedded pair, which anybody may use."""
    with SpeculativePipeline(num_threads=1) as pipeline, serving(pipeline) as running:
        yield running


def use_key(page, key="a-key"):
    page.get_by_label("API key").fill(key)
    page.get_by_label("API key").press("Enter")


def send(page, text, tokens=60):
    if page.get_by_label("API key").is_visible():
        use_key(page)
        expect(page.locator("#send")).to_be_enabled()
    page.get_by_label("Max new tokens").fill(str(tokens))
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
    expect(page.locator("#about")).to_have_text("This server requires an API key.")
    use_key(page, "wrong")
    expect(page.locator("#about")).to_contain_text("o valid API key")
    expect(page.locator("#send")).to_be_disabled()


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
    too_long = "area " * 300
    send(page, too_long)
    expect(page.locator(".error")).to_contain_text("shorten the prompt")
    expect(page.locator("#text")).to_have_value(too_long)
    expect(page.locator(".user")).to_have_count(1)
    assert page.evaluate("messages.map(m => m.role)") == ["user", "assistant"]


def test_enter_twice_sends_once(page):
    use_key(page)
    page.get_by_label("Max new tokens").fill("5")
    expect(page.locator("#send")).to_be_enabled()
    page.locator("#text").fill("once")
    page.evaluate("$('form').requestSubmit(); $('form').requestSubmit()")
    expect(page.locator("#status")).to_have_text(re.compile(r"tokens in"))
    expect(page.locator(".user")).to_have_count(1)
    assert page.evaluate("messages.length") == 2


def test_nothing_but_its_own_files_may_run_there(server):
    for path in ("/", "/?response=x", "/page.js", "/page.css"):
        got, head = server.http.get(path), server.http.head(path)
        assert got.status_code == head.status_code == 200
        policy = got.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert server.http.get("/?response=x").text.startswith("<!doctype html>")


def test_origins_differ_in_lines_too(page):
    use_key(page)
    borders = page.locator("#legend span").evaluate_all(
        "marks => marks.map(mark => getComputedStyle(mark).borderBottomStyle)"
    )
    assert borders == ["solid", "dashed", "dotted"]


def test_an_example_is_continued_at_a_click_in_code_s_font(browser, code_server):
    with visit(browser, code_server.url) as page:
        page.get_by_role("button", name="class Stack:").click()
        expect(page.locator("#status")).to_have_text(re.compile(r"128 tokens in"))
        assert page.locator(".turn").inner_text().startswith("class Stack:\n    def __init__")
        fonts = "element => getComputedStyle(element).fontFamily"
        assert page.locator(".assistant").evaluate(fonts).endswith("monospace")
        assert page.locator("h1").all_inner_texts() == ["org/tiny"]
        for words in ("Python code", "on CPU in default precision", "from a smaller model"):
            expect(page.locator("#about")).to_contain_text(words)


def test_it_waits_for_models_that_are_loading(browser, pipeline):
    with serving() as running, visit(browser, running.url) as page:
        expect(page.locator("#about")).to_contain_text("The models are loading")
        running.service.take(open_engine(pipeline, running.service.settings))
        expect(page.locator("#about")).to_contain_text("It answers chat messages")
        expect(page.locator("#send")).to_be_enabled()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_all_text_can_be_read(browser, code_server, scheme, width):
    size = {"width": width, "height": 800}
    with visit(browser, code_server.url, color_scheme=scheme, viewport=size) as page:
        page.get_by_role("button", name="class Stack:").click()
        expect(page.locator("#status")).to_have_text(re.compile(r"tokens in"))
        expect(page.locator("#send")).to_be_enabled()
        for selector in ("h1", "#about", "#legend", "#legend span", ".user", ".assistant span"):
            for element in page.locator(selector).all():
                assert element.evaluate(CONTRAST) >= 4.5, selector
        for selector in ("#status", "label", "#send", ".example"):
            assert page.locator(selector).last.evaluate(CONTRAST) >= 4.5, selector
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_all_can_be_done_by_keyboard(browser, code_server):
    with visit(browser, code_server.url) as page:
        page.locator("#text").fill("x")
        reached = set()
        page.locator("#text").focus()
        for _ in range(10):
            reached.add(page.evaluate("document.activeElement.id || document.activeElement.title"))
            page.keyboard.press("Tab")
        assert reached >= {"text", "temperature", "max-tokens", "send", "Send this example"}


def test_a_model_that_makes_texts_of_texts_asks_for_one_to_work_on(browser, encoder_decoder):
    bart = encoder_decoder("bart")
    with (
        SpeculativePipeline(bart.main, bart.draft, precision="exact") as pipeline,
        serving(pipeline) as running,
        visit(browser, running.url) as page,
    ):
        expect(page.locator("#text-label")).to_have_text("Text to summarize or translate")
        page.locator(".example").click()
        expect(page.locator("#status")).to_have_text(re.compile(r"\d+ tokens in"))
