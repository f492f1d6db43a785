"""Chat templates: messages as the one text that a model was trained to read."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ov_specdec.errors import ModelError

QUIET = "TRANSFORMERS_NO_ADVISORY_WARNINGS"


def render_chat(
    template: str, messages: Sequence[dict[str, Any]], special_tokens: Mapping[str, Any]
) -> str:
    """A conversation in a model's Jinja template, up to where the answer begins.

    special_tokens: by the names that templates use, such as `bos_token`. Raises `ModelError` for a
    template that cannot be rendered.
    """
    with _without_advice():
        from transformers.utils.chat_template_utils import render_jinja_template

    try:
        rendered: str = render_jinja_template(
            conversations=[list(messages)],
            chat_template=template,
            add_generation_prompt=True,
            **special_tokens,
        )[0][0]
    except Exception as error:  # a template is code of its own, and may raise anything
        raise ModelError(
            f"the model's chat template cannot be rendered ({error}): repair chat_template.jinja, "
            "or give the prompt with apply_chat_template=False"
        ) from error
    return rendered


@contextmanager
def _without_advice() -> Iterator[None]:
    """Keep transformers from advising, when it is imported, to install torch."""
    before = os.environ.get(QUIET)
    os.environ[QUIET] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[QUIET]
        else:
            os.environ[QUIET] = before
