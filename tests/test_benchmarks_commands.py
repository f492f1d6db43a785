"""The laboratory's commands, each on tiny models. Nothing here checks a speed."""

import json
from random import Random

import pytest

from ov_specdec.loading.locate import embedded_folder
from ov_specdec.planning.costs import NOMINAL
from tests.benchmarks.__main__ import main
from tests.benchmarks.record import Record
from tests.benchmarks.replay import replay_all
from tests.command_line import run

SHORT = ("--number", "1", "--size", "6")
PNG = b"\x89PNG\r\n\x1a\n"


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


def test_the_plot_of_the_planner_is_an_image(tmp_path):
    done = run("planner-plot", "--output", tmp_path / "chart.png", main=main)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "chart.png").read_bytes().startswith(PNG)


def test_the_cost_of_invariance_is_a_ratio_of_speeds(measure, pair):
    rows, lines = measure("invariance-cost", *pair, "--rounds", "2", "--cached", "20,5000")
    assert {row["way"] for row in rows} == {"speculative", "plain alone", "plain 8 together"}
    assert all(row["cached"] == 20 and row["ratio"] > 0 for row in rows)  # 5,000 have no room
    assert [line[0] for line in lines] == ["cached", "---", "20"]


def test_keys_in_f32_cost_nothing(measure, tiny_pair):
    options = ("--tokens", "40", "--caches", "u8 keys by token,f32", "--inference", "f32")
    rows, _ = measure("key-quantization", "--main", tiny_pair[0], *options, "--biases", "30")
    kl = {(row["bias"], row["cache"]): row["KL"] for row in rows}
    assert kl[0.0, "f32"] == kl[30.0, "f32"] == 0.0
    assert min(kl[bias, "u8 keys by token"] for bias in (0.0, 30.0)) > 0.0


def test_the_loop_is_compared_with_its_passes(measure, pair):
    options = ("--number", "1", "--rounds", "2", "--max-new-tokens", "8", "--lengths", "2")
    rows, _ = measure("loop-overhead", *pair, *options)
    assert [row["round"] for row in rows] == [0, 1]
    assert all(row["ratio"] > 0 for row in rows)


def test_outputs_are_recorded_and_replayed(measure, tiny_pair, tmp_path):
    """A model's own drafts are all accepted; the one that knows the output beats the others."""
    same = ("--main", tiny_pair[0], "--draft", tiny_pair[0], "--precision", "exact")
    run_ = ("--number", "2", "--max-new-tokens", "30", "--ignore-eos", "--drafts", "4")
    rows, lines = measure("record-outputs", *same, *run_)
    assert lines[2] == ["code", "2", "60", "50"]
    assert all(agree == 4 for row in rows for agree, _ in row["drafts"])
    drafters = "prompt-lookup,suffix,suffix with earlier,best match,model"
    outputs = ("replay", tmp_path / "record-outputs.json", "--drafters", drafters)
    replayed, lines = measure(*outputs, "--lengths", "0,4", name="constant")
    passes = {}
    for row in replayed:
        key = row["drafter"], row["length"]
        passes[key] = passes.get(key, 0) + row["passes"]
        assert row["passes"] == row["tokens"] or row["length"] != "0"
    assert passes["model", "4"] == 2 * 5
    assert passes["best match", "4"] <= min(passes["prompt-lookup", "4"], passes["suffix", "4"])
    assert lines[0] == ["task", *(f"{d} @{n}" for d in drafters.split(",") for n in (0, 4))]
    noisy = ("--rounds", "2", "--noise", "0.1", "--curve", "1b")
    rows, lines = measure(*outputs[:2], "--drafters", "model", *noisy, name="planned")
    assert {(row["round"], row["place"]) for row in rows} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert ["place", "model @auto"] in lines


def test_what_one_output_taught_is_forgotten_on_request():
    row = {"prompt": [1], "output": list(range(64)), "drafts": [(15, [0.9] * 15)] * 48}

    def passes(*, is_fresh):
        found = replay_all([row, row], "model", "auto", NOMINAL, 0.0, 0, is_fresh)
        return [each["passes"] for each in found]

    first, second = passes(is_fresh=True)
    assert first == second
    first, second = passes(is_fresh=False)
    assert first > second


def test_a_curve_that_is_none_is_refused(measure, tmp_path):
    Record.begin("record-outputs", {}, {}).write(tmp_path / "outputs.json")
    done = run("replay", tmp_path / "outputs.json", "--curve", "steep", main=main)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--curve 'steep' is no cost curve" in done.stderr


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


def test_what_sampling_costs(measure, pair):
    rows, lines = measure(
        *("sampling-cost", *pair, "--number", "1", "--rounds", "1", "--vocabulary", "200")
    )
    assert {row["timed"] for row in rows} == {"share", "one row", "seeded"}
    assert all(row["share"] > 0 for row in rows if row["timed"] == "share")
    assert len([line for line in lines if line[0] == "options"]) == 4


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


def test_errors_are_put_into_a_share_of_the_words():
    from tests.benchmarks.repairer import corrupt

    text = "The quick brown fox, which has seen the lazy dog, jumps over their fence. " * 20
    assert corrupt(text, Random(0), 0.0) == text
    assert corrupt(text, Random(0), 0.3) == corrupt(text, Random(0), 0.3) != text
    some, many = (len(set(corrupt(text, Random(1), share).split())) for share in (0.05, 0.5))
    assert len(set(text.split())) < some < many


def test_the_embedded_pair_is_recorded_by_its_hashes(measure, tmp_path):
    options = ("--number", "1", "--rounds", "1", "--max-new-tokens", "4", "--lengths", "2")
    measure("loop-overhead", *options)
    models = json.loads((tmp_path / "loop-overhead.json").read_text())["models"]
    assert {role: model["name"] for role, model in models.items()} == {
        "main": embedded_folder("main").name,
        "draft": embedded_folder("draft").name,
    }
    assert models["main"]["digest"] != models["draft"]["digest"]
