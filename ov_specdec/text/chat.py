"""Chat templates: render messages as the text format that a model was trained on."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ov_specdec.checks import require_utf8
from ov_specdec.errors import ModelError, Option, OptionError
from ov_specdec.options import GenerationOptions
from ov_specdec.text.messages import Message

QUIET = "TRANSFORMERS_NO_ADVISORY_WARNINGS"


def render_chat(
    template: str,
    messages: Sequence[Message],
    special_tokens: Mapping[str, str],
    options: GenerationOptions,
) -> str:
    """Render a conversation with a model's Jinja template, as `apply_chat_template` does.

    special_tokens: by the names that templates use, such as `bos_token`. Raises `OptionError` for
    messages or options that the template refuses, and `ModelError` for a broken template.
    """
    _check_mentioned(template, options)
    try:
        text = _render(template, messages, special_tokens, options)
    except Exception as error:  # a template is code of its own, and may raise anything
        raise _explain(error, template, special_tokens, options) from error
    contents = [message.get("content") for message in messages]
    if any(isinstance(content, list | tuple) and str(content) in text for content in contents):
        raise OptionError(
            "the model's chat template takes contents as texts only, not as parts: give each "
            "message one text"
        )
    require_utf8("the rendered prompt", text)
    return text


def _check_mentioned(template: str, options: GenerationOptions) -> None:
    """Refuse an option that the template never mentions: it would have no effect."""
    given = [*(["tools"] if options.tools else []), *(options.chat_template_kwargs or {})]
    for name in given:
        if not re.search(rf"\b{re.escape(name)}\b", template):
            what = () if name == "tools" else (f"'{name}' of ",)
            option = Option("tools" if name == "tools" else "chat_template_kwargs")
            raise OptionError("the model's chat template ignores ", *what, option, ": leave it out")


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
