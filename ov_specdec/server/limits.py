"""Limits of requests: of their bodies as they arrive, of slots in the queue, and of tokens."""

import asyncio
import math
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from pydantic_core import from_json
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from ov_specdec.api.body import FILE, GenerationBody
from ov_specdec.api.errors import ApiError, invalid
from ov_specdec.server.settings import MAX_RECORDING, MAX_TEXT, Settings
from ov_specdec.server.stream import run_in_thread

T = TypeVar("T")

RETRY_AFTER = 1
"""Retry-After in seconds while the queue is full: about the time of an answer."""

TIMEOUT = 30.0
"""Maximum seconds for a body to arrive."""

LARGE = 65_536
"""Minimum bytes of a body that is parsed in a thread, so that other requests continue."""


async def read_bytes(request: Request, settings: Settings) -> bytes:
    """A JSON body, as it was sent.

    Only application/json is accepted, which pages of other sites can send only after a CORS
    preflight.
    """
    _require_type(request, "application/json")
    parts = _parts(request, settings.max_body_size or MAX_TEXT)
    return b"".join([part async for part in parts])


async def parse_json(body: bytes, read: Callable[[Any], T]) -> T:
    """Parse a JSON body with `read`, in a thread if it is large."""
    if len(body) < LARGE:
        return read(_parse(body))
    return await run_in_thread(lambda: read(_parse(body)))


async def read_fields(request: Request, settings: Settings) -> dict[str, list[Any]]:
    """The texts of a form by field, and its file.

    Pages of other sites can send a form without a CORS preflight, but with an Origin header: it is
    refused unless its site is among `cors_origins`.
    """
    _require_type(request, "multipart/form-data")
    origin = request.headers.get("origin")
    is_own = origin is None or origin.partition("://")[2] == request.headers.get("host")
    if not is_own and not {origin, "*"} & set(settings.cors_origins):
        raise ApiError(403, f"pages of {origin} may not use this server: see --cors-origin")
    parser = MultiPartParser(
        request.headers,
        _parts(request, settings.max_body_size or MAX_RECORDING),
        max_files=1,
        max_fields=64,
        max_part_size=65_536,  # of a text, which is in memory; the file is on disk
    )
    try:
        form = await parser.parse()
    except (MultiPartException, ValueError) as error:  # ValueError for some values of its charset
        raise invalid(None, f"the form cannot be read: {error}") from error
    fields: dict[str, list[Any]] = {}
    for name, value in form.multi_items():
        if not isinstance(value, str) and name != FILE:
            raise invalid(name, f"{name} is a file: give it as '{FILE}'")
        fields.setdefault(name, []).append(value if isinstance(value, str) else value.file)
    return fields


def _require_type(request: Request, needed: str) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != needed:
        raise invalid(None, f"the content type is {kind!r}: it must be {needed}")


async def _parts(request: Request, megabytes: float) -> AsyncGenerator[bytes, None]:
    """A body as it arrives, up to this size, which would not bound what gzip unpacks to."""
    max_body = math.ceil(megabytes * 1e6)
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise ApiError(415, f"the body has the content encoding {encoding!r}: send it as it is")
    too_large = ApiError(413, f"the body has more than {max_body} bytes", code="request_too_large")
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > max_body:
        raise too_large
    length = 0
    async for part in request.stream():
        length += len(part)
        if length > max_body:
            raise too_large
        yield part


def _parse(body: bytes) -> Any:
    try:
        return from_json(body.removeprefix(BOM_UTF8), allow_inf_nan=False)
    except ValueError as error:
        raise invalid(None, f"the body is not valid JSON: {error}") from error


class Arrivals:
    """Bounds the bodies that arrive: one more ends the oldest of the address with the most.

    So those that do not come keep no others out, of any address. For the event loop only.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._arriving: dict[asyncio.Future[Any], str | None] = {}
        """Their addresses, in order of arrival."""

    async def wait_for(self, body: Awaitable[T], address: str | None) -> T:
        """A body, if it arrives in time; `ApiError` if not. address: of its client."""
        if len(self._arriving) >= self._most:
            busiest = Counter(self._arriving.values()).most_common(1)[0][0]
            oldest = next(task for task, of in self._arriving.items() if of == busiest)
            del self._arriving[oldest]
            oldest.cancel()
        task = asyncio.ensure_future(body)
        self._arriving[task] = address
        try:
            done, _ = await asyncio.wait([task], timeout=TIMEOUT)
        finally:
            self._arriving.pop(task, None)
            task.cancel()
        if not done or task.cancelled():
            raise ApiError(408, "the body has not arrived in time: send it again")
        return task.result()


Grow = Callable[[int, int], None]
"""Takes a slot for each choice of a request: of how many, and of those of each prompt."""


class Slots:
    """Bounds the generations that run or wait; more are rejected with 429.

    A key that has none gets a slot for a request even if all are taken, so no key shuts out others.
    Not thread-safe: for the event loop only.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken: Counter[str | None] = Counter()

    @contextmanager
    def entered(self, key: str | None) -> Iterator[Grow]:
        """Take a slot for a request; `ApiError` if there is none. key: of the client."""
        size = 0

        def grow(num_choices: int, n: int) -> None:
            nonlocal size
            if num_choices > self.most:
                param, what = ("n", "choices") if n > 1 else ("prompt", "prompts")
                room = f"the {self.most} slots of the queue"
                raise invalid(param, f"{num_choices} {what} exceed {room}: send fewer")
            num_taken = self.taken.total()
            if num_taken + num_choices - size > self.most and self.taken[key] > size:
                raise ApiError(
                    429,
                    f"{num_taken} requests are running or waiting: try again later",
                    code="queue_full",
                    retry_after=RETRY_AFTER,
                )
            self.taken[key] += num_choices - size
            size = num_choices

        grow(1, 1)
        try:
            yield grow
        finally:
            self.taken[key] -= size


def limit_work(
    request: GenerationBody, length: int | None, prompts: Sequence[int], context: int, most: int
) -> int | None:
    """The output length of each choice; `ApiError` if they have more than `most` tokens together.

    For every choice, its prompt, maximum output and top log-probabilities count. length: this
    one; None for what fits. prompts: their lengths. context: tokens of prompt and output.
    """
    options, n = request.options, request.choices_per_prompt
    read = n * sum(prompts) * (1 + (options.prompt_logprobs or 0))
    each = 1 + (options.logprobs or 0)
    room = [max(context - prompt, 1) for prompt in prompts]
    fits = (most - read) // (each * request.num_choices)
    if length is None and fits >= 1:
        return None if fits >= max(room) else fits
    least = 1 if length is None else length
    asked = read + each * n * sum(min(least, there) for there in room)
    if asked > most:
        raise invalid(
            None,
            f"the {request.num_choices} choices of the request have up to {asked} tokens together, "
            f"prompts and top log-probabilities included, over max_request_tokens={most}: ask for "
            "fewer choices, shorter ones, or fewer log-probabilities",
            "too_many_tokens",
        )
    return length
