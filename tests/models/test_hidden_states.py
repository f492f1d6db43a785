"""Draft models that read hidden states: what the main model gives, and what they make of it."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from ov_specdec import ExportError, ModelError, SpeculativePipeline
from ov_specdec.drafters.hidden_states import HeadCache, HeadDrafter
from ov_specdec.graph import hidden_states as graph
from ov_specdec.graph.hidden_states import hidden_states
from ov_specdec.graph.products import OUTSIDE
from ov_specdec.models import eagle3
from ov_specdec.models import heads as heads_module
from ov_specdec.models.compile import load_model
from ov_specdec.models.devices import RuntimeConfig
from ov_specdec.models.export import ORIGIN_FILE, export_model
from ov_specdec.models.exported import open_exported, read_ir
from ov_specdec.models.folder import ModelFolder
from ov_specdec.models.heads import add_pard2
from ov_specdec.planning.plan import Plan
from ov_specdec.runner.base import Span
from ov_specdec.runner.cached_sequence import PREFILL_CHUNK, CachedSequence, alone, forward
from ov_specdec.runner.probe import try_static
from tests.support import tiny_heads
from tests.support.command_line import run
from tests.support.passes import NUM_IDS, Noting, tokens
from tests.support.server import serving
from tests.support.tiny import VOCAB_SIZE, export
from tests.support.tiny_heads import DRAFTED, Format, pard2_rows, save_main, save_pard2

SOURCE = Path(tiny_heads.__file__)
EXPORTS = [Path(module.__file__) for module in (heads_module, eagle3, graph)]
FORMATS = {
    "safeailab": Format(),
    "safeailab-qwen3": Format("qwen3", drafted=list(range(VOCAB_SIZE))),
    "speculators": Format(speculators=True, layers=(1, 4, 7)),
    "speculators-qwen3": Format(
        "qwen3",
        speculators=True,
        flags={"norm_before_residual": True, "norm_before_fc": True, "norm_output": True},
        layers=(2, 4, 5),
    ),
    "speculators-layers": Format(
        speculators=True, flags={"fc_norm": True}, num_layers=2, layers=(0, 3, 3, 8)
    ),
}


@pytest.fixture(scope="module")
def mains(shelf, tmp_path_factory):
    """Main models of eight layers, by architecture: checkpoints and exports."""

    def make(architecture):
        def fill(folder):
            save_main(folder / "checkpoint", architecture)
            export(folder / "checkpoint", folder / "main")

        target = tmp_path_factory.mktemp(architecture) / "all"
        made = shelf.copy(f"deep-{architecture}", fill, target, SOURCE)
        return made / "checkpoint", made / "main"

    return {name: make(name) for name in ("llama", "qwen3")}


@pytest.fixture(scope="module")
def heads(mains, shelf, tmp_path_factory):
    """Exported heads for the llama, by format."""

    def fill(folder):
        for name, format_ in FORMATS.items():
            format_.save(folder / name)
            export_model(str(folder / name), folder, "fp16", main=mains["llama"][1])

    target = tmp_path_factory.mktemp("heads") / "all"
    made = shelf.copy("heads", fill, target, SOURCE, *EXPORTS)
    return {name: made / f"{name}-fp16" for name in FORMATS}


@pytest.fixture(scope="module")
def pard2(mains, shelf, tmp_path_factory):
    """PARD-2 models for both main models, by architecture: checkpoints and exports."""

    def fill(folder):
        for architecture, (_, main) in mains.items():
            checkpoint = folder / architecture
            save_pard2(checkpoint, architecture)
            exported = export(checkpoint, folder / f"{architecture}-draft")
            add_pard2(str(checkpoint), tiny_heads.config_of(checkpoint), main, exported)

    target = tmp_path_factory.mktemp("pard2") / "all"
    made = shelf.copy("pard2", fill, target, SOURCE, *EXPORTS)
    return {name: (made / name, made / f"{name}-draft") for name in mains}


@pytest.fixture
def draft(heads, pard2, kind):
    """The export of this kind for the llama."""
    return pard2["llama"][1] if kind == "pard2" else heads[kind]


def loaded(folder, draft=None, **settings):
    """A loaded model; with the hidden states that a draft model in a folder reads, if any."""
    if draft is not None:
        settings["projection"] = draft / "openvino_projection.xml"
    return load_model(open_exported(folder), RuntimeConfig(**settings))


class Pair:
    """A text that main model and head hold."""

    def __init__(self, main, head, text):
        self.text, self.sampler = list(text), Noting()
        self.head = HeadCache(head)
        self.drafter = HeadDrafter(self.head, self.sampler)
        self.main = CachedSequence(main, readers=[self.drafter])

    def read(self):
        alone(self.main.advance(self.text[:-1]))

    def propose(self, length):
        return self.drafter.propose(self.text, Plan(length, "constant"))

    def verify(self, drafted, num_accepted):
        """Feed a draft, accept some of it, and go on with another token."""
        alone(self.main.advance(self.text, drafted))
        self.main.observe_accepted(num_accepted)
        self.text += [*drafted[:num_accepted], (7 * len(self.text)) % NUM_IDS]

    def free(self):
        self.main.free()
        self.head.free()


def check_rows(pair, reference, proposal, drafted=DRAFTED):
    start = pair.head._start
    expected = reference.rows(pair.text, proposal.draft.tokens[:-1], start).numpy()
    rows = np.array([row for _, row in pair.sampler.rows])
    known = [token for token in drafted if token < NUM_IDS]
    np.testing.assert_allclose(rows[:, known], expected[:, : len(known)], rtol=0, atol=1e-4)
    assert (np.delete(rows, known, axis=1) == OUTSIDE).all()
    pair.sampler.rows.clear()


def together(steps, length=4):
    """Run drafts of as many tokens, each pass over all of them; what they propose."""
    for _ in range(length):
        caches = list(map(next, steps))
        forward(caches, [cache.span(PREFILL_CHUNK) for cache in caches])
    return list(map(alone, steps))


@pytest.mark.parametrize("kv", ["paged", "stateful"])
@pytest.mark.parametrize("name", FORMATS)
def test_rows_of_a_head_are_those_of_torch(mains, heads, name, kv):
    checkpoint, folder = mains["llama"]
    main = loaded(folder, heads[name], precision="exact", kv=kv).runner
    head = loaded(heads[name], precision="exact", kv=kv).runner
    format_ = FORMATS[name]
    reference = format_.reference(checkpoint)
    pairs = [Pair(main, head, tokens(size, size)) for size in (9, 30, 2)]
    for pair in pairs:
        pair.read()
    for number in range(5):
        for pair, proposal in zip(
            pairs, together([pair.propose(4) for pair in pairs]), strict=True
        ):
            check_rows(pair, reference, proposal, format_.drafted)
            pair.verify(proposal.draft.tokens, number)


@pytest.mark.parametrize(("weights", "distance"), [("int8", 0.05), ("int4", 0.4)])
def test_rows_of_a_head_with_compressed_weights_are_near(mains, heads, tmp_path, weights, distance):
    (checkpoint, main), format_ = mains["llama"], FORMATS["safeailab"]
    format_.save(tmp_path / "head")
    folder = export_model(str(tmp_path / "head"), tmp_path, weights, main=main).folder
    files = (each / "openvino_model.bin" for each in (folder, heads["safeailab"]))
    small, large = (file.stat().st_size for file in files)
    assert small < large
    runner = loaded(main, folder, precision="exact").runner
    pair = Pair(runner, loaded(folder, precision="exact").runner, tokens(30))
    pair.read()
    drafted = alone(pair.propose(4)).draft.tokens
    expected = format_.reference(checkpoint).rows(pair.text, drafted[:-1]).numpy()
    known = [token for token in DRAFTED if token < NUM_IDS]
    expected = expected[:, : len(known)]
    found = np.array([row for _, row in pair.sampler.rows])[:, known]
    assert np.abs(found - expected).mean() < distance * expected.std()


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
@pytest.mark.parametrize("kv", ["paged", "stateful"])
def test_rows_of_pard2_are_those_of_torch(mains, pard2, architecture, kv):
    main_checkpoint, folder = mains[architecture]
    checkpoint, draft = pard2[architecture]
    main = loaded(folder, draft, precision="exact", kv=kv).runner
    runner = loaded(draft, precision="exact", kv=kv).runner
    pair = Pair(main, runner, tokens(9))
    pair.read()
    for number in range(4):
        proposal = alone(pair.propose(3))
        expected = pard2_rows(checkpoint, main_checkpoint, pair.text, 3)[:, :NUM_IDS].numpy()
        rows = np.array([row for _, row in pair.sampler.rows])
        np.testing.assert_allclose(rows, expected, rtol=0, atol=1e-4)
        pair.sampler.rows.clear()
        pair.verify(proposal.draft.tokens, number)


@pytest.fixture(scope="module")
def runners(mains, heads):
    """A main model and a head, in exact precision."""
    head = heads["safeailab"]
    main = loaded(mains["llama"][1], head, precision="exact").runner
    return main, loaded(head, precision="exact").runner


def test_a_head_begins_where_there_are_hidden_states(mains, runners):
    reference, text = FORMATS["safeailab"].reference(mains["llama"][0]), tokens(150, 4)
    first = Pair(*runners, text[:100])
    first.read()
    check_rows(first, reference, alone(first.propose(2)))
    first.free()
    # Both caches hold nearly the same text: a head goes on with its own.
    same = Pair(*runners, text[:120])
    same.read()
    assert 60 < same.main._num_cached <= 98
    check_rows(same, reference, alone(same.propose(2)))
    assert same.head._start == 1
    assert same.head._num_fed < 60
    same.free()
    # Another namespace of the head: only the main model holds the text, and reads it no more.
    other = Pair(*runners, text)
    other.head = other.drafter._head = other.drafter._cache = HeadCache(runners[1], "other")
    other.read()
    assert other.main._num_cached > 90
    check_rows(other, reference, alone(other.propose(2)))
    assert other.head._start == other.main._num_cached + 1
    other.free()


def test_a_freed_head_goes_on_with_the_states_that_it_has(mains, runners):
    reference = FORMATS["safeailab"].reference(mains["llama"][0])
    pair = Pair(*runners, tokens(40, 6))
    pair.read()
    alone(pair.propose(3))
    pair.sampler.rows.clear()
    pair.free()
    for cache in (pair.main, pair.head):  # as after a preemption
        cache.match_prefix()
    pair.verify([], 0)
    check_rows(pair, reference, alone(pair.propose(3)))
    assert pair.head._start == 1
    pair.free()


def test_a_head_reads_the_latest_tokens_that_fit(mains, heads, runners, monkeypatch):
    reference = FORMATS["safeailab"].reference(mains["llama"][0])
    monkeypatch.setattr(runners[1], "max_length", 32)
    monkeypatch.setattr("ov_specdec.drafters.hidden_states.SLACK", 8)
    pair = Pair(*runners, tokens(100, 8))
    pair.read()  # of a prompt, only the latest states are kept
    assert len(pair.head.states._rows) <= 40
    starts = set()
    for number in range(12):
        proposal = alone(pair.propose(3))
        check_rows(pair, reference, proposal)
        starts.add(pair.head._start)
        pair.verify(proposal.draft.tokens, number % 4)
    assert len(starts) > 1
    assert min(starts) == 68  # the first whose state is kept, and not more than fit
    pair.text += tokens(60, 9)  # an idle head
    pair.read()
    check_rows(pair, reference, alone(pair.propose(3)))
    pair.free()


def outputs(runner, states):
    """Logits of passes of several forms over texts."""
    found, slots = [], [runner.open(object()) for _ in range(3)]
    for sizes in ((20, 3, 9), (1, 1, 1), (5, 1, 8), (4, 0, 0)):
        spans = []
        for slot, size in zip(slots, sizes, strict=True):
            taken = np.empty((size, runner.hidden_size), np.float32) if states else None
            ids = tokens(size, size + slot.length)
            if size:
                spans.append(Span(slot, ids, size, size if slot.length else 0, taken))
        found += [rows.copy() for rows in runner.forward(spans)]
        for slot in slots:
            slot.rollback(max(slot.length - 1, 2))
    return found


@pytest.mark.parametrize("precision", ["default", "exact"])
@pytest.mark.parametrize("form", ["paged", "invariant", "static", "stateful"])
def test_logits_of_the_main_model_stay_the_same_to_the_bit(mains, heads, precision, form):
    settings = {"precision": precision, "kv": "stateful" if form == "stateful" else "paged"}
    settings |= {"batch_invariant": form == "invariant"}
    settings |= {"static_shapes": [3, 4]} if form == "static" else {}
    with_states = loaded(mains["llama"][1], heads["speculators-layers"], **settings)
    without = loaded(mains["llama"][1], **settings)
    assert with_states.fingerprint() != without.fingerprint()
    if form == "static":
        for made in (with_states, without):
            for size in (3, 4):
                assert try_static(made.runner, size, made.compiler(size)()) is not None
    for own, other in zip(
        outputs(with_states.runner, True), outputs(without.runner, False), strict=True
    ):
        np.testing.assert_array_equal(own, other)


def test_hidden_states_are_found_in_any_graph(pair):
    import openvino as ov
    import torch
    from transformers import AutoModelForCausalLM

    ir = read_ir(ModelFolder.read(pair.main))
    found = hidden_states(ir)
    ids = np.array([tokens(10)])
    ir.add_outputs(found)
    request = ov.Core().compile_model(ir, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "beam_idx": np.zeros(1, int)}
    given |= {"position_ids": np.arange(10)[None]}
    names = {name for port in request.inputs for name in port.names}
    _, *results = request({name: given[name] for name in names}).values()
    reference = AutoModelForCausalLM.from_pretrained(pair.checkpoint).eval()
    with torch.no_grad():
        expected = reference(torch.tensor(ids), output_hidden_states=True).hidden_states
    for own, other in zip(results, expected, strict=True):
        np.testing.assert_allclose(own, other.numpy(), atol=1e-4)


RUN = {"max_new_tokens": 40, "ignore_eos": True}
PROMPTS = ["def area(width):\n    ", "print(area(3, 4))", "height"]


@pytest.mark.parametrize("kind", ["safeailab", "speculators-qwen3", "pard2"])
@pytest.mark.parametrize(
    ("kv", "drafter"), [("paged", "model"), ("paged", "both"), ("stateful", "model")]
)
def test_texts_are_plain_decodings(mains, draft, kv, drafter):
    main = mains["llama"][1]
    with SpeculativePipeline(main, draft, kv=kv, drafter=drafter, precision="exact") as pipeline:
        for options in ({}, {"do_sample": True, "temperature": 0.8, "seed": 7}):
            own = {**RUN, **options}
            plain = [
                pipeline.generate(prompt, num_assistant_tokens=0, **own).token_ids
                for prompt in PROMPTS
            ]
            for length in (1, 4, "auto"):
                many = pipeline.generate_batch(PROMPTS, num_assistant_tokens=length, **own)
                assert [result.token_ids for result in many] == plain
        first = pipeline.generate(PROMPTS[0], num_assistant_tokens=4, **RUN)
        longer = [*pipeline.tokenizer.encode(PROMPTS[0]), *first.token_ids]
        again = pipeline.generate(longer, num_assistant_tokens=4, **RUN)
        assert again.stats.cached_tokens > 0
        assert again.stats.drafted > 0


def test_a_head_is_exported_and_checked_from_the_command_line(mains, tmp_path):
    main = mains["llama"][1]
    FORMATS["safeailab"].save(tmp_path / "head")
    done = run("export", "--main", main, "--draft", tmp_path / "head", "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    draft = tmp_path / "head-fp16"
    assert f"try: ov-specdec generate PROMPT --main {main} --draft {draft}" in done.stdout
    assert not export_model(str(tmp_path / "head"), tmp_path, "fp16").is_new
    checked = run("check", main, draft)
    assert checked.stdout.splitlines()[-3] == "compatible"


@pytest.mark.parametrize("kind", [*FORMATS, "pard2"])
def test_every_format_runs_from_the_command_line_and_in_the_server(mains, draft):
    main = mains["llama"][1]
    common = ("--main", main, "--max-new-tokens", 12, "--ignore-eos", "--precision", "exact")
    plain = run("generate", "def", *common, "--drafter", "none")
    own = run("generate", "def", *common, "--draft", draft, "--num-assistant-tokens", 3)
    assert (own.returncode, own.stdout) == (0, plain.stdout), own.stderr
    with SpeculativePipeline(main, draft, precision="exact") as pipeline, serving(pipeline) as it:
        text = it.complete("def", max_tokens=12, ignore_eos=True, num_assistant_tokens=3)
        assert text["choices"][0]["text"] == plain.stdout.removeprefix("def").removesuffix("\n")
        assert it.metric("spec_decode_num_draft_tokens_total") > 0


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"layers": (2, 4, 9), "speculators": True}, "has no use without layers"),
        ({"layers": (2, 4)}, "reads 96 values of hidden states, and the main model has 144"),
        ({"drafted": [5, 5, 7]}, r"or some twice \(d2t\)"),
        ({"drafted": [5, VOCAB_SIZE]}, "drafts tokens that .* does not have"),
    ],
)
def test_a_head_for_another_main_model_is_not_exported(mains, tmp_path, change, complaint):
    Format(**change).save(tmp_path / "head")
    with pytest.raises(ExportError, match=complaint):
        export_model(str(tmp_path / "head"), tmp_path, "fp16", main=mains["llama"][1])


def test_a_main_model_that_does_not_fit_is_refused(tiny_pair, heads):
    with pytest.raises(ModelError, match="reads hidden state 4 of the main model, whose graph"):
        SpeculativePipeline(tiny_pair[0], heads["safeailab"])


def test_a_head_that_was_exported_for_another_main_model_is_not_taken(mains, tmp_path):
    FORMATS["safeailab"].save(tmp_path / "head")
    main = shutil.copytree(mains["llama"][1], tmp_path / "main")
    folder = export_model(str(tmp_path / "head"), tmp_path, "fp16", main=main).folder
    assert not export_model(str(tmp_path / "head"), tmp_path, "fp16", main=main).is_new
    (main / ORIGIN_FILE).write_text("owner/tuned\n")
    complaint = f"{folder} was made from .*head for .*, not from .*head for owner/tuned: choose"
    with pytest.raises(ExportError, match=complaint):
        export_model(str(tmp_path / "head"), tmp_path, "fp16", main=main)
