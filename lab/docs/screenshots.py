"""The picture of the demo in the docs: `python -m lab.docs.screenshots`. Needs chromium."""

from pathlib import Path

import click

from tests.support.browser import chromium, demo_process, expect

FILE = Path(__file__).parents[2] / "docs" / "images" / "demo.png"
SIZE = {"width": 1280, "height": 900}
PROMPT = "def parse_args(argv):"
"""Whose text does not loop."""


@click.command()
def main() -> None:
    """Photograph both texts of a prompt, from the verdict to the legend."""
    with demo_process() as (_, address), chromium() as browser:
        page = browser.new_page(viewport=SIZE)
        page.goto(f"{address}?__theme=light")
        page.locator("#prompt textarea").fill(PROMPT)
        page.locator("#run").click()
        expect(page.locator("#run-status")).to_have_text("Done.")
        first, last = (page.locator(f"#{name}").bounding_box() for name in ("verdict", "legend"))
        height = last["y"] + last["height"] - first["y"]
        clip = {**first, "width": first["width"], "height": height}
        page.screenshot(path=FILE, full_page=True, clip=clip)
    click.echo(FILE)


if __name__ == "__main__":
    main()
