"""What is read from chat templates, and what is refused."""

import pickle
import re
from dataclasses import replace

import pytest

from ov_specdec.text.answer_format import (
    CALL_FORMATS,
    ID,
    INDEX,
    REASONING_FORMATS,
    ParameterFormat,
    ReasoningFormat,
)
from ov_specdec.text.format_probe import read_format
from tests.support.tools import TEMPLATES, Template

THINK = ReasoningFormat("<think>", "</think>", "\n\n")


def chat(answer, begin="<|assistant|>"):
    """A template by how it writes an answer `m`, without what ends it."""
    return (
        "{%- for tool in tools or [] %}{{ tool | tojson }}{% endfor %}{%- for m in messages %}"
        f"{{%- if m.role == 'user' %}}<|user|>{{{{ m.content }}}}{{% else %}}{begin}"
        f"{answer}<|end|>{{% endif %}}{{% endfor %}}"
        f"{{%- if add_generation_prompt %}}{begin}{{% endif %}}"
    )


def calls(call, opening="", separator="", closing=""):
    """A template by how it writes a call of the function `f`."""
    return chat(
        "{{ m.content }}{% if m.tool_calls %}" + opening + "{% for c in m.tool_calls %}"
        "{% set f = c.function %}{% if not loop.first %}" + separator + "{% endif %}"
        f"{call}{{% endfor %}}{closing}{{% endif %}}"
    )


JSON = '{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}'
TAGGED = (
    "<call={{ f.name }}>{% for k, v in f.arguments | items %}<arg={{ k }}>"
    "{{ v if v is string else v | tojson }}</arg>{% endfor %}</call>"
)


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_formats_of_qwen_are_those_of_vllm_s_names(name):
    form = read_format(Template(TEMPLATES[name], "<think>", "</tool_call>", "<s>", "name", " "))
    known = CALL_FORMATS[{"hermes": "hermes", "coder": "qwen3_coder"}[name]]
    assert not form.reason
    if known.parameters is None:
        assert form.calls == known
    else:
        assert form.calls.parameters.words == ("true", "false")
        assert form.calls.parameters.after == "\n</arg>\n"
    assert form.reasoning == THINK
    assert form.tokens == {"<think>": 0, "</tool_call>": 1}
    assert replace(form, calls=None).tokens == {"<think>": 0}
    assert pickle.loads(pickle.dumps(form)) == form  # noqa: S301 - of our own


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (
            calls(JSON, "<calls>[", ", ", "]</calls>"),
            {"opening": "<calls>[", "separator": ", ", "closing": "]</calls>", "after": "}"},
        ),
        (
            calls("<call>{{ f.name }}<args>{{ f.arguments | tojson(separators=(',', ':')) }}"),
            {"before": "<call>", "middle": "<args>", "after": "", "separators": (",", ":")},
        ),
        (
            calls("{% if loop.first %}" + JSON + "{% endif %}"),
            {"separator": None, "before": '{"name": "', "after": "}"},
        ),
        (
            calls("<c>{{ c.id }}>{{ f.name }}:{{ loop.index0 }}<a>{{ f.arguments | tojson }}</a>"),
            {"before": f"<c>{ID}>", "middle": f":{INDEX}<a>", "after": "</a>"},
        ),
        (
            calls("\n\n<c>{{ loop.index }}>{{ f.name }}<a>{{ f.arguments | tojson }}</a>"),
            {"before": f"<c>{INDEX}>", "gap": "\n", "separator": "\n"},
        ),
        (
            calls(TAGGED),
            {"parameters": ParameterFormat("<arg=", (">", ">"), "</arg>"), "after": "</call>"},
        ),
        (
            calls(
                TAGGED.replace(
                    "else v | tojson", "else v | tojson if v is iterable else v"
                ).replace("}}>{{ v", "}} text={{ v is string }}>{{ v")
            ),
            {
                "parameters": ParameterFormat(
                    "<arg=", (" text=True>", " text=False>"), "</arg>", ("True", "False")
                )
            },
        ),
    ],
)
def test_formats_of_our_own(template, expected):
    form = read_format(Template(template))
    assert not form.reason
    assert {name: getattr(form.calls, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (chat("{{ m.content }}"), "does not write the names and arguments of calls"),
        (chat("{{ m.content }}").replace("tools", "x"), "does not name tools"),
        (calls("{{ f.arguments.no.thing }}"), "cannot render calls .*has no attribute 'no'"),
        (calls("<|end|><call>" + JSON), "writes calls after the end of the answer"),
        (calls("to={{ f.name }} {{ f.arguments | tojson }}"), "does not mark the beginning"),
        (calls(JSON, "<calls>["), "does not mark the beginning and the end"),
        (calls(JSON, separator=" and "), "does not mark the beginning and the end"),
        (calls(TAGGED.replace(" | tojson", "")), "writes calls that cannot be read back"),
        (
            calls(TAGGED.replace("}}>{{ v", "}} n={{ v | string | length }}>{{ v")),
            "writes calls that cannot be read back",
        ),
        (calls(TAGGED.replace("v if", "v | trim if")), "writes calls that cannot be read back"),
    ],
)
def test_other_formats_are_refused_with_a_reason(template, reason):
    form = read_format(Template(template))
    assert re.match(f"its chat template {reason}", form.reason)
    assert form.calls is None


THOUGHT = "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"


@pytest.mark.parametrize(
    ("answer", "begin", "expected"),
    [
        (THOUGHT + "{{ m.content }}", "<|assistant|>", ReasoningFormat("<think>", "</think>")),
        (
            "{% if m.reasoning %}{{ m.reasoning }}\n[DONE]\n{% endif %}{{ m.content }}",
            "<|assistant|>{% if not m %}Thinking:\n{% endif %}",
            ReasoningFormat("Thinking:", "[DONE]"),
        ),
        ("{{ m.content.split('</think>')[-1] }}", "<|assistant|>", THINK),
        ("{{ m.content }}", "<|assistant|>", None),
        ("{{ m.reasoning }} so {{ m.content }}", "<|assistant|>", None),
        (
            "{% if m.reasoning %}{{ m.reasoning }}<|end|>to user{% endif %}{{ m.content }}",
            "<|assistant|>",
            None,
        ),
    ],
)
def test_the_markers_of_reasoning(answer, begin, expected):
    template = Template(chat(answer, begin))
    assert read_format(template).reasoning == expected
    assert read_format(template, reasoning_parser="none").reasoning is None


def test_a_prompt_has_begun_or_ended_the_reasoning():
    assert THINK.is_open("a</think>b<|assistant|><think>\n")
    assert THINK.is_open("a <think> b") is False
    assert THINK.is_open("<think>\n\n</think>\n\n") is None


@pytest.mark.parametrize("name", CALL_FORMATS)
def test_known_names_need_no_template(name):
    form = read_format(Template("{{ messages[0].content }}", "<tool_call>"), name, name)
    assert (form.calls, form.reasoning) == (CALL_FORMATS[name], REASONING_FORMATS[name])
    assert not form.reason
    assert not read_format(Template(calls(JSON)), "none", "none").calls
