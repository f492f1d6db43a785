"""Answers with reasoning and calls on scripted models, read as they come."""

import json
from functools import partial
from itertools import product

import numpy as np
import pytest
from jsonschema import validate

from ov_specdec.errors import OptionError
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.results.parts import (
    Arguments,
    CallBegin,
    CallEnd,
    Reasoning,
    Text,
    ToolCall,
)
from ov_specdec.text.tokenizer import load_tokenizer
from tests.support.structured import FOLDER, generate, generator, random_logits
from tests.support.tools import AREA, MARKERS, STOP, TEMPLATES, merged, with_tools

NOTE = {
    "type": "function",
    "function": {
        "name": "note",
        "parameters": {
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "lines": {"type": "array", "items": {"type": "integer"}},
            },
            "required": ["text", "lines"],
        },
    },
}
TOOLS = [NOTE, STOP]
SPELLED = "</tool_call>"
"""Written letter by letter, it is no marker."""

ANSWERS = {
    "hermes": [
        '{"name": "note", "arguments": {"text": "é\\n\\"',
        '\\"", "lines": [1, 2]}}',
        '{"name": "stop", "arguments": {}}',
    ],
    "coder": [
        '<function=note>\n<parameter=text>\né\n"',
        '"\n</parameter>\n<parameter=lines>\n[1, 2]\n</parameter>\n</function>',
        "<function=stop>\n</function>",
    ],
}
CALLS = [
    ("note", {"text": f'é\n"{SPELLED}"', "lines": [1, 2]}),
    ("stop", {}),
]


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    """By the name of their template."""
    return {
        name: load_tokenizer(*with_tools([FOLDER], tmp_path_factory.mktemp(name), template))
        for name, template in TEMPLATES.items()
    }


@pytest.fixture(params=TEMPLATES)
def form(request):
    return request.param


def answer_of(tokenizer, form):
    """The ids of an answer with reasoning, text and two calls."""
    first, rest, second = ANSWERS[form]
    encode = partial(tokenizer.encode, add_special_tokens=False)
    return [
        *encode("<think>\nIt is <3>.\n</think>\n\nLet me see:\n<tool_call>\n" + first),
        *(token for letter in SPELLED for token in encode(letter)),
        *encode(f"{rest}\n</tool_call>\n<tool_call>\n{second}\n</tool_call><eos>"),
    ]


def reciting(tokenizer, answer, *, start, wrong=()):
    """A script that answers a prompt that ends at `start`, but for some places of the answer."""

    def row(tokens):
        place = len(tokens) - start
        token = answer[place] if place < len(answer) else 0
        chosen = (token + (place in wrong)) % tokenizer.vocab_size
        return (np.arange(tokenizer.vocab_size) == chosen).astype("f4") * 30

    return row


def made_for(tokenizer, answer, options, *, wrong=(), **settings):
    """A generator that recites an answer, and drafts it with errors."""
    start = len(generator(tokenizer=tokenizer).encode("Hi", GenerationOptions(**options)))
    main, draft = (reciting(tokenizer, answer, start=start, wrong=w) for w in ((), wrong))
    return generator(main, draft=draft, tokenizer=tokenizer, **settings)


def seen(result):
    calls = [(call.name, json.loads(call.arguments)) for call in result.tool_calls]
    return result.text, result.reasoning, calls, result.finish_reason, merged(result.chunks)


def test_an_answer_is_read_as_its_parts(form, tokenizers):
    tokenizer = tokenizers[form]
    answer = answer_of(tokenizer, form)
    result = generate(made_for(tokenizer, answer, {"tools": TOOLS}), "Hi", tools=TOOLS)
    assert result.token_ids == answer
    assert seen(result)[:4] == ("Let me see:", "It is <3>.", CALLS, "tool_calls")
    kinds = [type(part) for part in seen(result)[4]]
    one = [CallBegin, Arguments, CallEnd]
    assert kinds == [Reasoning, Text, *one, *one]
    for chunk in result.chunks:
        assert chunk.text == "".join(p.text for p in chunk.parts if isinstance(p, Text))


def test_it_is_that_of_plain_decoding_wherever_a_marker_stands_in_a_draft(form, tokenizers):
    tokenizer = tokenizers[form]
    answer, options = answer_of(tokenizer, form), {"tools": TOOLS}
    plain = generate(made_for(tokenizer, answer, options), "Hi", **options, num_assistant_tokens=0)
    assert plain.token_ids == answer
    ids = {tokenizer.vocab[name] for name in MARKERS}
    markers = [place for place, token in enumerate(answer) if token in ids]
    assert len(markers) == 6
    for marker, shift, length in product(markers, range(-3, 3), (1, 2, 4)):
        made = made_for(tokenizer, answer, options, wrong={marker + shift})
        result = generate(made, "Hi", **options, num_assistant_tokens=length)
        assert result.token_ids == plain.token_ids
        assert seen(result) == seen(plain)
        assert result.stats.accepted > 10
