"""`draft_vocabulary`: a draft that computes the logits of some tokens only."""

import json

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from ov_specdec import OptionError, SpeculativePipeline
from ov_specdec.graph.paging import static_shape
from ov_specdec.graph.products import OUTSIDE, cut_vocabulary
from ov_specdec.models.exported import open_exported
from ov_specdec.models.locate import embedded_folder
from ov_specdec.runner.base import Span
from ov_specdec.runner.paged import PagedModel
from ov_specdec.text.tokenizer import load_tokenizer
from tests.support.folders import changed
from tests.support.passes import end_with, paged
from tests.support.tiny import VOCAB_SIZE

KEPT = 264
"""EOS, 256 bytes, and a few that merges make, of some 290 tokens."""

WORDS = {"type": "WordLevel", "vocab": {"!": 0}, "unk_token": "!"}
RUN = {"max_new_tokens": 40, "ignore_eos": True, "num_assistant_tokens": 3}
PROMPTS = ("def area(", "print(")


def first_logits(model, width, tokens=(5, 6, 7)):
    compiled = ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    runner = PagedModel(compiled, max_length=64, vocab_size=width)
    return runner.forward([Span(runner.open(), list(tokens), len(tokens))])[0].copy()


@pytest.mark.parametrize("kind", ["tied int8", "own f32", "with a bias"])
def test_kept_tokens_have_the_logits_of_the_whole_product(kind, tiny_pair):
    folder = embedded_folder("draft") if kind == "tied int8" else tiny_pair[1]
    models = [paged(folder) for _ in range(2)]
    if kind == "with a bias":
        for model in models:
            bias = ops.constant(np.arange(VOCAB_SIZE, dtype=np.float32))
            end_with(model, lambda logits, bias=bias: ops.add(logits, bias))
    width = models[0].output("logits").partial_shape[-1].get_length()
    kept = list(range(1, width, 3))
    whole = first_logits(models[0], width)
    cut_vocabulary(models[1], kept)
    products = [n for n in models[1].get_ops() if n.get_type_name() == "MatMul"]
    assert len(kept) in {n.get_output_partial_shape(0)[-1].get_length() for n in products}
    for model in (models[1], static_shape(models[1], 3)):
        logits = first_logits(model, width)
        np.testing.assert_array_equal(logits[:, kept], whole[:, kept])
        assert model.output("logits").partial_shape[-1] == width
        assert (np.delete(logits, kept, axis=1) == OUTSIDE).all()


@pytest.mark.parametrize("kv", ["paged", "stateful"])
def test_texts_are_plain_decodings_and_what_cannot_be_drafted_is_counted(kv, tiny_pair):
    kept, counted, accepted = load_tokenizer(tiny_pair[1]).first_tokens(KEPT), 0, 0
    seeded = {"do_sample": True, "temperature": 0.8, "seed": 5}
    settings = {"kv": kv, "precision": "exact", "draft_vocabulary": KEPT}
    with SpeculativePipeline(*tiny_pair, **settings) as pipeline:
        for prompt in PROMPTS:
            for options in ({}, seeded):
                plain = pipeline.generate(prompt, **options, **{**RUN, "num_assistant_tokens": 0})
                result = pipeline.generate(prompt, **options, **RUN)
                assert result.token_ids == plain.token_ids
                outside = sum(token not in kept for token in result.token_ids)
                assert result.stats.outside_draft_vocabulary == outside
                counted, accepted = counted + outside, accepted + result.stats.accepted
        drafted = [
            token
            for chunk in pipeline.stream(PROMPTS[0], **RUN)
            for token in (*chunk.rejected_ids, *(chunk.token_ids if chunk.from_draft else ()))
        ]
    assert counted > 0 < accepted
    assert drafted
    assert kept.issuperset(drafted)


def test_special_tokens_and_bytes_come_first_then_tokens_by_their_merges(tmp_path):
    spec = json.loads((embedded_folder("draft") / "tokenizer.json").read_text())
    merges = spec["model"]["merges"]
    for order in (merges, [" ".join(merge) for merge in reversed(merges)]):  # either form
        spec["model"]["merges"] = order
        (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
        tokenizer = load_tokenizer(tmp_path)
        added = tokenizer.first_tokens(260) - tokenizer.first_tokens(257)
        names = {"".join(merge).replace(" ", "") for merge in order[:3]}
        assert {name for name, token in tokenizer.vocab.items() if token in added} == names
    assert tokenizer.special_tokens.keys() < tokenizer.first_tokens(257)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"draft_vocabulary": 0}, "draft_vocabulary=0 must be 'full', or a number of tokens"),
        ({"draft_vocabulary": 256}, "draft_vocabulary=256 must be from 257, "),
        ({"draft_vocabulary": 9999}, "less than all of its tokens: change it, or leave it out"),
        ({"draft_vocabulary": 280, "pairing": "auto"}, "cannot be used with pairing='auto'"),
        ({"draft_vocabulary": 280, "drafter": "suffix"}, "has no effect with drafter='suffix'"),
    ],
)
def test_what_cannot_be_is_refused(settings, message, tiny_pair):
    pair = tiny_pair[:1] if "drafter" in settings else tiny_pair
    with pytest.raises(OptionError, match=message):
        SpeculativePipeline(*pair, **settings)


def test_what_has_no_merges_or_another_last_layer_is_refused(tiny_pair, tmp_path):
    words = changed(tiny_pair[1], tmp_path / "draft", tokenizer={"model": WORDS})
    with pytest.raises(OptionError, match=r"needs the merges of a BPE tokenizer.* has none: leave"):
        load_tokenizer(words).first_tokens(KEPT)
    model = open_exported(tiny_pair[1]).model
    end_with(model, lambda logits: ops.softmax(logits, -1))
    with pytest.raises(OptionError, match="draft_vocabulary=2 needs a draft model of all"):
        cut_vocabulary(model, [1, 2])
