"""Answers with reasoning and calls on scripted models, read as they come."""

import json
from functools import partial
from itertools import product

import numpy as np
import pytest

from ov_specdec.errors import OptionError
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.results.parts import Arguments, CallBegin, CallEnd, Reasoning, Text
from ov_specdec.text.detokenizer import IncrementalDetokenizer
from ov_specdec.text.tokenizer import load_tokenizer
from tests.support.structured import FOLDER, generate, generator
from tests.support.tools import MARKERS, STOP, TEMPLATES, function, merged, with_tools

LINES = {"type": "array", "items": {"type": "integer"}}
NOTE = function("note", {"text": {"type": "string"}, "lines": LINES})
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
        '<function=note>\n<arg=text>\né\n"',
        '"\n</arg>\n<arg=lines>\n[1, 2]\n</arg>\n</function>',
        "<function=stop>\n</function>",
    ],
}
CALLS = [("note", {"text": f'é\n"{SPELLED}"', "lines": [1, 2]}), ("stop", {})]


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    """By the name of their template. Of one, the markers are special tokens, as Mistral's are."""
    return {
        name: load_tokenizer(
            *with_tools([FOLDER], tmp_path_factory.mktemp(name), template, special=name == "coder")
        )
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


def made_for(tokenizer, answer, options, *, wrong=(), prompt="Hi", **settings):
    """A generator that recites an answer, and drafts it with errors."""
    start = len(generator(tokenizer=tokenizer).prompts.encode(prompt, GenerationOptions(**options)))
    main, draft = (reciting(tokenizer, answer, start=start, wrong=w) for w in ((), wrong))
    return generator(main, draft=draft, tokenizer=tokenizer, **settings)


def seen(result):
    calls = [(call.name, json.loads(call.arguments)) for call in result.tool_calls if call.is_whole]
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
    for marker, shift, length in product(markers, (-2, -1, 0, 1), (1, 4)):
        made = made_for(tokenizer, answer, options, wrong={marker + shift})
        result = generate(made, "Hi", **options, num_assistant_tokens=length)
        assert result.token_ids == plain.token_ids
        assert seen(result) == seen(plain)
        assert result.stats.accepted > 10


def test_an_answer_may_be_cut_anywhere(form, tokenizers):
    tokenizer, options = tokenizers[form], {"tools": TOOLS}
    answer = answer_of(tokenizer, form)
    made = made_for(tokenizer, answer, options)
    whole = merged(generate(made, "Hi", **options).chunks)
    for budget in range(1, len(answer), 4):
        plain = generate(made, "Hi", **options, max_new_tokens=budget, num_assistant_tokens=0)
        result = generate(made, "Hi", **options, max_new_tokens=budget, num_assistant_tokens=4)
        assert seen(result) == seen(plain)
        assert result.finish_reason == "length"
        *before, last = merged(result.chunks[:-1]) or [Text("")]
        assert before == whole[: len(before)]
        assert last == whole[len(before)] or whole[len(before)].text.startswith(last.text)
        parts = merged(result.chunks)
        assert sum(call.is_whole for call in result.tool_calls) == parts.count(CallEnd())
        assert len(result.tool_calls) == sum(isinstance(part, CallBegin) for part in parts)
        assert len(result.message.get("tool_calls", ())) == parts.count(CallEnd())
        assert "Let me see:\n".startswith(result.text)


def test_stop_strings_are_of_the_text_alone(form, tokenizers):
    tokenizer, options = tokenizers[form], {"tools": TOOLS}
    made = made_for(tokenizer, answer_of(tokenizer, form), options)
    whole = generate(made, "Hi", **options)
    for stop in ("<3>", "note", "lines", "tool_call", ":\n", "see:\n<", "\n\n"):
        assert seen(generate(made, "Hi", **options, stop_strings=stop)) == seen(whole)
    for length, keeps in product((0, 1, 5), (False, True)):
        more = {"num_assistant_tokens": length, "include_stop_str_in_output": keeps}
        result = generate(made, "Hi", **options, **more, stop_strings=["lines", " see"])
        assert (result.text, result.finish_reason) == ("Let me" + " see" * keeps, "stop")
        assert (result.reasoning, result.tool_calls) == (whole.reasoning, [])
        assert result.stats.stop_string == " see"


def test_nothing_follows_a_stop_string_within_a_token():
    class Parser:
        def push(self, text, _):
            return [Text(text), Text("after"), CallBegin("area")]

    text = IncrementalDetokenizer(lambda *_: b"END.", [], ["END"], parser=Parser())
    text.push([1])
    assert (text.take(), text.finish()) == (("", ()), ("", ()))


def test_calls_without_tools_are_text(form, tokenizers):
    tokenizer = tokenizers[form]
    answer = answer_of(tokenizer, form)
    result = generate(made_for(tokenizer, answer, {}), "Hi")
    assert result.reasoning == "It is <3>."
    first, rest, _ = ANSWERS[form]
    mark = "<tool_call>" if form == "hermes" else ""  # else it is a special token
    assert result.text.startswith(f"Let me see:\n{mark}\n{first}{SPELLED}{rest}\n")
    assert (result.tool_calls, result.finish_reason) == ([], "stop")


def test_a_parser_that_is_off_leaves_its_part_in_the_text(tokenizers):
    tokenizer, options = tokenizers["hermes"], {"tools": TOOLS}
    answer = answer_of(tokenizer, "hermes")
    for parsers in product(("auto", "none"), repeat=2):
        made = made_for(tokenizer, answer, options)
        made.texts.parsers = parsers
        result = generate(made, "Hi", **options)
        calls, reasoning = (parser == "auto" for parser in parsers)
        assert ("<tool_call>" not in result.text) == bool(result.tool_calls) == calls
        assert ("<think>" not in result.text) == bool(result.reasoning) == reasoning


def test_a_prompt_may_have_begun_the_reasoning(tmp_path):
    template = TEMPLATES["hermes"].replace(
        "<eos>assistant\n{% if en", "<eos>assistant\n<think>\n{% if en"
    )
    tokenizer = load_tokenizer(*with_tools([FOLDER], tmp_path, template))
    answer = tokenizer.encode("Hm\n</think>\n\nYes<eos>")
    for prompt in ("Hi", [{"role": "user", "content": "<think>"}]):
        made = made_for(tokenizer, answer, {}, prompt=prompt)
        result = generate(made, prompt)
        assert (result.reasoning, result.text) == ("Hm", "Yes")


def test_special_tokens_that_mark_nothing_are_left_out(tmp_path):
    """Those of calls in an answer that may have none, and what ends answers beside calls."""
    ended = "{% if m.tool_calls %}]</calls><eos>{% endif %}<eos>\n{% endif %}\n{%- endfor %}"
    template = (
        TEMPLATES["hermes"]
        .replace("{%- for call", "{% if m.tool_calls %}<calls>[{% endif %}{%- for call")
        .replace("<eos>\n{% endif %}\n{%- endfor %}", ended)
    )
    for number, (own, options, text) in enumerate(
        [
            (TEMPLATES["hermes"], {}, "<think>Hm</think>Yes<tool_call>.</tool_call><eos>"),
            (template, {}, "<think>Hm</think>Yes.<eos>"),
            (template, {"tools": TOOLS}, "<think>Hm</think>Yes.<eos>"),
        ]
    ):
        folder = tmp_path / f"{number}"
        tokenizer = load_tokenizer(*with_tools([FOLDER], folder, own, special=True))
        made = made_for(tokenizer, tokenizer.encode(text, add_special_tokens=False), options)
        assert "<eos>" in made.texts.format.tokens or not number
        result = generate(made, "Hi", **options)
        assert (result.text, result.reasoning) == ("Yes.", "Hm")


def test_tools_that_cannot_be_read_are_refused_with_the_reason(tokenizers, tmp_path):
    template = "{% for t in tools or [] %}{{ t.name }}{% endfor %}{{ messages[0].content }}"
    tokenizer = load_tokenizer(*with_tools([FOLDER], tmp_path, template))
    made = generator(tokenizer=tokenizer)
    with pytest.raises(
        OptionError, match=r"tools cannot be used .*\(its chat template .*\)"
    ) as error:
        generate(made, "Hi", tools=TOOLS)
    assert error.value.option == "tools"
    with pytest.raises(OptionError, match="thinking_token_budget needs a chat template that marks"):
        generate(made, "Hi", thinking_token_budget=3)
    made.texts.parsers = ("none", "none")
    del made.texts.format
    assert generate(made, "Hi", tools=TOOLS, max_new_tokens=2).tool_calls == []
    with pytest.raises(OptionError, match="tool_choice contradicts tool_call_parser='none'"):
        generate(made, "Hi", tools=TOOLS, tool_choice="required")
