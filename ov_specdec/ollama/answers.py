"""Answers of /api/chat and /api/generate, whole and as lines."""

from datetime import datetime, timezone
from time import monotonic
from typing import Any

from ov_specdec.api.answer import Answer, encode_line, new_call_id
from ov_specdec.api.errors import ApiError, Json
from ov_specdec.ollama.requests import OllamaRequest
from ov_specdec.results.chunks import Chunk
from ov_specdec.results.parts import CallEnd, calls_of, reasoning_of


def error_body(error: ApiError) -> Json:
    """The body of an answer that is an error."""
    return {"error": error.message}


def as_time(seconds: float) -> str:
    """A time as in RFC 3339. seconds: since 1970."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()


class OllamaAnswer(Answer[OllamaRequest]):
    """The answer to a prompt; only whole calls are sent."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._began, self._num_calls = monotonic(), 0

    @property
    def is_streamed(self) -> bool:
        """See `Answer`."""
        return self.request.stream is not False

    def add(self, index: int, chunk: Chunk) -> list[bytes]:
        """Note a chunk; its line, if it adds to the answer."""
        self.note(index, chunk)
        has_calls = any(isinstance(part, CallEnd) for part in chunk.parts)
        content = chunk.text, reasoning_of(chunk.parts), self._new_calls() if has_calls else []
        return [self._line(*content, done=False)] if any(content) else []

    def end(self) -> list[bytes]:
        """The last line."""
        return [self._line("", "", [], **self._ending())]

    def fail(self, error: ApiError) -> bytes:
        """The line that ends a failed stream."""
        return encode_line(error_body(error)) + b"\n"

    def whole(self) -> Json:
        """The body of an answer that is not streamed."""
        text = "".join(choice.text for choice in self.choices)
        return self._body(text, reasoning_of(self._parts), self._new_calls(), **self._ending())

    @property
    def _parts(self) -> list[Any]:
        chunks = (chunk for choice in self.choices for chunk in choice.chunks)
        return [part for chunk in chunks for part in chunk.parts]

    def _new_calls(self) -> list[Json]:
        """Whole calls that are not sent yet. Open WebUI joins those of one index."""
        whole = [call for call in calls_of(self._parts) if call.is_whole]
        new = [call.as_message(new_call_id()) for call in whole[self._num_calls :]]
        for call in new:
            call["function"]["index"] = self._num_calls
            self._num_calls += 1
        return new

    def _body(self, *content: Any, **more: Any) -> Json:
        head = {"model": self.model, "created_at": as_time(self.created)}
        return {**head, **self.request.piece(*content), **more}

    def _line(self, *content: Any, **more: Any) -> bytes:
        return encode_line(self._body(*content, **more)) + b"\n"

    def _ending(self) -> Json:
        """Why it ended, counts of tokens, and nanoseconds, of which the total has the wait too.

        Without a prompt, what Ollama says when it loads or unloads a model.
        """
        if not self.stats:
            is_end = self.request.keep_alive in (0, "0", "0s")
            return {"done": True, "done_reason": "unload" if is_end else "load"}
        [stats], [choice] = self.stats, self.choices
        first = stats.time_to_first_token
        seconds = {
            "total_duration": monotonic() - self._began,
            "load_duration": 0,
            "prompt_eval_duration": first,
            "eval_duration": stats.seconds - first,
        }
        return {
            "done": True,
            "done_reason": "length" if choice.finish_reason == "length" else "stop",
            **{name: int(1e9 * value) for name, value in seconds.items()},
            "prompt_eval_count": stats.prompt_tokens,
            "eval_count": stats.generated_tokens,
        }
