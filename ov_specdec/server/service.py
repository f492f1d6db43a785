"""`Service`: admits requests of the routes, and passes them to the engine."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Any

from ov_specdec.errors import ContextLengthError, shorten
from ov_specdec.openai.answer import Ask
from ov_specdec.openai.errors import ApiError, invalid
from ov_specdec.results.chunks import Chunk
from ov_specdec.results.stats import NOT_INVARIANT
from ov_specdec.server.document import (
    BatchInvariant,
    DetokenizeBody,
    Model,
    Text,
    TokenizeBody,
    Tokens,
)
from ov_specdec.server.engine import EngineClient
from ov_specdec.server.limits import RETRY_AFTER, Slots
from ov_specdec.server.metrics import Metrics, RequestMetrics, export
from ov_specdec.server.settings import Settings
from ov_specdec.server.stream import Stream
from ov_specdec.server.transcriptions import Transcriptions
from ov_specdec.text.detokenizer import as_text
from ov_specdec.text.generated_tokens import GeneratedTokens
from ov_specdec.text.prompt import encode_prompt


@dataclass
class Service:
    """One engine, or a speech model, shared by all requests; `served` is None while it loads."""

    settings: Settings
    started: int = field(default_factory=lambda: int(time()))
    is_draining: bool = False
    is_over: bool = False  # whether running requests have had their time after `stop`
    slots: Slots = field(init=False)
    metrics: RequestMetrics = field(init=False)
    served: EngineClient | Transcriptions | None = None
    _streams: set[Stream[Chunk]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.metrics = RequestMetrics(self.settings.model_name)
        self.slots = Slots(self.settings.max_batch_size + self.settings.max_queue)

    def take(self, engine: EngineClient | Transcriptions) -> None:
        """Serve with this engine, or this speech model, from now on."""
        self.served = engine
        if isinstance(engine, Transcriptions):
            self.slots = Slots(1 + self.settings.max_queue)  # one runs at a time

    def close(self) -> None:
        """Free the models."""
        if self.served is not None:
            self.served.close()

    def require_loaded(self) -> EngineClient | Transcriptions:
        """What is served; `ApiError` while it loads."""
        if self.served is None:
            raise ApiError(503, "the models are loading", code="loading", retry_after=RETRY_AFTER)
        return self.served

    @property
    def engine(self) -> EngineClient:
        """The engine; `ApiError` while it loads, or if a speech model is served."""
        served = self.require_loaded()
        if isinstance(served, Transcriptions):
            raise _not_here("recordings", "/v1/audio/transcriptions")
        return served

    @property
    def speech(self) -> Transcriptions:
        """The speech model; `ApiError` while it loads, or if a text model is served."""
        served = self.require_loaded()
        if not isinstance(served, Transcriptions):
            raise _not_here("text", "/v1/completions")
        return served

    async def check_health(self) -> None:
        """Raise `ApiError` unless the server accepts requests and the engine makes progress."""
        engine = self.require_loaded()
        if self.is_draining:
            raise _draining()
        await engine.check_health()

    async def export_metrics(self) -> bytes:
        """The metrics for Prometheus; all are 0 while models load."""
        if self.served is None:
            found = [*Metrics(self.settings.model_name).registry.collect()]
        else:
            found = await self.served.collect_metrics()
        return export([*self.metrics.registry.collect(), *found])

    @property
    def model_names(self) -> tuple[str, ...]:
        """Names of the model in requests; answers use the first."""
        return (self.settings.model_name, *self.settings.aliases)

    def check_model(self, name: str | None) -> None:
        """Refuse a model that is not served; None is accepted."""
        if name not in (None, *self.model_names):
            raise ApiError(
                404,
                f"the model {shorten(name)} is not served here: it is '{self.settings.model_name}'",
                "model",
                "model_not_found",
            )

    @contextmanager
    def entered(self, tenant: str | None) -> Iterator[Callable[[int, int], None]]:
        """Take a slot for a request, before it is read: see `Slots.entered`."""
        if self.is_draining:
            raise _draining()
        self.require_loaded()
        with self.slots.entered(tenant) as grow:
            yield grow

    async def turn(self, stream: Stream[Any], deadline: float | None) -> None:
        """Wait until a request runs; `asyncio.TimeoutError` at its deadline.

        Raises `ApiError` if it waits too long.
        """
        came, most = monotonic(), self.settings.queue_timeout
        left = most if deadline is None else min(most, deadline - came)
        try:
            await asyncio.wait_for(stream.admitted.wait(), left)
        except asyncio.TimeoutError as error:
            if left < most:
                raise
            raise ApiError(
                503,
                f"the request waited {most:g} s in the queue: try again later",
                code="queue_timeout",
                retry_after=RETRY_AFTER,
            ) from error
        self.metrics["request_queue_time_seconds"].observe(monotonic() - came)

    @asynccontextmanager
    async def running(
        self, ask: Ask, tenant: str | None, stream: Stream[Chunk]
    ) -> AsyncIterator[None]:
        """Queue the generations of a request, which fill a stream: see `EngineClient`."""
        self._streams.add(stream)
        try:
            async with self.engine.running(ask, tenant, stream):
                yield
        finally:
            self._streams.discard(stream)

    def convert(self, wanted: TokenizeBody | DetokenizeBody) -> Tokens | Text:
        """The ids of a prompt, or the text of ids."""
        tokenizer, context = self.engine.tokenizer, self.engine.max_length
        if isinstance(wanted, DetokenizeBody):
            known = range(tokenizer.vocab_size)
            if unknown := [token for token in wanted.tokens if token not in known]:
                raise invalid("tokens", f"tokens holds {unknown[0]}, which the model does not have")
            return Text(prompt=tokenizer.decode_all(wanted.tokens))
        prompt, options = wanted.read()
        most = max(context, self.settings.max_request_tokens)
        try:
            ids = encode_prompt(prompt, options, tokenizer, GeneratedTokens(), most)
        except ContextLengthError as error:
            message = f"the prompt has more than max_request_tokens={most} tokens: send less"
            raise invalid(None, message, "too_many_tokens") from error
        pieces = [as_text(tokenizer.piece(i)) for i in ids] if wanted.return_token_strs else None
        return Tokens(count=len(ids), max_model_len=context, tokens=ids, token_strs=pieces)

    def describe_model(self, name: str) -> Model:
        """The model by one of its names, in OpenAI's shape."""
        served = self.require_loaded()
        takes_messages, invariance = False, NOT_INVARIANT
        if not isinstance(served, Transcriptions):
            takes_messages = served.tokenizer.chat_template is not None
            invariance = served.batch_invariant
        return Model(
            id=name,
            created=self.started,
            max_model_len=served.max_length,
            chat_template=takes_messages,
            batch_invariant=BatchInvariant(**invariance.as_dict()),
        )

    def stop(self) -> None:
        """Reject new requests, and end running ones after a timeout. In the event loop."""
        if not self.is_draining:
            self.is_draining = True
            loop = asyncio.get_running_loop()
            loop.call_later(self.settings.shutdown_timeout, self._end_all)

    def _end_all(self) -> None:
        self.is_over = True
        for stream in self._streams:
            stream.fail(_draining())
        if isinstance(self.served, Transcriptions):
            self.served.cancel_all()


def _not_here(what: str, path: str) -> ApiError:
    message = f"the model that is served takes {what}: use {path}"
    return ApiError(400, message, code="wrong_endpoint")


def _draining() -> ApiError:
    return ApiError(503, "the server is shutting down", code="draining")
