"""Fetches each external link of the pages: `python -m tests.docs.links`, with a network.

Prints those that fail, and why; a site that cannot be reached is a failure like any other.
"""

import re
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]
PAGES = ("*.md", "docs/*.md", "models/*.md", "models/training/*.md", "notebooks/*.ipynb")
LINK = re.compile(r"https?://[^\s)\"'<>`\\]+")
LOCAL = re.compile(r"https?://(127\.0\.0\.1|localhost)\b")
HEADERS = {"user-agent": "Mozilla/5.0 (check of links)"}
TRIES = 3


def links(text: str) -> set[str]:
    """The external links of a text, without their fragments."""
    found = (link.rstrip(".,;:").partition("#")[0] for link in LINK.findall(text))
    return {link for link in found if not LOCAL.match(link)}


def failure(link: str) -> str:
    """Why a link cannot be fetched; empty if it can."""
    reason = ""
    for _ in range(TRIES):
        try:
            done = httpx.get(link, follow_redirects=True, timeout=30.0, headers=HEADERS)
        except httpx.HTTPError as error:
            reason = f"{type(error).__name__}: {error}"
            continue
        if done.status_code < httpx.codes.BAD_REQUEST:
            return ""
        reason = f"status {done.status_code}"
    return reason


def failures(found: Iterable[str]) -> list[str]:
    """A line for each link that cannot be fetched."""
    ordered = sorted(found)
    with ThreadPoolExecutor(8) as threads:
        reasons = threads.map(failure, ordered)
        return [f"{link}: {why}" for link, why in zip(ordered, reasons, strict=True) if why]


def main() -> int:
    """Check all pages. Returns the exit code."""
    pages = [page for pattern in PAGES for page in sorted(ROOT.glob(pattern))]
    found = set().union(*(links(page.read_text(encoding="utf-8")) for page in pages))
    broken = failures(found)
    print("\n".join([*broken, f"{len(found)} links, {len(broken)} of them broken"]))  # noqa: T201
    return 1 if broken or not found else 0


if __name__ == "__main__":
    sys.exit(main())
