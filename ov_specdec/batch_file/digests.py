"""Digests of requests, by which a later run recognizes answered ones."""

import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any

from ov_specdec.batch_file.results import Results
from ov_specdec.openai.batches import BatchRequest, LineError, read_request


def digest(request: BatchRequest, settings: Mapping[str, Any]) -> str:
    """The digest of a request. settings: other values that affect its answer, as JSON."""
    known = [request.custom_id, request.url, request.body, dict(settings)]
    content = json.dumps(known, sort_keys=True)
    return sha256(content.encode()).hexdigest()[:32]


def find_changed(
    lines: Iterable[bytes], results: Results, settings: Mapping[str, Any]
) -> Iterator[tuple[int, str]]:
    """Number and id of lines whose custom id has a result of another request or other settings."""
    seen: set[str] = set()
    for number, line in enumerate(lines, 1):
        try:
            request = read_request(line)
        except LineError:  # the run itself reports it, like a repeated id
            continue
        answered = results.digest_of(request)
        if answered is None or request.custom_id in seen:
            continue
        seen.add(request.custom_id)
        if answered != digest(request, settings):
            yield number, request.custom_id
