"""What a result answers: the digest of a request, by which a later run knows it again."""

import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any

from ov_specdec.batch_file.results import Results
from ov_specdec.openai.batches import BatchRequest, LineError, read_request


def digest(request: BatchRequest, settings: Mapping[str, Any]) -> str:
    """A digest of a request. settings: what decides its answer beside it, as values of JSON."""
    known = [request.custom_id, request.url, request.body, dict(settings)]
    content = json.dumps(known, sort_keys=True)
    return sha256(content.encode()).hexdigest()[:32]


def find_changed(
    lines: Iterable[bytes], results: Results, settings: Mapping[str, Any]
) -> Iterator[tuple[int, str]]:
    """Lines whose custom ids have results, but of other requests or settings: number and id."""
    seen: set[str] = set()
    for number, line in enumerate(lines, 1):
        try:
            request = read_request(line)
        except LineError:  # of which the run itself tells, as of an id that comes again
            continue
        answered = results.digest_of(request)
        if answered is None or request.custom_id in seen:
            continue
        seen.add(request.custom_id)
        if answered != digest(request, settings):
            yield number, request.custom_id
