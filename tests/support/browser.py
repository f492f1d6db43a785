"""The demo as a process, a headless Chromium that opens it, and what is seen there."""

import shutil
import socket
import subprocess
import sys
from contextlib import contextmanager

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

CONTRAST = """element => {
    const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    const rgba = color => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = color;
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
        return [[r, g, b], a / 255];
    };
    const over = ([color, alpha], below) => color.map((c, i) => alpha * c + (1 - alpha) * below[i]);
    const line = [];
    for (let e = element; e; e = e.parentElement) line.unshift(getComputedStyle(e));
    let background = [255, 255, 255], opacity = 1;
    for (const style of line) {
        background = over(rgba(style.backgroundColor), background);
        opacity *= style.opacity;
    }
    const [color, alpha] = rgba(getComputedStyle(element).color);
    const luminance = rgb => rgb
        .map(c => c / 255)
        .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const both = [luminance(over([color, alpha * opacity], background)), luminance(background)];
    return (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
}"""
"""The contrast ratio of an element's text by WCAG 2.1, 1 to 21; what fades it counts."""


@contextmanager
def demo_process(*arguments):
    """Start `ov-specdec demo` on a free port; gives the process and its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "ov_specdec", "demo", "--port", str(port), *arguments]
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
