"""Pictures of the demo for the docs: `python -m tests.docs.screenshots`. Needs chromium."""

from pathlib import Path

import click

from tests.support.browser import chromium, demo_process

FOLDER = Path(__file__).parents[2] / "docs" / "images"
SIZE = {"width": 1280, "height": 900}


@click.command()
def main() -> None:
    """Photograph the example that the demo begins with, in a light and in a dark page."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with demo_process() as (_, address), chromium() as browser:
        for theme in ("light", "dark"):
            page = browser.new_page(viewport=SIZE)
            page.goto(f"{address}?__theme={theme}")
            page.locator(".vega-embed canvas, .vega-embed svg").nth(1).wait_for()
            page.wait_for_timeout(1000)  # charts move when they appear
            path = FOLDER / f"demo-{theme}.png"
            page.screenshot(path=path, full_page=True)
            click.echo(path.relative_to(FOLDER.parent.parent))


if __name__ == "__main__":
    main()
