"""Both pages as a visitor meets them, in a real browser, with pictures to look at."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from tests.support.browser import chromium, expect

SIZES = {"desktop": (1280, 800), "phone": (390, 844)}


def look_at_server(page: Any) -> None:
    """What to ask instead."""
    expect(page.locator("body")).to_contain_text("/v1/chat/completions")


def look_at_demo(page: Any) -> None:
    """A result in sight when it opens, and another at a click."""
    expect(page.locator("#verdict strong")).to_be_in_viewport()
    expect(page.get_by_label("Draft length")).not_to_be_visible()
    page.locator("#run").click()
    expect(page.locator("#run-status")).to_have_text("Done.")
    expect(page.locator("#verdict strong")).to_be_in_viewport()
    page.wait_for_timeout(1000)  # charts move when they appear


LOOKS = {"serve": look_at_server, "demo": look_at_demo}


def visits(
    addresses: Mapping[str, str | None], pictures: Path
) -> Iterator[tuple[str, Callable[[], str]]]:
    """Each visit: its name, and what makes it and returns what went wrong."""
    pictures.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        for name, size, theme in product(LOOKS, SIZES, ("light", "dark")):
            path = pictures / f"{name}-{size}-{theme}.png"
            address = f"{addresses.get(name)}?__theme={theme}"  # the demo's way to say it
            yield path.stem, partial(visit, browser, address, LOOKS[name], SIZES[size], theme, path)


def visit(
    browser: Any,
    address: str,
    look: Callable[[Any], None],
    size: tuple[int, int],
    theme: str,
    picture: Path,
) -> str:
    """Look at a page and photograph it; returns errors of its script, and what overflows."""
    viewport = dict(zip(("width", "height"), size, strict=True))
    errors: list[str] = []
    with closing(browser.new_context(viewport=viewport, color_scheme=theme)) as context:
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address)
        try:
            look(page)
        finally:
            page.screenshot(path=picture)
        if (width := page.evaluate("document.documentElement.scrollWidth")) > size[0]:
            errors.append(f"it is {width} pixels wide")
    return "; ".join(errors)
