"""Special tokens: those that a tokenizer adds to a prompt, in stop strings, and in offsets."""

import json
import shutil
from itertools import pairwise

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import processors

from ov_specdec import SpeculativePipeline
from ov_specdec.api.body import read
from ov_specdec.openai.completions import CompletionAnswer, prompt_offsets
from ov_specdec.openai.requests import CompletionBody
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.text.tokenizer import load_tokenizer
from tests.support.chats import ANSWER, PLAIN, TEMPLATES, USER, ids, make_tokenizer
from tests.support.tiny import EOS

TURNS = [USER, ANSWER, {"role": "user", "content": "  And\n\n a 5 by 6 one? "}]
TEXT = "  What  is\n the <b>area</b>?"
PLAINLY = {"apply_chat_template": False}
KINDS = {
    "llama 3": ("byte level", ["<|begin_of_text|>"], PLAIN),
    "gemma": ("byte fallback", ["<bos>"], PLAIN),
    "mistral": ("byte fallback", ["<s>"], TEMPLATES["strips"].removeprefix("{{ bos_token }}")),
    "glm": ("byte level", ["[gMASK]", "<sop>"], PLAIN),
}


def add_before(folder, names):
    """Have a saved tokenizer add special tokens before each text, as Llama 3's file says it."""
    file = folder / "tokenizer.json"
    backend = Backend.from_file(str(file))
    backend.add_special_tokens(names)
    added = [(name, backend.token_to_id(name)) for name in names]
    template = processors.TemplateProcessing(" ".join([*names, "$A"]), special_tokens=added)
    backend.post_processor = processors.Sequence([processors.ByteLevel(), template])
    backend.save(str(file))


def make(folder, name, template="{names}{template}"):
    kind, names, own = KINDS[name]
    text = template.format(names="".join(names), template=own)
    tokenizer = make_tokenizer(folder / "model", kind=kind, template=text)
    add_before(tokenizer.path, names)
    tokenizer = load_tokenizer(tokenizer.path)
    return tokenizer, [tokenizer.vocab[each] for each in names]


@pytest.mark.parametrize("name", KINDS)
def test_a_rendered_text_has_the_ids_of_its_messages(name, tmp_path):
    tokenizer, added = make(tmp_path, name)
    for messages in ([USER], TURNS):
        expected = ids(tokenizer, messages)
        assert expected[: len(added) + 1] != [*added, added[0]]
        text = tokenizer.render_chat(messages, GenerationOptions())
        assert tokenizer.encode(text) == expected
        for adds in (None, True, False):
            assert ids(tokenizer, text, add_special_tokens=adds, **PLAINLY) == expected
            assert ids(tokenizer, messages, add_special_tokens=adds) == expected


@pytest.mark.parametrize("name", KINDS)
def test_a_plain_text_gets_them_unless_they_are_not_wanted(name, tmp_path):
    tokenizer, added = make(tmp_path, name, "{template}")
    without = ids(tokenizer, TEXT, add_special_tokens=False, **PLAINLY)
    assert not set(added) & set(without)
    assert ids(tokenizer, TEXT, **PLAINLY) == [*added, *without]
    rendered = ids(tokenizer, [USER])
    assert rendered[0] not in added
    assert ids(tokenizer, [USER], add_special_tokens=True) == [*added, *rendered]
    # One of several, or one later in the text, is not all of them before the text.
    for own in ("".join(KINDS[name][1][1:]) + TEXT, f"x{''.join(KINDS[name][1])}"):
        later = ids(tokenizer, own, add_special_tokens=False, **PLAINLY)
        assert ids(tokenizer, own, **PLAINLY) == [*added, *later]
    assert tokenizer.encode("") == added


@pytest.fixture(scope="module")
def pair(chat_pair, tmp_path_factory):
    """A tiny pair whose tokenizers add `EOS` before a text, as the template does."""
    target = tmp_path_factory.mktemp("adds")
    folders = [shutil.copytree(folder, target / folder.name) for folder in chat_pair]
    for folder in folders:
        add_before(folder, [EOS])
    return folders


@pytest.fixture(scope="module")
def pipeline(pair):
    with SpeculativePipeline(*pair, precision="exact", num_threads=1) as made:
        yield made


def test_requests_say_whether_they_are_added(server):
    for adds, more in ((None, 1), (True, 1), (False, 0)):
        fields = {"max_tokens": 1, "add_special_tokens": adds}
        prompt_tokens = server.complete("a", **fields)["usage"]["prompt_tokens"]
        assert prompt_tokens == 1 + more
        told = server.post("/tokenize", prompt="a", add_special_tokens=adds).json()
        assert told["count"] == 1 + more
        chat = {"messages": [USER], **fields}
        assert server.post("/v1/chat/completions", **chat).status_code == 200
    answer = server.post("/tokenize", prompt="a", add_generation_prompt=True)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "add_generation_prompt")


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("is_text", [True, False])
@pytest.mark.parametrize("adds", [True, False])
def test_offsets_of_a_prompt_are_those_of_its_text(name, is_text, adds, tmp_path):
    tokenizer, added = make(tmp_path, name)
    rendered = tokenizer.render_chat(TURNS, GenerationOptions())
    for text in (TEXT, rendered, f"Größe 日本 😀\n\n \n{KINDS[name][1][0]}  what", " "):
        tokens = tokenizer.encode(text, add_special_tokens=adds)
        body = {"prompt": text if is_text else tokens, "echo": True, "add_special_tokens": adds}
        answer = CompletionAnswer(read(CompletionBody, body), "m", tokenizer)
        shown, offsets = (
            answer.prompt_text(0),
            prompt_offsets(answer.request.prompts[0], tokenizer, adds),
        )
        assert len(offsets) == len(tokens)
        slices = [shown[start:end] for start, end in pairwise([*offsets, len(shown)])]
        assert "".join(slices) == shown
        for place, (token, piece) in enumerate(zip(tokens, slices, strict=True)):
            own = tokenizer.piece(token).decode(errors="ignore")
            # Some tokenizers write a space before a word that has none.
            assert (
                piece in (own, own.removeprefix(" "))
                or not (own and own.isascii())
                or (place < len(added) and piece == "")
            )


OFTEN = {"frequency_penalty": 2.0, "ignore_eos": True}
"""A special token and parts of characters come among others."""


def test_no_stop_ends_a_request_before_min_tokens(pipeline):
    options = {"max_new_tokens": 30, "ignore_eos": True, **PLAINLY}
    stop = pipeline.generate(TEXT, **options).text[0]
    lengths = [
        len(pipeline.generate(TEXT, stop_strings=stop, **{name: 9}, **options).token_ids)
        for name in ("min_new_tokens", "min_tokens")
    ]
    assert lengths[0] < 9 <= lengths[1]  # as in transformers, and as in vLLM
    ends = {"max_new_tokens": 30, "logit_bias": {pipeline.tokenizer.eos_token_id: 1000.0}}
    assert len(pipeline.generate(TEXT, min_tokens=9, **ends).token_ids) == 10


def scores_of(server, *, stream, **fields):
    """The text and log-probabilities of each choice of a completion."""
    if not stream:
        choices = server.complete(**fields)["choices"]
        return [(choice["text"], choice["logprobs"]) for choice in choices]
    sent = server.post("/v1/completions", stream=True, **{"temperature": 0, **fields}).text
    found = {}
    for line in sent.split("\n\n"):
        if line.startswith("data: {"):
            [piece] = json.loads(line.removeprefix("data: "))["choices"]
            text, scores = found.setdefault(piece["index"], ([], {}))
            text.append(piece["text"])
            for name, values in (piece["logprobs"] or {}).items():
                scores.setdefault(name, []).extend(values)
    return [("".join(text), scores) for _, (text, scores) in sorted(found.items())]


PROMPTS = [
    TEXT,
    f"{EOS}user\n  Größe 日本 😀{EOS}{EOS}\n\n x ",
    [0, 200, 201, 5, 0, 60, 160, 7],
    " ",
]


@pytest.mark.parametrize(
    "options",
    [
        OFTEN,
        {**OFTEN, "skip_special_tokens": False},
        {**OFTEN, "stop": ["e", f"n{EOS}", "("]},
        {"logit_bias": {"0": 100}},
        {"add_special_tokens": False, "temperature": 1.0, "seed": 3, "n": 2},
    ],
)
@pytest.mark.parametrize("echo", [True, False])
def test_offsets_are_those_of_the_text_that_is_shown(server, options, echo):
    fields = {"max_tokens": 30, "logprobs": 4, "num_assistant_tokens": 4, **options}
    fields |= {"prompt": PROMPTS, "echo": echo}
    whole = scores_of(server, stream=False, **fields)
    assert scores_of(server, stream=True, **fields) == whole
    assert len(whole) == len(PROMPTS) * options.get("n", 1)
    for index, (text, scores) in enumerate(whole):
        prompt = PROMPTS[index // options.get("n", 1)]
        alone = scores_of(server, stream=False, **{**fields, "prompt": prompt})
        assert alone[index % len(alone)] == whole[index]
        names, offsets = scores["tokens"], scores["text_offset"]
        assert offsets == sorted(offsets)
        shown = [text[start:end] for start, end in pairwise([*offsets, len(text)])]
        assert "".join(shown) == text
        for place, (name, piece) in enumerate(zip(names, shown, strict=True)):
            is_cut = "stop" in options and place >= len(names) - 3
            if not name.startswith("bytes:") and name != EOS and not is_cut:
                assert piece == name or "\ufffd" in piece
            if name == EOS:
                assert piece in ("", EOS)
        for name, value, top in zip(
            names, scores["token_logprobs"], scores["top_logprobs"], strict=True
        ):
            assert (top is None) == (value is None)
            assert top is None or (top[name] == value and len(top) in (4, 5))
