"""Messages in chat templates: what transformers makes of them, and what is refused."""

import json

import pytest
from transformers import AutoTokenizer

from ov_specdec.errors import OptionError
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.text import chat_template
from ov_specdec.text.chat_template import ROLE_ELSE
from ov_specdec.text.tokenizer import load_tokenizer
from tests.support.chats import (
    ANSWER,
    CONVERSATIONS,
    KINDS,
    PLAIN,
    SYSTEM,
    TEMPLATES,
    USER,
    ids,
    make_tokenizer,
)
from tests.support.tiny import save_tokenizer

SCHEMA = {"type": "function", "function": {"name": "area", "parameters": {"type": "object"}}}
PARTS = {"role": "user", "content": [{"type": "text", "text": t} for t in ("Hello,", "you")]}


def area(width: int, height: int) -> int:
    """Computes an area.

    Args:
        width: Its width.
        height: Its height.
    """
    return width * height


@pytest.fixture
def tokenizer(tmp_path):
    return make_tokenizer(tmp_path / "model")


def text(tokenizer, messages, **options):
    return tokenizer.render_chat(messages, GenerationOptions(**options))


def expected(tokenizer, messages, *, add_generation_prompt=True, **options):
    """The ids that transformers makes."""
    reference = AutoTokenizer.from_pretrained(tokenizer.path)
    return reference.apply_chat_template(
        messages, return_dict=False, add_generation_prompt=add_generation_prompt, **options
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("template", ["plain", "strips"])
@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_messages_become_the_ids_that_transformers_makes(kind, template, conversation, tmp_path):
    tokenizer = make_tokenizer(tmp_path / "model", kind=kind, template=TEMPLATES[template])
    messages = CONVERSATIONS[conversation]
    assert ids(tokenizer, messages) == expected(tokenizer, messages)


def test_the_options_of_a_template_are_those_of_transformers(tmp_path):
    tokenizer = make_tokenizer(tmp_path / "model", template=TEMPLATES["tools"])
    messages = [SYSTEM, USER, ANSWER]
    for given in ({"continue_final_message": True}, {"add_generation_prompt": False}):
        assert ids(tokenizer, messages, **given) == expected(
            tokenizer, messages, **{"add_generation_prompt": False, **given}
        )
    for tools in ([SCHEMA], [area]):
        assert ids(tokenizer, messages, tools=tools) == expected(tokenizer, messages, tools=tools)
    thinking = {"enable_thinking": False}
    assert ids(tokenizer, "Hello", chat_template_kwargs=thinking) == expected(
        tokenizer, [{"role": "user", "content": "Hello"}], **thinking
    )


@pytest.mark.parametrize("place", ["additional_chat_templates", "tokenizer_config.json"])
def test_tools_take_the_template_for_them(place, tmp_path):
    named = {"default": PLAIN, "tool_use": "{{ tools | length }} tools"}
    save_tokenizer(tmp_path)
    if place == "tokenizer_config.json":
        settings = json.loads((tmp_path / place).read_text())
        settings["chat_template"] = [{"name": k, "template": v} for k, v in named.items()]
        (tmp_path / place).write_text(json.dumps(settings))
    else:
        (tmp_path / "chat_template.jinja").write_text(named["default"], encoding="utf-8-sig")
        (tmp_path / place).mkdir()
        (tmp_path / place / "tool_use.jinja").write_text(named["tool_use"])
    tokenizer = load_tokenizer(tmp_path)
    assert text(tokenizer, [USER], tools=[SCHEMA]) == "1 tools"
    assert text(tokenizer, [USER]).startswith("<eos>user")


def test_a_file_may_take_the_place_of_the_models_template(tmp_path):
    own = make_tokenizer(tmp_path / "model", template=TEMPLATES["tools"])
    file = tmp_path / "mine.jinja"
    template = "{% for message in messages %}[{{ message.content }}]{% endfor %}"
    file.write_text(template, encoding="utf-8-sig")
    tokenizer = load_tokenizer(own.path, file)
    assert text(tokenizer, [USER, ANSWER]) == f"[{USER['content']}][{ANSWER['content']}]"
    with pytest.raises(OptionError, match=r"chat_template='.*none' cannot be read \(") as refused:
        load_tokenizer(own.path, tmp_path / "none")
    assert refused.value.option == "chat_template"
    file.write_text("{% for message in messages %}")
    with pytest.raises(OptionError, match=r"cannot be read \(Unexpected end") as refused:
        load_tokenizer(own.path, file)
    assert refused.value.option == "chat_template"


def test_parts_of_a_content_are_lines_unless_the_template_takes_them(tmp_path):
    takes = make_tokenizer(tmp_path / "takes", template=TEMPLATES["parts"])
    assert ids(takes, [PARTS]) == ids(takes, "Hello,you") == expected(takes, [PARTS])
    dropping = PLAIN.replace("m['content']", "m['content'] if m['content'] is string")
    for name, template in {**TEMPLATES, "dropping": dropping}.items():
        if name != "parts":
            tokenizer = make_tokenizer(tmp_path / name, template=template)
            assert ids(tokenizer, [PARTS]) == ids(tokenizer, "Hello,\nyou")


LOOP = "{% for part in m.content %}{{ part.text }}{% endfor %}"
IN_PARTS = {
    "loop": LOOP,
    "filter": "{{ m.content | map(attribute='text') | join }}",
    "user": "{% if m.role == 'user' %}" + LOOP + "{% else %}{{ m.content }}{% endif %}",
}
"""How templates of vision models write contents."""


@pytest.mark.parametrize("written", IN_PARTS.values(), ids=IN_PARTS)
def test_a_template_that_takes_only_parts_gets_them(written, tmp_path, tokenizer):
    template = PLAIN.replace("{{ m['content'] }}", written)
    own = make_tokenizer(tmp_path / "own", template=template)
    result = {"role": "tool", "content": "12"}
    for messages in ([USER], [SYSTEM, USER, ANSWER, USER], [USER, ANSWER, result]):
        assert text(own, messages) == text(tokenizer, messages)
    assert ids(own, "Hello") == ids(tokenizer, "Hello")
    assert ids(own, [PARTS]) == ids(tokenizer, "Hello,you")


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_a_template_that_leaves_out_a_text_is_refused_by_name(role, tmp_path):
    template = PLAIN.replace("messages %}", f"messages if m.role != '{role}' %}}")
    tokenizer = make_tokenizer(tmp_path / "model", template=template)
    messages = {
        each["role"]: each for each in (SYSTEM, USER, ANSWER, {"role": "tool", "content": "12"})
    }
    others = [message for name, message in messages.items() if name != role]
    assert text(tokenizer, others).count("<eos>") == 7
    for content in ("Hello", PARTS["content"]):
        with pytest.raises(OptionError, match=f"leaves out the text of (later )?{role} messages"):
            text(tokenizer, [*others, {"role": role, "content": content}])


def test_a_text_that_is_written_for_this_request_only_is_none_that_is_left_out(tmp_path):
    written = "{% if m['role'] != 'system' or detailed is defined %}{{ m['content'] }}{% endif %}"
    tokenizer = make_tokenizer(
        tmp_path / "model", template=PLAIN.replace("{{ m['content'] }}", written)
    )
    with pytest.raises(OptionError, match="leaves out the text of system messages"):
        text(tokenizer, [SYSTEM, USER])
    assert SYSTEM["content"] in text(
        tokenizer, [SYSTEM, USER], chat_template_kwargs={"detailed": True}
    )


def test_of_several_parts_none_is_left_out(tmp_path):
    first = PLAIN.replace(
        "{{ m['content'] }}",
        "{{ m['content'] if m['content'] is string else m['content'][0]['text'] }}",
    )
    tokenizer = make_tokenizer(tmp_path / "model", template=first)
    assert ids(tokenizer, [PARTS]) == ids(tokenizer, "Hello,\nyou")


def test_a_template_that_refuses_a_role_says_so_itself(tmp_path):
    tokenizer = make_tokenizer(tmp_path / "model", template=TEMPLATES["refuses"])
    with pytest.raises(OptionError, match=r"these messages \(System role not supported\)"):
        ids(tokenizer, [SYSTEM, USER])
    assert ids(tokenizer, [USER, ANSWER, USER])


@pytest.mark.parametrize("role", ["usr", "m"])
def test_a_role_that_the_template_does_not_name_is_refused(tmp_path, tokenizer, role):
    typo = {"role": role, "content": "Hello"}
    message = f"does not name the role '{role}': give one of system, user, assistant"
    with pytest.raises(OptionError, match=message):
        ids(tokenizer, [USER, typo])
    knows = "{% for m in messages if m['role'] in ('user', 'critic') %}{{ m['content'] | upper }}"
    tokenizer = make_tokenizer(tmp_path / "knows", template=knows + "{% endfor %}")
    assert text(tokenizer, [USER, {"role": "critic", "content": "No"}]).endswith("?NO")
    with pytest.raises(OptionError, match=message):
        ids(tokenizer, [typo])


@pytest.mark.parametrize(
    "broken", ["{{ 1 / 0 }}", "{{ messages[0] ", "{{ messages[0]['a']['b'] }}"]
)
def test_a_template_that_cannot_be_rendered_says_why(broken, tmp_path):
    tokenizer = make_tokenizer(tmp_path / "model", template=broken)
    with pytest.raises(OptionError, match=r"cannot render .*, repair chat_template\.jinja"):
        ids(tokenizer, [USER])


def nested(only=""):
    """A template of two loops, the inner one over those that `only` names."""
    inner = f"{{% for j in range(99999) {only} %}}{{% endfor %}}"
    return f"{{% for i in range(99999) %}}{inner}{{% endfor %}}"


ENDLESS = {
    "loops": nested(),
    "loops with a condition": nested("if j < 0"),
    "a macro": "{% macro f(n) %}{{ f(n-1) ~ f(n-1) if n }}{% endmacro %}{{ f(60) }}",
    "a call": "{% macro f() %}{{ caller() ~ caller() }}{% endmacro %}{% macro g(n) %}"
    "{% call f() %}{{ g(n-1) if n }}{% endcall %}{% endmacro %}{{ g(60) }}",
    "an answer": "{% generation %}" + nested() + "{% endgeneration %}",
}


@pytest.mark.parametrize("template", ENDLESS.values(), ids=ENDLESS)
def test_a_template_that_runs_for_ever_is_ended(template, tmp_path, monkeypatch):
    monkeypatch.setattr(chat_template, "MAX_SECONDS", 0.05)
    tokenizer = make_tokenizer(tmp_path / "model", template=template)
    with pytest.raises(OptionError, match=r"cannot render .* \(it takes over 0.05 s\)"):
        text(tokenizer, [USER])
    good = make_tokenizer(tmp_path / "other", template="{{ messages[0].content }}")
    only_then = f"{{% if messages[1:] %}}{template}{{% endif %}}{{{{ messages[0].content }}}}"
    tokenizer = make_tokenizer(tmp_path / "third", template=only_then)
    assert text(tokenizer, [USER]) == text(good, [USER])
    with pytest.raises(OptionError, match=r"these messages \(it takes over 0.05 s\): change them"):
        text(tokenizer, [USER, ANSWER])


def test_no_argument_of_a_template_stops_its_clock(tmp_path, monkeypatch):
    monkeypatch.setattr(chat_template, "MAX_SECONDS", 0.05)
    tokenizer = make_tokenizer(
        tmp_path / "model", template=f"{{# {chat_template.STEP} #}}{ENDLESS['loops']}"
    )
    with pytest.raises(OptionError, match="it takes over"):
        text(tokenizer, [USER], chat_template_kwargs={chat_template.STEP: "mine"})


def test_messages_that_a_good_template_cannot_render_are_named(tmp_path):
    template = "{{ messages[-1]['content'] }}{% if messages[1:] %}{{ messages[1].a.b }}{% endif %}"
    tokenizer = make_tokenizer(tmp_path / "model", template=template)
    with pytest.raises(OptionError, match=r"cannot render these messages \(.*has no attribute"):
        ids(tokenizer, [USER, ANSWER])
    loud = make_tokenizer(
        tmp_path / "other", template=PLAIN.replace("['content']", ".content | upper")
    )
    with pytest.raises(OptionError, match="continue_final_message is set but"):
        ids(loud, [USER, ANSWER], continue_final_message=True)


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([], None),
        ([USER, "Hello"], r"messages\[1\] is 'Hello'"),
        ([{"content": "Hello"}], r"messages\[0\] has no role"),
        ([{"role": 3, "content": "Hello"}], r"messages\[0\] has the role 3"),
        ([USER, {"role": "user"}], r"messages\[1\] has no content"),
        ([{"role": "user", "content": 3}], r"messages\[0\] has the content 3"),
        ([{"role": "user", "content": ["Hello"]}], r"holds the part 'Hello'"),
        ([{"role": "user", "content": [{"type": "text"}]}], r"the part \{'type': 'text'\}"),
        ([{"role": "user", "content": "ab\udcff"}], r"messages\[0\] is not valid .* character 2"),
        ([{"role": "assistant", "tool_calls": "area"}], r"has the tool_calls 'area'"),
        ([{"role": "assistant", "tool_calls": ["area"]}], r"has the tool_calls \['area'\]"),
        (
            [USER, {"role": "tool", "tool_call_id": ["a"], "content": "4"}],
            r"messages\[1\] is the re",
        ),
        ([{"role": "a\udcff", "content": "ab"}], r"does not name the role 'a\\udcff'"),
    ],
)
def test_bad_messages_are_refused_in_one_line(messages, complaint, tokenizer):
    if complaint is None:
        assert ids(tokenizer, messages) == []  # as any empty prompt
        return
    with pytest.raises(OptionError, match=complaint) as error:
        ids(tokenizer, messages)
    assert "\n" not in str(error.value)


def test_messages_need_a_template(tmp_path, tokenizer):
    save_tokenizer(tmp_path)
    with pytest.raises(OptionError, match=r"no chat template .* give the prompt as one text"):
        ids(load_tokenizer(tmp_path), [USER])
    with pytest.raises(OptionError, match="apply_chat_template=False: leave it out"):
        ids(tokenizer, [USER], apply_chat_template=False)


@pytest.mark.parametrize(
    "option",
    [
        {"tools": [SCHEMA]},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"add_generation_prompt": True},
        {"continue_final_message": True},
    ],
    ids=str,
)
def test_no_option_of_a_template_is_dropped(option, tmp_path):
    save_tokenizer(tmp_path)
    without = load_tokenizer(tmp_path)
    tokenizer = make_tokenizer(tmp_path / "model", template=TEMPLATES["tools"])
    (name,) = option
    for model, prompt in ((without, "Hello"), (without, [5, 6]), (tokenizer, [5, 6])):
        with pytest.raises(OptionError, match=f"{name} has no effect on a prompt that is not put"):
            ids(model, prompt, **option)
    with pytest.raises(
        OptionError, match=f"{name}=.* has no effect with apply_chat_template=False"
    ):
        GenerationOptions(apply_chat_template=False, **option)


def test_results_of_calls_have_the_order_of_these(tokenizer):
    calls = [{"id": id_, "function": {"name": "area", "arguments": {}}} for id_ in "abc"]
    told = {id_: {"role": "tool", "tool_call_id": id_, "content": id_.upper()} for id_ in "abc"}
    turn = [{"role": "assistant", "content": "", "tool_calls": calls}]
    named = lambda order: [told[each] for each in order]  # noqa: E731
    conversation = [USER, *turn, *named("cab"), USER, *turn, *named("ba")]
    ordered = [USER, *turn, *named("abc"), USER, *turn, *named("ab")]
    assert ids(tokenizer, conversation) == ids(tokenizer, ordered) != ids(tokenizer, ordered[:-1])
    without = [USER, *turn, *({"role": "tool", "content": each} for each in "CAB")]
    assert text(tokenizer, without).endswith(
        "C<eos>\n<eos>tool\nA<eos>\n<eos>tool\nB<eos>\n<eos>assistant\n"
    )


ALL = "{% for m in messages %}{{ m.role }}: {{ m.content }}; {% endfor %}"
RAISES = (
    "{% if m.role == 'system' and not loop.first %}{{ raise_exception('only first') }}{% endif %}"
)
SKIPS = RAISES.replace("{{ raise_exception('only first') }}", "{% continue %}")


@pytest.mark.parametrize("takes", [RAISES, SKIPS], ids=["raises", "skips"])
def test_the_first_messages_of_the_system_are_one_where_templates_take_one(takes, tmp_path):
    parts = [{"type": "text", "text": t} for t in ("b", "c")]
    messages = [SYSTEM, {"role": "system", "content": parts}, USER]
    own, other = SYSTEM["content"], USER["content"]
    takes_one = make_tokenizer(
        tmp_path / "one", template=ALL.replace("{{ m.role", takes + "{{ m.role")
    )
    assert text(takes_one, messages) == f"system: {own}\n\nb\nc; user: {other}; "
    takes_all = make_tokenizer(tmp_path / "all", template=ALL)
    assert text(takes_all, messages) == f"system: {own}; system: b\nc; user: {other}; "
    refused = "only first" if takes == RAISES else "leaves out the text of later system messages"
    with pytest.raises(OptionError, match=refused):
        text(takes_one, [USER, SYSTEM])
    later = [USER, {**SYSTEM, ROLE_ELSE: "user"}, USER]
    assert text(takes_one, later) == f"user: {other}; user: {own}; user: {other}; "
    assert text(takes_all, later) == f"user: {other}; system: {own}; user: {other}; "


@pytest.mark.parametrize(
    ("template", "effort", "rendered"),
    [
        ("{{ reasoning_effort }}{{ enable_thinking }}", "low", "lowTrue"),
        ("{{ reasoning_effort }}{{ enable_thinking }}", "none", "noneFalse"),
        ("{{ enable_thinking }}", "none", "False"),
        ("{{ enable_thinking }}", "low", "True"),
        ("{{ reasoning_effort }}{{ enable_thinking }}", "auto", "True"),
        ("{{ messages | length }}", "high", "1"),
    ],
)
def test_effort_reaches_templates_that_name_it(tmp_path, template, effort, rendered):
    tokenizer = make_tokenizer(tmp_path / "model", template="{{ messages[0].content }}" + template)
    asked = {"role": "user", "content": ""}
    assert text(tokenizer, [asked], reasoning_effort=effort) == rendered
    given = {"enable_thinking": True} if "enable_thinking" in template else None
    if effort == "none" and given:
        kept = text(tokenizer, [asked], reasoning_effort=effort, chat_template_kwargs=given)
        assert kept.endswith("True")
