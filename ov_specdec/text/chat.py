"""Chat templates: render messages as the text format that a model was trained on."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ov_specdec.checks import require_utf8
from ov_specdec.errors import ModelError, Option, OptionError, shorten
from ov_specdec.options import GenerationOptions
from ov_specdec.text.messages import Message, has_parts, join_parts

QUIET = "TRANSFORMERS_NO_ADVISORY_WARNINGS"

ROLES = ("system", "user", "assistant")
"""Roles that any template is expected to know."""


def render_chat(
    template: str,
    messages: Sequence[Message],
    special_tokens: Mapping[str, str],
    options: GenerationOptions,
) -> str:
    """Render a conversation with a model's Jinja template, as `apply_chat_template` does.

    The parts of a content become lines of one text, as in vLLM, unless the template takes parts.
    special_tokens: by the names that templates use, such as `bos_token`. Raises `OptionError` for
    messages or options that the template refuses or ignores, and `ModelError` for a broken one.
    """
    _check_mentioned(template, options)
    if any(map(has_parts, messages)) and not _takes_parts(template, special_tokens):
        messages = [join_parts(message) for message in messages]
    try:
        text = _render(template, messages, special_tokens, options)
    except Exception as error:  # a template is code of its own, and may raise anything
        raise _explain(error, template, special_tokens, options) from error
    _check_roles(template, messages, text)
    require_utf8("the rendered prompt", text)
    return text


def _check_mentioned(template: str, options: GenerationOptions) -> None:
    """Refuse an option that the template never mentions: it would have no effect."""
    ignored = "the model's chat template ignores: leave it out"
    if options.tools and not _mentions(template, "tools"):
        raise OptionError(Option("tools"), f" names functions, which {ignored}")
    for name in options.chat_template_kwargs or {}:
        if not _mentions(template, name):
            raise OptionError(
                Option("chat_template_kwargs"), f" contains {shorten(name)}, which {ignored}"
            )


def _takes_parts(template: str, special_tokens: Mapping[str, str]) -> bool:
    """Whether a template renders the text of a part in the messages of all roles."""
    parts = {role: {"type": "text", "text": f"part of the {role}"} for role in ROLES}
    messages = [{"role": role, "content": [part]} for role, part in parts.items()]
    try:
        text = _render(template, messages, special_tokens, GenerationOptions())
    except Exception:  # a template is code of its own
        return False
    return all(part["text"] in text and str(part) not in text for part in parts.values())


def _check_roles(template: str, messages: Sequence[Message], text: str) -> None:
    """Refuse a role that the template does not know, if it has left the message out."""
    position = 0
    for message in messages:
        role, content = message["role"], message.get("content")
        if role in (*ROLES, "tool") or not isinstance(content, str) or _mentions(template, role):
            continue
        position = text.find(content.strip(), position)
        if position < 0:
            raise OptionError(
                f"the model's chat template leaves out messages of the role {shorten(role)}: give "
                f"one of {', '.join(ROLES)}"
            )


def _mentions(template: str, name: str) -> bool:
    if name not in template:  # spares an expression for each name that a request makes up
        return False
    return re.search(rf"\b{re.escape(name)}\b", template) is not None


def _render(
    template: str,
    messages: Sequence[Message],
    special_tokens: Mapping[str, str],
    options: GenerationOptions,
) -> str:
    with _without_advice():
        from transformers.utils.chat_template_utils import render_jinja_template

    rendered: str = render_jinja_template(
        conversations=[[dict(message) for message in messages]],
        chat_template=template,
        tools=[dict(tool) if isinstance(tool, Mapping) else tool for tool in options.tools] or None,
        add_generation_prompt=options.begins_answer,
        continue_final_message=options.continue_final_message,
        **{**special_tokens, **(options.chat_template_kwargs or {})},
    )[0][0]
    return rendered


def _explain(
    error: Exception, template: str, special_tokens: Mapping[str, str], options: GenerationOptions
) -> Exception:
    """The error for a failed rendering: whether messages or template are at fault, and a remedy."""
    from jinja2.exceptions import TemplateError

    reason = " ".join(str(error).split())
    if type(error) is TemplateError:  # its subclasses are errors in a template
        return OptionError(
            f"the model's chat template refuses these messages ({reason}): change them"
        )
    if _is_broken(template, special_tokens):
        return ModelError(
            f"the model's chat template cannot be rendered ({reason}): repair chat_template.jinja, "
            "or give the prompt with ",
            Option("apply_chat_template", False),
        )
    if options.continue_final_message and isinstance(error, ValueError):
        return OptionError(
            Option("continue_final_message", True),
            " needs the final message as it is, and the model's chat template changes or drops it: "
            "leave it out",
        )
    return OptionError(
        f"the model's chat template cannot render these messages ({reason}): change them, or the "
        "options that it is given"
    )


def _is_broken(template: str, special_tokens: Mapping[str, str]) -> bool:
    """Whether a template fails on the simplest conversation with anything but a refusal."""
    from jinja2.exceptions import TemplateError

    try:
        _render(template, [{"role": "user", "content": "x"}], special_tokens, GenerationOptions())
    except Exception as error:  # as above
        return type(error) is not TemplateError
    return False


@contextmanager
def _without_advice() -> Iterator[None]:
    """Silence the advice to install torch that transformers prints on import."""
    before = os.environ.get(QUIET)
    os.environ[QUIET] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(QUIET, None)  # another thread may have done so
        else:
            os.environ[QUIET] = before
