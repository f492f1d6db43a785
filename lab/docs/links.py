"""Fetches each external link of the pages: `python -m lab.docs.links`, with a network.

Prints those that fail, and why; a site that cannot be reached is a failure like any other.
"""

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]
PAGES = ("*.md", "docs/*.md", "models/*.md", "models/training/*.md", "notebooks/*.ipynb")
LINK = re.compile(r"https?://(?!127\.0\.0\.1|localhost)[^\s)\"'<>`\\#]+")
CLIENT = httpx.Client(
    transport=httpx.HTTPTransport(retries=3),
    follow_redirects=True,
    timeout=30.0,
    headers={"user-agent": "Mozilla/5.0 (check of links)"},
)


def failure(link: str) -> str:
    """Why a link cannot be fetched; empty if it can."""
    try:
        CLIENT.get(link).raise_for_status()
    except httpx.HTTPError as error:
        return f"{link}: {type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    texts = [page.read_text("utf-8") for pattern in PAGES for page in ROOT.glob(pattern)]
    links = sorted({link.rstrip(".,;:") for text in texts for link in LINK.findall(text)})
    with ThreadPoolExecutor(8) as threads:
        broken = [why for why in threads.map(failure, links) if why]
    print("\n".join([*broken, f"{len(links)} links, {len(broken)} of them broken"]))  # noqa: T201
    sys.exit(1 if broken or not links else 0)
