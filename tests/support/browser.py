"""The demo as a process, a headless Chromium that opens it, and what is seen there."""

import shutil
import subprocess
import sys
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import pytest

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def demo_process(*arguments):
    """Start `ov-specdec demo` on a free port; gives the process and its address."""
    command = [sys.executable, "-m", "ov_specdec", "demo", "--port", "0", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as server:
        try:
            yield server, server.stdout.readline().strip()
        finally:
            server.terminate()


@contextmanager
def chromium():
    """A headless Chromium; where there is none, the test fails."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.fail("needs a browser: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield browser
        browser.close()


def expect(locator):
    """Playwright's assertions on an element, which wait for a busy machine too."""
    from playwright.sync_api import expect as sync_expect

    sync_expect.set_options(timeout=60_000)
    return sync_expect(locator)


@contextmanager
def visit(browser, address, *, theme="light", **settings):
    with closing(browser.new_context(**settings)) as context:
        page = context.new_page()
        page.hosts = set()
        page.on("request", lambda request: page.hosts.add(urlsplit(request.url).hostname))
        page.goto(f"{address}?__theme={theme}")
        page.locator("#run").wait_for()
        yield page
