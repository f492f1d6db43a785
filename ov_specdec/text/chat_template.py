"""Messages in the form of transformers' chat templates: checked, and rendered by a template."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise, takewhile
from time import monotonic
from typing import Any

from ov_specdec.errors import Option, OptionError, shorten
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.options.model import require_utf8
from ov_specdec.options.structured import as_function

Message = Mapping[str, Any]
"""A "role" and its "content": a text, or a list of parts such as {"type": "text", "text": "Hello"}.
Other keys, such as "tool_calls", are passed to the template."""

MAX_SECONDS = 5.0
"""Maximum time of a rendering, which usually takes milliseconds."""

STEP = "_step"
"""Name of the function that `parse` inserts into templates."""

ROLES = ("system", "user", "assistant")
"""Roles that any template is expected to know."""

PROBES, KEY = ("5831074692", "2964701385"), "7460182953"
"""Texts, and a key of parts, that show how a template writes contents: none changes digits."""

ROLE_ELSE = "_role_else"
"""Key of the role that a message has instead, where a template takes no later system messages."""

ASKED: Message = {"role": "user", "content": "?"}
SEVERAL = [*({"role": "system", "content": probe} for probe in PROBES), ASKED]
CALLED = {"id": "aB3dE5gH7", "type": "function", "function": {"name": "f", "arguments": {}}}
AROUND: Mapping[str, tuple[list[Message], list[Message]]] = {
    "system": ([], [ASKED]),
    "later system": ([ASKED], [ASKED]),
    "assistant": ([ASKED], [ASKED]),
    "tool": ([ASKED, {"role": "assistant", "content": "", "tool_calls": [CALLED]}], []),
}
"""What conversations have before and after a message; other roles may be alone."""


def check_messages(messages: Sequence[object], paths: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The messages as dictionaries, results in the order of their calls: templates may drop ids.

    `OptionError` names the first invalid message by its path, or a result without its call.
    """
    paths = paths or [f"messages[{index}]" for index in range(len(messages))]
    checked = [*map(_check, paths, messages)]
    places, keys, turn = dict[str, tuple[int, ...]](), [], 0
    for index, message in enumerate(checked):
        call_id, place = message.get("tool_call_id"), tuple[int, ...]()
        if message["role"] != "tool":
            turn = index
            for number, call in enumerate(message.get("tool_calls") or ()):
                places[str(call.get("id"))] = index, number
        elif call_id and (place := places.get(str(call_id), ())) == ():
            raise OptionError(
                f"{{message}} is the result of {shorten(call_id)}, a call that no message before "
                "it has: give the id of one",
                message=Option(paths[index]),
            )
        keys.append((turn, place))
    return [checked[index] for index in sorted(range(len(keys)), key=keys.__getitem__)]


def _check(where: str, message: object) -> dict[str, Any]:
    def refuse(reason: str) -> OptionError:
        return OptionError(f"{{message}}{reason}", message=Option(where))

    if not isinstance(message, Mapping):
        raise refuse(
            f" is {shorten(message)}: each message must be a mapping with role and content"
        )
    role, content, calls = (message.get(name) for name in ("role", "content", "tool_calls"))
    if role is None:
        raise refuse(" has no role: give one, such as 'user'")
    if not isinstance(role, str) or not role:
        raise refuse(f" has the role {shorten(role)}: it must be a text, not empty")
    if content is None and (role != "assistant" or not calls):
        raise refuse(" has no content: give a text")
    if not isinstance(content, str | list | tuple | None):
        given = shorten(content)
        raise refuse(f" has the content {given}: it must be a text or a list of parts")
    for part in [{"type": "text", "text": content}] if isinstance(content, str) else content or ():
        is_text = isinstance(part, Mapping) and part.get("type") == "text"
        if not is_text or not isinstance(part.get("text"), str):
            raise refuse(
                f" holds the part {shorten(part)}: only parts such as "
                "{'type': 'text', 'text': '...'} can be used"
            )
        require_utf8("{message}", part["text"], message=Option(where))
    calls = calls or ()
    if not isinstance(calls, list | tuple) or not all(isinstance(c, Mapping) for c in calls):
        raise refuse(f" has the tool_calls {shorten(calls)}: they must be a list of mappings")
    return dict(message)


@dataclass(frozen=True)
class ChatTemplate:
    """A model's Jinja template. special_tokens: by the names it uses, such as `bos_token`."""

    text: str
    special_tokens: Mapping[str, str] = field(hash=False)

    def render(self, messages: Sequence[Message], options: GenerationOptions) -> str:
        """Render a conversation, as `apply_chat_template` does.

        Contents are given as the template takes them: as text, where parts are lines, as in vLLM,
        or in parts. The first messages of the system become one, unless it takes several. Raises
        `OptionError` for messages and options that it cannot render, ignores, or has no role for.
        """
        asked = [("chat_template_kwargs", name) for name in options.chat_template_kwargs or {}]
        for option, name in [("tools", "tools"), *asked] if options.tools else asked:
            if name not in self.text:
                raise OptionError(
                    f"{{option}}: the model's chat template ignores {shorten(name)}, leave it out",
                    option=Option(option),
                )
        first: list[Message] = [*takewhile(lambda message: message["role"] == "system", messages)]
        later = [self._placed(message) for message in messages[len(first) :]]
        if len(first) > 1 and not self.writes(GenerationOptions(), *SEVERAL):
            text = "\n\n".join(in_lines(message["content"]) for message in first)
            first = [{"role": "system", "content": text}]
        pairs = pairwise([{"role": "system"}, *first, *later])
        messages = [self._fitted(*pair, options) for pair in pairs]
        try:
            text = self._render(messages, options)
        except Exception as error:  # a template is code of its own, and may raise anything
            reason = " ".join(str(error).split())
            raise OptionError(
                f"the model's chat template cannot render these messages ({reason}): change them "
                "or the options, repair chat_template.jinja, or give the prompt with "
                "{apply_chat_template}",
                apply_chat_template=False,
            ) from error
        require_utf8("the rendered prompt", text)
        return text

    def _placed(self, message: Message) -> Message:
        """A message whose role the template takes in its place, if it has another one for that."""
        if (other := message.get(ROLE_ELSE)) is None:
            return message
        later = {"role": message["role"], "content": " ".join(PROBES)}
        is_taken = self.writes(GenerationOptions(), ASKED, later, ASKED)
        own = {key: value for key, value in message.items() if key != ROLE_ELSE}
        return own if is_taken else {**own, "role": other}

    def _fitted(self, previous: Message, message: Message, options: GenerationOptions) -> Message:
        """A message whose content is of a kind that the template takes."""
        content, role = message.get("content"), message["role"]
        is_named = any(f"{quote}{role}{quote}" in self.text for quote in "'\"")
        if role not in (*ROLES, "tool") and not is_named:  # many templates write any role
            raise OptionError(
                f"the model's chat template does not name the role {shorten(role)}: give one of "
                f"{', '.join(ROLES)}"
            )
        if content is None:
            return message
        place = "later system" if role == "system" != previous["role"] else role
        kinds, text = content_kinds(self, place), in_lines(content)
        # Some texts are written only where there are tools, for example.
        if text and not (kinds := kinds or kinds_with(self, place, options)):
            raise OptionError(
                f"the model's chat template leaves out the text of {place} messages: repair "
                "chat_template.jinja, or give the prompt with {apply_chat_template}",
                apply_chat_template=False,
            )
        if (str if isinstance(content, str) else list) in kinds:
            return message
        return {**message, "content": text if str in kinds else [{"type": "text", "text": text}]}

    def writes(self, options: GenerationOptions, *messages: Message) -> bool | None:
        """Whether it writes the `PROBES` in these messages; None if it cannot render them."""
        try:
            text = self._render(messages, options)
        except Exception:  # a template is code of its own
            return None
        return all(probe in text for probe in PROBES) and KEY not in text

    def _render(self, messages: Sequence[Message], options: GenerationOptions) -> str:
        # Which advise to install torch.
        os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
        from transformers.utils.chat_template_utils import render_jinja_template

        begins_answer = options.add_generation_prompt
        if begins_answer is None:
            begins_answer = not options.continue_final_message
        effort = options.reasoning_effort
        thinks = None if effort is None else effort != "none"
        named = None if effort == "auto" else effort
        meant = {"reasoning_effort": named, "enable_thinking": thinks}
        known = {k: value for k, value in meant.items() if value is not None and k in self.text}
        end = monotonic() + MAX_SECONDS

        def step() -> bool:
            if monotonic() > end:
                raise TimeoutError(f"it takes over {MAX_SECONDS:g} s")
            return True

        given = options.chat_template_kwargs or {}
        rendered: str = render_jinja_template(
            conversations=[[dict(message) for message in messages]],
            chat_template=parse(self.text),
            tools=[as_function(tool) for tool in options.tools] or None,
            add_generation_prompt=begins_answer,
            continue_final_message=options.continue_final_message,
            **{**self.special_tokens, **known, **given, STEP: step},
        )[0][0]
        return rendered


def in_lines(content: Any) -> str:
    """A content as one text."""
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


@lru_cache
def content_kinds(template: ChatTemplate, place: str) -> tuple[type, ...]:
    """What contents it writes: texts (str), parts (list). place: a role, or one of `AROUND`."""
    return kinds_with(template, place, GenerationOptions())


def kinds_with(template: ChatTemplate, place: str, options: GenerationOptions) -> tuple[type, ...]:
    """The same for a request that has the tools and template arguments of these options."""
    given = options.chat_template_kwargs
    asked = GenerationOptions(tools=options.tools, chat_template_kwargs=given)
    before, after = AROUND.get(place, ([], []))
    role = place.removeprefix("later ")
    parts = [{"type": "text", "text": probe, KEY: ""} for probe in PROBES]
    of_text, of_parts = (
        template.writes(asked, *before, {"role": role, "content": content}, *after)
        for content in (" ".join(PROBES), parts)
    )
    if of_text is None and not of_parts:  # it tells why, once it renders
        return (str,)
    return (str,) * bool(of_text) + (list,) * bool(of_parts)


@lru_cache
def parse(template: str) -> Any:
    """A template, parsed as by transformers, that calls `STEP` in all that may repeat."""
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """Transformers' tag around answers, which has no effect on the text."""

        tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

        def parse(self, parser: Any) -> list[nodes.Node]:
            next(parser.stream)
            found: list[nodes.Node] = parser.parse_statements(["name:endgeneration"], True)
            return found

    def step() -> nodes.Call:
        return nodes.Call(nodes.Name(STEP, "load"), [], [], None, None)

    parsed = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    ).parse(template)
    each: Any
    for each in parsed.find_all((nodes.For, nodes.Macro, nodes.CallBlock, nodes.Block)):
        each.body.insert(0, nodes.ExprStmt(step()))
        if isinstance(each, nodes.For) and each.test is not None:
            each.test = nodes.And(step(), each.test)
    return parsed
