"""Ollama's interface as a table."""

from hashlib import sha256
from typing import ClassVar

from ov_specdec.api.body import UnknownFields
from ov_specdec.api.dialect import Dialect, Framing, Generating, Query, Served, check_model
from ov_specdec.api.errors import Json, invalid
from ov_specdec.ollama.answers import OllamaAnswer, as_time, error_body
from ov_specdec.ollama.requests import ChatRequest, GenerateRequest
from ov_specdec.text.format_probe import read_format

NEVER = 2**34
"""When models are unloaded, in seconds since 1970."""


def show_version(served: Served) -> Json:  # noqa: ARG001
    """The version of Ollama whose interface this is: clients refuse early ones."""
    return {"version": "0.12.0"}


def _details(served: Served) -> Json:
    unknown = dict.fromkeys(("parent_model", "parameter_size", "quantization_level"), "")
    family = served.model_type
    return {**unknown, "format": "openvino", "family": family, "families": [family]}


def models(served: Served) -> Json:
    """The model by each name, as there is and as loaded. Clients shorten the digest."""
    shared = {
        "details": _details(served),
        "context_length": served.max_length,
        "modified_at": as_time(served.started),
        "expires_at": as_time(NEVER),
        **dict.fromkeys(("size", "size_vram"), 0),
    }
    digests = {name: sha256(name.encode()).hexdigest() for name in served.names}
    return {"models": [{"name": k, "model": k, "digest": v, **shared} for k, v in digests.items()]}


class Show(Query):
    """The model to describe. name: what older clients send for `model`."""

    name: str | None = None
    verbose: bool | None = None

    def answer(self, served: Served) -> Json:
        """What it is, and what its template can do."""
        check_model(self.name, served.names)
        template, family = served.tokenizer.chat_template or "", served.model_type
        form = read_format(served.tokenizer, *served.parsers)
        able = {
            "completion": True,
            "tools": form.calls and "tools" in template,
            "thinking": form.reasoning and template,
            "insert": "suffix" in template,
        }
        return {
            "details": _details(served),
            "template": template,
            **dict.fromkeys(("modelfile", "parameters"), ""),
            "model_info": {
                "general.architecture": family,
                "general.basename": self.model or self.name or served.names[0],
                f"{family}.context_length": served.max_length,
            },
            "capabilities": [name for name, is_true in able.items() if is_true],
            "modified_at": as_time(served.started),
        }


class Managed(Query):
    """What is not done here: models to fetch, make or copy, and texts to embed."""

    def check(self, unknown: UnknownFields, where: str = "") -> None:  # noqa: ARG002
        """See `Body`."""
        started = "ov-specdec serve --main MODEL"
        raise invalid(None, f"one model is chosen at the start, to generate texts: {started}")


class Deleted(Managed):
    """Models are not removed here either."""

    method: ClassVar[str] = "DELETE"


MANAGED = ("pull", "push", "create", "copy", "embed", "embeddings")
OLLAMA = Dialect(
    error=error_body,
    prefix="/api",
    posts={
        "/api/chat": Generating(ChatRequest, OllamaAnswer),
        "/api/generate": Generating(GenerateRequest, OllamaAnswer),
        "/api/show": Show,
        "/api/delete": Deleted,
        **{f"/api/{name}": Managed for name in MANAGED},
    },
    pages={"/api/version": show_version, "/api/tags": models, "/api/ps": models},
    stream=Framing("application/x-ndjson", b""),
)
