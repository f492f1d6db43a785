"""Batch invariance: the check on scripted models, and passes of real ones bit by bit."""

import re
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ov_specdec import OptionError, SpeculativePipeline
from ov_specdec.errors import DeviceError
from ov_specdec.files import keep_section
from ov_specdec.models import invariance as loading
from ov_specdec.models.devices import RuntimeConfig
from ov_specdec.models.folder import ModelFolder
from ov_specdec.models.invariance import (
    CHECKED,
    LARGE_PASS,
    NOT_CHECKED,
    SMALL_PASS,
    Invariance,
    InvarianceVerdict,
    read_verdict,
)
from ov_specdec.results.stats import NOT_INVARIANT, BatchInvariance
from ov_specdec.runner.base import Span
from ov_specdec.runner.paged import SpanPart, divide
from tests.support.fakes import ScriptedModel, mixing
from tests.support.passes import tokens


class Uneven:
    """A scripted model that computes otherwise in some passes. Implements `InvariantRunner`.

    differs: says so of the tokens of a pass's spans. What such a pass gives is a little off, and so
    is what later reads the keys that it has left.
    """

    is_invariant = True
    is_verified = False

    def __init__(self, differs, **settings):
        self._differs = differs
        self._model = ScriptedModel(mixing(3), block_size=32, **{"max_length": 2000, **settings})
        self._off = {}  # by slot: the first place whose keys are
        self.max_pass_tokens = None
        self.passes = []

    def __getattr__(self, name):
        return getattr(self._model, name)

    def forward(self, spans):
        slots = [span.slot for span in spans]
        for slot in slots:
            if slot.length <= self._off.get(slot, 0):
                self._off.pop(slot, None)  # it was rolled back
        whole = [SpanPart(0, span.slot, span) for span in spans]
        for parts in divide(whole, self.max_pass_tokens):
            self.passes.append([len(part.span.tokens) for part in parts])
            if self._differs(self.passes[-1]):
                for part in parts:
                    self._off.setdefault(part.span.slot, part.span.slot.length)
        logits = [rows.copy() for rows in self._model.forward(spans)]
        for slot, rows in zip(slots, logits, strict=True):
            rows += 1e-6 * (slot in self._off)
        return logits


class Trace(Uneven):
    """One in which rejected tokens leave a trace."""

    def __init__(self):
        super().__init__(lambda sizes: False)

    def forward(self, spans):
        logits = super().forward(spans)
        if self.rollbacks and len(self.passes) > 1 and self.passes[-2] == [20]:
            logits[0] += 1e-6
        return logits


def check(model, fractions=None):
    """The verdict on a model. fractions: gets the fraction done after each pass."""

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "verdict.json"
        seen = list(Invariance(model, path).passes())
        if fractions is not None:
            fractions += seen
        return read_verdict(path)


FAULTS = {
    "a pass over 1 tokens": lambda sizes: sizes == [1],
    "a pass over 3 tokens": lambda sizes: sizes == [3],
    "a pass over 9 tokens": lambda sizes: sizes == [9],
    "a pass over 33 tokens": lambda sizes: sum(sizes) == 33,
    "a pass over 1 tokens beside 3 sequences that generate 1": lambda sizes: sizes == [1] * 4,
    "a pass over 2 tokens beside 3 sequences that read 5": lambda sizes: sizes == [2, 5, 5, 5],
    "a prompt in passes over 48 tokens": lambda sizes: sizes == [48],
}


@pytest.mark.parametrize("difference", FAULTS)
def test_a_way_in_which_logits_differ_is_found_and_named(difference):
    model = Uneven(FAULTS[difference])
    assert check(model) == InvarianceVerdict(difference, None)


def test_traces_of_rejected_tokens_are_found():
    assert check(Trace()) == InvarianceVerdict("a pass after 20 rejected tokens", None)


def test_passes_that_agree_while_they_are_small_are_kept_small():
    model = Uneven(lambda sizes: sum(sizes) > 80)
    assert check(model) == InvarianceVerdict("", SMALL_PASS)
    assert SMALL_PASS < max(map(sum, model.passes)) < LARGE_PASS  # the long ones are spared
    larger = Uneven(lambda sizes: sum(sizes) > 200)
    assert check(larger) == InvarianceVerdict("", SMALL_PASS)
    assert max(map(sum, larger.passes)) == LARGE_PASS


def test_passes_that_always_agree_are_told_so_in_46_of_them():
    model, fractions = Uneven(lambda sizes: False), []
    assert check(model, fractions) == InvarianceVerdict("", None)
    assert len(model.passes) <= 46
    assert fractions == sorted(fractions)
    assert model.pool.num_used == 0


@pytest.mark.parametrize("max_length", [16, 32, 50, 90, 128, 300])
def test_models_of_short_contexts_are_checked_too(max_length):
    differs = FAULTS["a pass over 3 tokens"]
    assert check(Uneven(lambda sizes: False, max_length=max_length)) == InvarianceVerdict("", None)
    assert check(Uneven(differs, max_length=max_length)).difference
    large = check(Uneven(lambda sizes: sum(sizes) > 80, max_length=max_length))
    assert large.max_pass_tokens == (SMALL_PASS if max_length > 82 else None)


def test_what_a_check_has_seen_is_kept_and_decides_how_passes_run(tmp_path):
    path = tmp_path / "folder" / "verdict.json"
    known = Invariance(Uneven(FAULTS["a pass over 9 tokens"]), path)
    assert known.status == BatchInvariance(True, NOT_CHECKED)
    assert not known.verify().is_on
    again = Uneven(lambda sizes: False)
    status = Invariance(again, path).status
    assert (status.is_on, status.is_checked, again.is_invariant) == (False, True, False)
    assert "a pass over 9 tokens gave different logits" in status.reason
    keep_section(path, "invariance", InvarianceVerdict("", SMALL_PASS))
    small = Uneven(lambda sizes: False)
    assert Invariance(small, path).status == BatchInvariance(True, CHECKED, is_checked=True)
    assert small.max_pass_tokens == SMALL_PASS
    assert small.passes == []
    assert small.is_verified


@pytest.mark.parametrize("most", [None, SMALL_PASS])
def test_until_a_verdict_passes_have_the_form_that_every_verdict_allows(most):
    model = Uneven(lambda sizes: most is not None and sum(sizes) > most)
    known = Invariance(model, None)
    assert model.max_pass_tokens == SMALL_PASS
    passes = known.passes()
    while max(map(sum, model.passes), default=0) <= SMALL_PASS:
        next(passes)
    passes.close()  # after the first larger one
    assert model.max_pass_tokens == SMALL_PASS
    assert known.verify().is_verified
    assert model.max_pass_tokens == most


def test_an_interrupted_check_frees_its_memory_and_goes_on_where_it_was():
    model = Uneven(lambda sizes: False)
    known, num_passes = Invariance(model, None), len(whole_check().passes)
    for _ in range(num_passes):
        with closing(known.passes()) as passes:
            next(passes)
        assert model.pool.num_used == 0
    assert known.is_pending  # nothing was done yet
    model.passes.clear()
    for num_done in range(num_passes):
        with closing(known.passes()) as passes:
            for _ in zip(range(num_passes // 2 + num_done), passes, strict=False):
                pass
        if not known.is_pending:
            break
    assert known.status.is_verified
    assert len(model.passes) < 2.5 * num_passes


def whole_check():
    model = Uneven(lambda sizes: False)
    check(model)
    return model


@pytest.mark.parametrize("settings", [{"num_blocks": 4}, {"max_length": 5}])
def test_memory_or_context_that_has_no_room_for_the_check_is_no_verdict(settings):
    model = Uneven(lambda sizes: False, **settings)
    known = Invariance(model, None)
    status = known.verify()
    assert (status.is_on, status.is_checked) == (True, False)
    assert re.match("not checked: .*(blocks of the KV cache|no room)", status.reason)
    assert not known.is_pending  # and is not tried again and again
    assert (model.max_pass_tokens, model.pool.num_used) == (SMALL_PASS, 0)


@pytest.fixture(scope="module")
def model(tiny_pair):
    """A tiny main model, in the fastest precision that this machine has for it."""
    with SpeculativePipeline(
        tiny_pair[0],
        drafter="none",
        batch_invariant=True,
        static_shapes=[2, 5],
        kv_cache_size=0.001,
    ) as pipeline:
        assert pipeline.batch_invariant.is_verified
        pipeline.prepare()
        yield pipeline.main.runner


TEXT = tokens(180)
PLACE = 62


def following(model, slot, num_tokens):
    """Logits of the next tokens of the text, [num_tokens, vocab]; they are rolled back."""
    begin = slot.length
    span = Span(slot, TEXT[begin : begin + num_tokens], num_tokens, num_tokens)
    logits = model.forward([span])[0].copy()
    slot.rollback(begin)
    return logits


def opened(model, *chunks):
    """A sequence that holds the first tokens of the text, a prompt, read in so many at once."""
    slot = model.open(object())
    for size in (*chunks, PLACE):
        left = PLACE - slot.length
        if left:
            end = PLACE if left - size < 2 else slot.length + size
            model.forward([Span(slot, TEXT[slot.length : end], 1)])
    return slot


@settings(max_examples=30)
@given(
    chunks=st.lists(st.integers(2, 50), max_size=9) | st.just([2] * PLACE),
    size=st.integers(1, 40),
    rejected=st.integers(0, 30),
    others=st.lists(st.tuples(st.integers(1, 90), st.integers(1, 9), st.booleans()), max_size=7),
    most=st.sampled_from([None, 7]),
)
def test_a_tokens_logits_depend_on_the_text_before_it_alone(
    model, chunks, size, rejected, others, most
):
    slots = [opened(model), opened(model, *chunks), *(model.open(object()) for _ in others)]
    for number, (slot, (held, *_)) in enumerate(zip(slots[2:], others, strict=True)):
        model.forward([Span(slot, tokens(held, number), 1)])
    expected, slot = following(model, slots[0], 64), slots[1]
    before, model.max_pass_tokens = model.max_pass_tokens, most or model.max_pass_tokens
    num_tokens = size + rejected
    new = [*TEXT[PLACE : PLACE + size], *tokens(rejected, 2)]
    span = Span(slot, new, num_tokens, num_tokens)
    beside = [
        Span(each, tokens(n, n), 1, n * is_generated)
        for each, (_, n, is_generated) in zip(slots[2:], others, strict=True)
    ]
    logits = model.forward([span, *beside])[0][:size].copy()
    slot.rollback(PLACE + size)
    later = following(model, slot, 2)
    model.max_pass_tokens = before
    for each in slots:
        each.free()
    np.testing.assert_array_equal(logits, expected[:size])
    np.testing.assert_array_equal(later, expected[size : size + 2])


def test_a_context_that_is_full_to_the_last_token_has_room_for_spare_rows(model):
    """Nor is the spare row's place in the cache that of a block of another sequence."""
    slot, full = model.open(object()), tokens(model.max_length)
    model.forward([Span(slot, full[:-1], 1)])
    other = opened(model)
    logits = following(model, other, 3)
    model.forward([Span(slot, full[-1:], 1, 1)])
    np.testing.assert_array_equal(following(model, other, 3), logits)
    slot.free()
    other.free()


def load(main, **options):
    return SpeculativePipeline(main, drafter="none", **options)


def test_it_is_off_where_it_cannot_be_and_says_why(tiny_pair, encoder_decoder):
    by_channel = {"KEY_CACHE_QUANT_MODE": "BY_CHANNEL"}
    t5 = ModelFolder.read(encoder_decoder("t5").main)
    assert loading.look_up(t5, RuntimeConfig()) == NOT_INVARIANT
    settings = {
        "a stateful KV cache": {"kv": "stateful"},
        "KEY_CACHE_QUANT_MODE=BY_CHANNEL": {"properties": by_channel},
        "batch_invariant=False": {"batch_invariant": False},
    }
    for reason, options in settings.items():
        with load(tiny_pair[0], **options) as pipeline:
            assert pipeline.batch_invariant == BatchInvariance(False, reason)
            assert pipeline.check_batch_invariant() == pipeline.batch_invariant
            stats = pipeline.generate("def", max_new_tokens=2).stats
            assert stats.as_dict()["batch_invariant"]["reason"] == reason
        if "batch_invariant" not in options:
            with pytest.raises(OptionError, match="batch_invariant=True is not possible with"):
                load(tiny_pair[0], batch_invariant=True, **options)


def verdicts(monkeypatch, **differences):
    """Have configurations differ, or not, by their precision."""
    monkeypatch.setattr(loading, "read_verdict", lambda path: None)
    checked = []

    def check(folder, config):
        checked.append(config.precision)
        return differences.get(config.precision, "")

    monkeypatch.setattr(loading, "find_difference", check)
    return checked


def choose(folder, others=loading.SLOWER, **settings):
    return loading.configure(True, folder, RuntimeConfig(**settings), others)


def test_true_takes_the_first_precision_that_passes(tiny_pair, monkeypatch):
    folder = ModelFolder.read(tiny_pair[0])
    checked = verdicts(monkeypatch, default="a pass over 9 tokens")
    config, off = choose(folder)
    assert (config.precision, config.batch_invariant, off) == ("f32", True, None)
    assert checked == ["default", "f32"]


def test_where_none_passes_it_says_what_differs(tiny_pair, monkeypatch):
    folder = ModelFolder.read(tiny_pair[0])
    verdicts(monkeypatch, default="a pass", f32="a prompt", exact="a chunk")
    with pytest.raises(DeviceError, match=r"default: a pass; f32: a prompt; exact: a chunk"):
        choose(folder)
    with pytest.raises(DeviceError, match=r"\(f32: a prompt\)"):
        choose(folder, others=(), precision="f32")


def test_auto_is_off_where_a_check_has_failed(tiny_pair, monkeypatch):
    failed = InvarianceVerdict("a pass over 9 tokens", None)
    monkeypatch.setattr(loading, "read_verdict", lambda path: failed)
    known = loading.look_up(ModelFolder.read(tiny_pair[0]), RuntimeConfig())
    assert (known.is_on, known.is_checked) == (False, True)
    with load(tiny_pair[0]) as pipeline:
        assert not pipeline.main.runner.is_invariant
        assert "a pass over 9 tokens gave different logits" in pipeline.batch_invariant.reason


def test_it_is_part_of_what_caches_and_curves_depend_on(tiny_pair):
    folder, config = ModelFolder.read(tiny_pair[0]), RuntimeConfig()
    on = replace(config, batch_invariant=True)
    files = {loading.verdict_file(folder, c) for c in (config, on, replace(on, static_shapes=(4,)))}
    assert len(files) == 2  # static shapes are compared when they are taken up
