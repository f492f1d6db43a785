"""The models behind the server: admits requests, and hands them to the thread that runs them."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import time
from typing import Any
from uuid import uuid4

from ov_specdec.background import Background
from ov_specdec.chunks import Chunk
from ov_specdec.generation import Generation
from ov_specdec.openai import Answer, ApiError, Ask
from ov_specdec.openai.errors import invalid
from ov_specdec.openai.tokens import Detokenize, Tokenize
from ov_specdec.options import GenerationOptions
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.server.metrics import Metrics, Timer
from ov_specdec.server.stream import MAX_UNREAD, Stream
from ov_specdec.server.transcriptions import Transcriptions
from ov_specdec.speech_pipeline import SpeechPipeline
from ov_specdec.text.prompt import encode_prompt
from ov_specdec.text.transcript import Transcript

log = logging.getLogger("ov_specdec.server")

RETRY_AFTER = 1
"""Seconds that a client is told to wait while the queue is full: about what an answer takes."""


@dataclass(frozen=True)
class Settings:
    """What the server is told besides the models.

    model_name: under which it serves them. api_keys: any of them opens it; none: it is open.
    max_queue: requests that may wait beside the `max_batch_size` that run. request_timeout: seconds
    from arrival to the last token; None: any. max_body: bytes. body_timeout: seconds in which a
    body has to arrive. step_timeout: seconds after which a step counts as hung. shutdown_timeout:
    seconds that running requests get to end. cors_origins: web sites that may call it.
    temperature: of requests that give none; None leaves it to the pipeline.
    """

    model_name: str = "ov-specdec"
    api_keys: tuple[str, ...] = ()
    max_batch_size: int = 16
    max_queue: int = 128
    request_timeout: float | None = None
    max_body: int = 4_000_000
    body_timeout: float = 30.0
    step_timeout: float = 60.0
    shutdown_timeout: float = 30.0
    cors_origins: tuple[str, ...] = ()
    temperature: float | None = 1.0
    max_unread: int = MAX_UNREAD


@dataclass
class Service:
    """One pipeline, shared by all requests; it may still be loading."""

    settings: Settings
    metrics: Metrics = field(init=False)
    started: int = field(default_factory=lambda: int(time()))
    is_draining: bool = False
    num_active: int = 0
    """Generations that were admitted and have not ended."""
    _pipeline: SpeculativePipeline | None = None
    _background: Background | None = None
    _speech: Transcriptions | None = None
    _streams: set[Stream[Chunk]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.metrics = Metrics(self.settings.model_name)

    def take(self, pipeline: SpeculativePipeline | SpeechPipeline) -> None:
        """Serve this pipeline from now on."""
        if isinstance(pipeline, SpeechPipeline):
            self._speech = Transcriptions(pipeline, self.metrics)
            return
        self._background = pipeline.background(self._report)
        self._pipeline = pipeline
        self.metrics.watch(self._background)

    def close(self) -> None:
        """Free the models."""
        if self._pipeline is not None and self._background is not None:
            self._pipeline.close()
            self._background.join(self.settings.step_timeout)
        if self._speech is not None:
            self._speech.close()

    @property
    def pipeline(self) -> SpeculativePipeline:
        """The pipeline for text; `ApiError` while it is loading, and where speech is served."""
        self._require_text()
        if self._pipeline is None:
            raise _loading()
        return self._pipeline

    @property
    def background(self) -> Background:
        """What runs its generations; `ApiError` where there is no pipeline for text."""
        self._require_text()
        if self._background is None:
            raise _loading()
        return self._background

    @property
    def speech(self) -> Transcriptions:
        """What transcribes; `ApiError` while it is loading, and where text is served."""
        if self._pipeline is not None:
            raise _not_here("text", "/v1/completions")
        if self._speech is None:
            raise _loading()
        return self._speech

    def check_health(self) -> None:
        """Raise `ApiError` unless requests are taken, and the present step makes progress."""
        if self.is_draining:
            raise _draining()
        if self._speech is not None:
            return
        background = self.background
        if not background.is_alive or background.step_seconds > self.settings.step_timeout:
            raise ApiError(503, "the engine makes no progress", code="engine_stalled")

    def check_model(self, name: str | None) -> None:
        """Refuse a model that is not served; requests that name none are as good."""
        if name not in (None, self.settings.model_name):
            raise ApiError(
                404,
                f"the model '{name}' is not served here: it is '{self.settings.model_name}'",
                "model",
                "model_not_found",
            )

    def answer(self, ask: Ask) -> Answer:
        """What all bodies of an answer to this request share."""
        prefix = {"chat": "chatcmpl-", "completions": "cmpl-", "responses": "resp_"}[ask.endpoint]
        decode = self.pipeline.tokenizer.decode_all
        return Answer(ask, prefix + uuid4().hex, self.settings.model_name, int(time()), decode)

    def complete(self, options: dict[str, Any], tenant: str | None) -> GenerationOptions:
        """Options with the pipeline's defaults. tenant: whose cached prefixes may be used."""
        salted = {"cache_salt": tenant, **options} if tenant is not None else options
        return self.pipeline.complete_options(**salted)

    @contextmanager
    def admitted(self, num_choices: int) -> Iterator[None]:
        """Take a place in the queue for so many generations; `ApiError` where there is none."""
        if self.is_draining:
            raise _draining()
        room = self.settings.max_batch_size + self.settings.max_queue
        if num_choices > room:
            raise invalid("n", f"{num_choices} choices are more than the {room} that run and wait")
        if self.num_active + num_choices > room:
            raise ApiError(
                429,
                f"{self.num_active} requests are running or waiting: try again later",
                code="queue_full",
                retry_after=RETRY_AFTER,
            )
        self.num_active += num_choices
        try:
            yield
        finally:
            self.num_active -= num_choices

    @contextmanager
    def running(self, generations: Sequence[Generation], stream: Stream[Chunk]) -> Iterator[None]:
        """Run generations that fill a stream; whatever of them is left in the end is cancelled."""
        background = self.background
        self._streams.add(stream)
        try:
            for generation in generations:
                background.submit(generation)
            yield
        finally:
            self._streams.discard(stream)
            for generation in generations:
                background.cancel(generation)

    def check(self, ask: Ask, tenant: str | None, stream: Stream[Chunk]) -> list[Generation]:
        """The generations of a request, ready to be submitted. Takes a while: not for the loop."""
        checked = []
        for index, (prompt, options) in enumerate(ask.generations()):
            receive = self._receiver(stream, index)
            completed = self.complete(options, tenant)
            checked.append(self.background.check(prompt, completed, receive, stream.end))
        return checked

    def tokenize(self, wanted: Tokenize) -> dict[str, Any]:
        """The ids of a prompt, in vLLM's shape. Needs no place in the queue."""
        options = self.pipeline.complete_options(**wanted.options, max_new_tokens=1)
        tokenizer = self.pipeline.tokenizer
        ids = encode_prompt(wanted.prompt, options, tokenizer, Transcript())
        return {
            "count": len(ids),
            "max_model_len": self.max_length,
            "tokens": ids,
            "token_strs": [tokenizer.decode_all([i]) for i in ids] if wanted.texts else None,
        }

    def detokenize(self, wanted: Detokenize) -> dict[str, Any]:
        """The text of ids."""
        tokenizer = self.pipeline.tokenizer
        if unknown := [i for i in wanted.tokens if not 0 <= i < tokenizer.vocab_size]:
            raise invalid("tokens", f"tokens holds {unknown[0]}, which the model does not have")
        return {"prompt": tokenizer.decode_all(wanted.tokens)}

    def describe_model(self) -> dict[str, Any]:
        """The model, in OpenAI's shape. chat_template: whether it takes messages."""
        return {
            "id": self.settings.model_name,
            "object": "model",
            "created": self.started,
            "owned_by": "ov-specdec",
            "max_model_len": self.max_length,
            "chat_template": self._has_chat_template,
        }

    @property
    def max_length(self) -> int:
        """Tokens of prompt and output."""
        if self._speech is not None:
            return self._speech.max_length
        return self.pipeline.main.runner.max_length

    def _require_text(self) -> None:
        """Refuse what is asked of a model for text where speech is served."""
        if self._speech is not None:
            raise _not_here("recordings", "/v1/audio/transcriptions")

    @property
    def _has_chat_template(self) -> bool:
        return self._speech is None and self.pipeline.tokenizer.chat_template is not None

    def stop(self) -> None:
        """Take no more requests, and end those that run when their time is up. In the loop."""
        if not self.is_draining:
            self.is_draining = True
            loop = asyncio.get_running_loop()
            loop.call_later(self.settings.shutdown_timeout, self._end_all)

    def _end_all(self) -> None:
        for stream in self._streams:
            stream.fail(_draining())
        if self._speech is not None:
            self._speech.cancel_all()

    def _receiver(self, stream: Stream[Chunk], index: int) -> Callable[[Sequence[Chunk]], None]:
        timer, put = Timer(self.metrics), stream.receiver(index)

        def receive(chunks: Sequence[Chunk]) -> None:
            timer.receive(chunks)
            put(chunks)

        return receive

    def _report(self, error: Exception) -> None:
        log.error("a step has failed, and with it the requests that were running", exc_info=error)


def _not_here(what: str, path: str) -> ApiError:
    message = f"the model that is served takes {what}: use {path}"
    return ApiError(400, message, code="wrong_endpoint")


def _loading() -> ApiError:
    return ApiError(503, "the models are being loaded", code="loading", retry_after=RETRY_AFTER)


def _draining() -> ApiError:
    return ApiError(503, "the server is shutting down", code="draining")
