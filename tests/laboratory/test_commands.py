"""The laboratory's commands, each on tiny models. Nothing here checks a speed."""

import pytest

from ov_specdec.planning.costs import NOMINAL
from tests.benchmarks.__main__ import main
from tests.benchmarks.record import Record
from tests.benchmarks.replay import foresight, total
from tests.benchmarks.replay import run as run_replayed
from tests.benchmarks.simulated.machine import Machine
from tests.benchmarks.simulated.recorded import RecordedModel, output_of
from tests.support.command_line import run

pytestmark = pytest.mark.deep

SHORT = ("--number", "1", "--size", "6")


@pytest.fixture
def measure(tmp_path):
    """Runs a command, and gives its rows and its table's lines as cells."""

    def measured(*arguments, name=None):
        file = tmp_path / f"{name or arguments[0]}.json"
        done = run(*arguments, "--output", file, main=main)
        assert done.returncode == 0, done.stderr
        lines = [line for line in done.stdout.splitlines() if line.startswith("|")]
        return Record.read(file).rows, [line.strip("| ").split(" | ") for line in lines]

    return measured


@pytest.fixture
def pair(tiny_pair):
    return "--main", tiny_pair[0], "--draft", tiny_pair[1]


def test_a_block_accepts_no_less_than_single_tokens(measure, pair):
    rows, lines = measure("accepted-per-round", "rule", *pair, *SHORT)
    assert all(row["block"] >= row["token by token"] - 1e-9 for row in rows)
    held = [row["options"] for row in rows if "block, draft not held to the support" in row]
    assert len(held) == 4
    assert lines[0][:3] == ["options", "token by token", "block"]
    assert len(lines) == 2 + len(rows)


def test_a_pairing_accepts_less_the_fewer_tokens_are_in_common(measure):
    """The embedded pair: the others have no pairing to begin with."""
    rows, lines = measure("accepted-per-round", "pairing", *SHORT)
    shares = {row["pairing"]: row["common"] for row in rows if row["options"] == "greedy"}
    assert shares["intersection, 100%"] == 1.0
    assert shares["intersection, 80%"] < 1.0
    greedy = {row["pairing"]: row["accepted"] for row in rows if row["options"] == "greedy"}
    assert greedy["intersection, 100%"] >= greedy["intersection, 80%"]
    assert lines[0] == [
        *("pairing", "common tokens of the text", "greedy"),
        *("temperature 0.7", "temperature 1"),
    ]


def test_a_model_agrees_with_itself(measure, tiny_pair):
    same = ("--main", tiny_pair[0], "--draft", tiny_pair[0], "--precision", "exact")
    told = ("--temperatures", "0,0.8", "--rounds", "2", "--told", "2,0,10000")
    rows, _ = measure("agreement", *same, *SHORT, *told)
    own = [row for row in rows if row["told"] == "all it holds"]
    assert len(own) == 3  # greedy, and two seeds
    assert all(row["agrees"] == 1.0 for row in own)
    assert all(row["overlap"] == pytest.approx(1.0, abs=1e-3) for row in own if row["temperature"])
    assert {row["told"] for row in rows} == {2, "all it holds"}


def test_outputs_are_recorded_and_replayed(measure, tiny_pair, tmp_path):
    """A model's own drafts are all accepted; the one that knows the output beats the others."""
    same = ("--main", tiny_pair[0], "--draft", tiny_pair[0], "--precision", "exact")
    run_ = ("--number", "2", "--max-new-tokens", "30", "--ignore-eos", "--drafts", "4")
    rows, lines = measure("record-outputs", *same, *run_)
    assert lines[2] == ["code", "2", "60", "50"]
    assert all(agree == 4 for row in rows for agree, _ in row["drafts"])
    drafters = "prompt-lookup,suffix,suffix with earlier,best match,model"
    outputs = ("replay", tmp_path / "record-outputs.json", "--drafters", drafters)
    replayed, lines = measure(*outputs, name="replayed")
    found = {row["drafter"]: row for row in replayed}
    assert list(found) == drafters.split(",")
    assert all(0 < row["to foresight"] <= 1 for row in replayed)
    assert found["model"]["best"] >= 4  # as many as were recorded, all of them accepted
    assert found["model"]["to plain"] > 1.5
    assert lines[0][:4] == ["machine", "drafter", "to best", "best"]


SURE = {"task": "a", "prompt": [1], "output": list(range(64)), "drafts": [(15, [0.9] * 15)] * 48}


def test_seconds_of_replayed_rounds_are_those_of_the_machine():
    """A pass over 5 tokens and 4 steps of the draft model; nobody knew better with length 15."""
    times = run_replayed([SURE], "model", Machine(NOMINAL), 4)[0]
    assert [done for done, _ in times] == [*range(1, 49, 5)]
    assert times[1][1] == pytest.approx(1.4 + 4 * 0.1)
    best = foresight(output_of(SURE, RecordedModel(SURE)), NOMINAL)
    always = run_replayed([SURE], "model", Machine(NOMINAL), 15)
    assert best[1] == pytest.approx(total(always), rel=0.1)
    assert best[1] <= total(always)


def test_texts_that_differ_are_counted(measure, pair):
    options = ("--number", "2", "--max-new-tokens", "8", "--no-peers")
    only = ("--only", "suffix, 4 at a time", "--only", "whole, restarted")
    rows, lines = measure("same-texts", *pair, *options, *only, "--precision", "exact")
    assert [row["way"] for row in rows[::2]] == [
        "suffix, 4 at a time, arriving",
        "server, 16 clients, whole, restarted",
    ]
    assert all((row["differ"], row["of"]) == (0, 2) for row in rows)
    assert lines[0] == ["way", "greedy", "seeded"]


def test_a_whisper_that_is_expanded_computes_the_same():
    import torch
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    from tests.benchmarks.expand_whisper import expanded

    torch.manual_seed(0)
    shape = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": 60}
    heads = dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2)
    widths = dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 32)
    ids = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 1)
    config = WhisperConfig(
        **shape, **heads, **widths, **ids, decoder_start_token_id=2, max_source_positions=10
    )
    small = WhisperForConditionalGeneration(config).eval()
    large = expanded(small, layers=3)
    inputs = {"input_features": torch.randn(1, 80, 20), "decoder_input_ids": torch.tensor([[2, 5]])}
    with torch.no_grad():
        found, wanted = large(**inputs).logits, small(**inputs).logits
    assert large.model.decoder.layers[2].self_attn.q_proj.weight.shape == (32, 32)
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
