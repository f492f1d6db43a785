"""Drafts with another tokenizer: scripted, with the embedded draft, and against transformers."""

from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from ov_specdec import SpeculativePipeline, TokenizerMismatchError
from ov_specdec.drafters.other_tokenizer import OUTSIDE, IntersectionCache
from ov_specdec.engine.engine import Engine
from ov_specdec.engine.loop import EngineLoop
from ov_specdec.engine.sequence import Sequence
from ov_specdec.models.locate import embedded_folder
from ov_specdec.planning.policies import ConstantLength
from ov_specdec.runner.cached_sequence import alone
from ov_specdec.sampling.samplers import Sampler
from ov_specdec.text.pairing import PieceTokenizer, TokenizerPair
from ov_specdec.text.tokenizer import load_tokenizer
from tests.support.chats import save_byte_fallback
from tests.support.fakes import ScriptedModel
from tests.support.running import paired, plain, propose, rounds, sequence
from tests.support.tiny import export, save_checkpoint, save_tokenizer

PAIRINGS = ["intersection", "retokenize"]
BY_NIGHT = pytest.mark.deep
ONE = ["intersection", pytest.param("retokenize", marks=BY_NIGHT)]
OTHER = ["retokenize", pytest.param("intersection", marks=BY_NIGHT)]
"""Of real models every run has one pairing of each test; scripted models have both."""

PROSE = "the quick brown fox jumps over the lazy dog and naps\n"
TEXT = "def area(width, height):\n    return width * height  # größe 日本語 😀\n" * 2


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    """A byte-level main, and drafts by the kind of theirs."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("main", "prose", "sentencepiece")}
    save_tokenizer(folders["main"])
    save_tokenizer(folders["prose"], sample=PROSE * 3)
    save_byte_fallback(folders["sentencepiece"], sample="the cat sat on the mat\n")
    pieces = {name: PieceTokenizer(load_tokenizer(path)) for name, path in folders.items()}
    return {
        name: TokenizerPair(
            pieces["main"], pieces[name], len(pieces["main"].bytes_of), len(pieces[name].bytes_of)
        )
        for name in ("prose", "sentencepiece")
    }


def paired_drafter(draft, pair, name, **more):
    named = pair if pair.pairing == name else replace(pair, pairing=name)
    return paired(draft, Sampler(), named, **more)


def reciting(ids, end):
    """A model that goes on with the ids of a text, wherever it is in it."""
    return lambda tokens: ids[len(tokens)] if len(tokens) < len(ids) else end


def reading(pieces, text):
    """A model that goes on with a text by its bytes, however it has been cut into tokens before."""
    data = text.encode()

    def next_token(tokens):
        known = pieces.decode(tokens)
        if not data.startswith(known) or known == data:
            return pieces.eos_token_id
        return pieces.encode(data[len(known) :])[0]

    return next_token


@pytest.mark.parametrize("kind", ["prose", "sentencepiece"])
@pytest.mark.parametrize("name", PAIRINGS)
@pytest.mark.parametrize("length", [1, 4, 7])
def test_a_draft_that_knows_the_text_is_accepted_and_changes_nothing(
    tokenizers, kind, name, length
):
    pair = tokenizers[kind]
    ids = pair.main.encode(TEXT.encode())
    assert ids != pair.draft.encode(TEXT.encode())
    main = reciting(ids, pair.main.eos_token_id)
    ends = {"eos": {pair.main.eos_token_id}}
    expected = plain(ScriptedModel(main, vocab_size=1000), ids[:3], 200, **ends)

    draft = ScriptedModel(reading(pair.draft, TEXT), vocab_size=pair.draft_size)
    drafter = paired_drafter(draft, pair, name)
    model, policy = ScriptedModel(main, vocab_size=1000), ConstantLength(length)
    text = sequence(model, ids[:3], 200, drafter, policy, **ends)
    accepted = sum(round_.num_from_draft for round_ in rounds(text))
    assert text.tokens == expected.tokens
    assert text.finish_reason == "stop"
    assert accepted > len(ids) / 6
    # What is cached of the draft is fed once: a window at most is fed again in each round.
    assert max(draft.passes[1:]) < 24


@pytest.mark.parametrize(
    ("kind", "said", "begun", "proposed"),
    [
        *((kind, "x = 日", 4, "日".encode()) for kind in ("prose", "sentencepiece")),
        ("prose", "é日", 3, "é日".encode()[3:]),  # within a character
        ("prose", "éa", 3, b""),  # which the draft contradicts
    ],
)
def test_texts_are_gone_on_with_to_their_end_by_the_main_models_ids(
    tokenizers, kind, said, begun, proposed
):
    pair = tokenizers[kind]
    draft = ScriptedModel(reading(pair.draft, said), vocab_size=pair.draft_size)
    drafter = paired_drafter(draft, pair, "retokenize", min_confidence=1e-9)
    text = pair.main.encode(("x = " if begun == 4 else "é日").encode()[:begun])
    proposal = propose(drafter, text, 9)
    assert pair.main.decode(proposal.draft.tokens) == proposed
    if proposed:
        assert proposal.draft.tokens[-1] == pair.main.eos_token_id
        assert len(proposal.confidences) == len(proposal.draft.tokens)


def test_rows_of_an_intersection_have_the_drafts_logits_by_main_id(tokenizers):
    pair = tokenizers["prose"]
    draft = ScriptedModel(lambda _: 77, vocab_size=pair.draft_size)
    cache = IntersectionCache(draft, pair)
    text = pair.main.encode(b"def area")
    row = alone(cache.advance(text)).logits[0]
    assert row.shape == (pair.main_size,)
    by_bytes = {data: token for token, data in enumerate(pair.draft.bytes_of) if data}
    for token, data in enumerate(pair.main.bytes_of):
        if data:
            expected = OUTSIDE if data not in by_bytes else float(by_bytes[data] == 77)
            assert row[token] == expected


def test_after_a_draft_token_that_the_draft_lacks_it_is_not_asked(tokenizers):
    pair = tokenizers["prose"]
    draft = ScriptedModel(lambda _: 77, vocab_size=pair.draft_size)
    cache = IntersectionCache(draft, pair)
    outside = next(t for t in range(1, pair.main_size) if t not in pair.draft_of)
    done = alone(cache.advance(pair.main.encode(b"def area"), [outside]))
    assert (done.logits == OUTSIDE).all()
    assert draft.passes == []


def make_other_draft(folder):
    save_checkpoint("llama", folder / "checkpoint", width=384)
    save_tokenizer(folder / "checkpoint", sample=PROSE * 3)
    export(folder / "checkpoint", folder / "draft")


@pytest.fixture(scope="module")
def other_draft(shelf, tmp_path_factory):
    """A tiny random llama with another tokenizer."""
    target = tmp_path_factory.mktemp("other") / "all"
    return shelf.copy("other-tokenizer", make_other_draft, target, Path(__file__)) / "draft"


PROMPT = "def area(width):\n    "


@pytest.mark.parametrize("name", OTHER)
@pytest.mark.parametrize("kind", ["embedded", "tiny"])
def test_another_models_draft_changes_nothing_of_a_text(tiny_pair, other_draft, kind, name):
    draft = embedded_folder("draft") if kind == "embedded" else other_draft
    with SpeculativePipeline(tiny_pair[0], draft, pairing=name, precision="exact") as pipeline:
        assert pipeline.pairing == name
        for length in (1, 4):
            options = {"max_new_tokens": 48, "ignore_eos": True}
            plain = pipeline.generate(PROMPT, num_assistant_tokens=0, **options)
            paired = pipeline.generate(PROMPT, num_assistant_tokens=length, **options)
            assert paired.token_ids == plain.token_ids
            assert paired.stats.drafted > 0
        drawn = {**options, "max_new_tokens": 16, "temperature": 1.0, "num_assistant_tokens": 4}
        assert pipeline.generate(PROMPT, **drawn).stats.drafted > 0


def test_auto_pairs_what_has_another_tokenizer_and_nothing_else(tiny_pair, other_draft):
    with SpeculativePipeline(*tiny_pair, pairing="auto") as pipeline:
        assert pipeline.pairing is None
    with SpeculativePipeline(tiny_pair[0], other_draft, pairing="auto") as pipeline:
        assert pipeline.pairing in PAIRINGS
    with pytest.raises(TokenizerMismatchError, match="pairing="):
        SpeculativePipeline(tiny_pair[0], other_draft)


@pytest.mark.parametrize("name", ONE)
def test_kv_caches_of_a_pairing_are_kept_in_files(tiny_pair, other_draft, tmp_path, name):
    pair, options = (tiny_pair[0], other_draft), {"max_new_tokens": 24, "ignore_eos": True}
    with SpeculativePipeline(*pair, pairing=name, precision="exact") as pipeline:
        first = pipeline.generate(PROMPT * 4, **options)
        pipeline.save_cache(tmp_path / "prompt.safetensors")
    held = load_file(tmp_path / "prompt.draft.safetensors")["tokens"].tolist()
    draft_text = PieceTokenizer(load_tokenizer(other_draft)).decode(held)
    assert draft_text.startswith((PROMPT * 4).encode())
    with SpeculativePipeline(*pair, pairing=name, precision="exact") as pipeline:
        pipeline.load_cache(tmp_path / "prompt.safetensors")
        again = pipeline.generate(PROMPT * 4, **options)
        fresh = pipeline.generate(PROMPT * 4, cache_prompt=False, **options)
    assert first.token_ids == again.token_ids == fresh.token_ids
    assert again.stats.cached_tokens > 0
    assert fresh.stats.cached_tokens == 0


@pytest.fixture
def preempted(monkeypatch):
    """The runners of the caches that requests waited for when they were preempted."""
    found, preempt = [], Sequence.preempt

    def noted(request):
        if request.fed_cache is not None:
            found.append(request.fed_cache.runner)
        preempt(request)

    monkeypatch.setattr(Sequence, "preempt", noted)
    return found


TEXTS = (TEXT, TEXT.replace("width", "größe"), PROSE * 2, "日本語 😀 " * 5)


def reading_any(pieces):
    """A model that goes on with that of several texts which begins as the sequence does."""
    models = [reading(pieces, text) for text in TEXTS]

    def next_token(tokens):
        known = pieces.decode(tokens)
        fitting = [
            m for m, text in zip(models, TEXTS, strict=True) if text.encode().startswith(known)
        ]
        return fitting[0](tokens) if fitting else pieces.eos_token_id

    return next_token


def rounds_together(pair, name, texts, num_blocks=None):
    """What each text's rounds drafted and added, all in the same passes; and the draft model."""
    sizes = {"num_blocks": num_blocks, "max_length": 240}
    main = ScriptedModel(reading_any(pair.main), vocab_size=pair.main_size, **sizes)
    draft = ScriptedModel(reading_any(pair.draft), vocab_size=pair.draft_size, **sizes)
    loop, sequences = EngineLoop(Engine(main, draft)), []
    for text in texts:
        prompt, drafter = pair.main.encode(text.encode())[:3], paired_drafter(draft, pair, name)
        ends = {"eos": {pair.main.eos_token_id}}
        sequences.append(sequence(main, prompt, 200, drafter, ConstantLength(4), **ends))
        loop.add(sequences[-1])
    return [[(r.draft_tokens, r.tokens) for r in loop.read(text)] for text in sequences], draft


@pytest.mark.parametrize("kind", ["prose", "sentencepiece"])
@pytest.mark.parametrize("name", PAIRINGS)
def test_drafts_in_shared_passes_are_those_of_each_alone_preempted_or_not(
    tokenizers, preempted, kind, name
):
    pair = tokenizers[kind]
    apart = [rounds_together(pair, name, [text])[0][0] for text in TEXTS]
    together, draft = rounds_together(pair, name, TEXTS)
    assert together == apart
    assert max(map(len, draft.sizes)) == len(TEXTS)
    assert not preempted
    together, draft = rounds_together(pair, name, TEXTS, num_blocks=60)
    assert together == apart
    assert draft in preempted
