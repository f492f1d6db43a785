"""Answers about the server: its models, health and version."""

from typing import Literal

from ov_specdec.openai.part import Part


class BatchInvariant(Part):
    """Whether a text depends only on model and request, and the reason."""

    is_on: bool
    is_checked: bool
    reason: str


class Model(Part):
    """A model that is served. chat_template: whether it takes messages."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "ov-specdec"
    max_model_len: int
    chat_template: bool
    batch_invariant: BatchInvariant


class ModelList(Part):
    """The models that are served."""

    object: Literal["list"] = "list"
    data: list[Model]


class Health(Part):
    """Answer of /health."""

    status: Literal["ok"] = "ok"


class Endpoints(Part):
    """What the server offers: its paths, and the page that describes them."""

    name: Literal["ov-specdec"] = "ov-specdec"
    endpoints: list[str]
    documentation: Literal["/docs"] = "/docs"


class Version(Part):
    """Answer of /version."""

    version: str
