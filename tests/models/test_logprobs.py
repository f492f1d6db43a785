"""Log-probabilities: of rows, of rounds, and of a prompt that is read in parts."""

import json
from pathlib import Path

import numpy as np
import pytest

from ov_specdec import OptionError, SpeculativePipeline
from ov_specdec.drafters.model import DraftCache, ModelDrafter
from ov_specdec.engine import round as decoding
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.planning.policies import ConstantLength
from ov_specdec.sampling.logits import finite, token_logprobs
from ov_specdec.sampling.samplers import Sampler
from ov_specdec.text.tokenizer import load_tokenizer
from tests.support.command_line import run
from tests.support.fakes import ScriptedModel, mixing, wrong_at
from tests.support.running import rounds as rounds_of
from tests.support.running import sequence

ROWS = np.log(np.array([[0.1, 0.6, 0.3], [0.5, 0.0, 0.5]], np.float32) + 1e-30) + 7


def test_a_row_gives_the_logarithms_of_its_softmax():
    first, second = token_logprobs(ROWS, [2, 0], 2)
    assert first.token_id == 2
    assert first.logprob == pytest.approx(np.log(0.3), abs=1e-5)
    assert [token for token, _ in first.top] == [1, 2]
    assert [logprob for _, logprob in first.top] == pytest.approx(np.log([0.6, 0.3]), abs=1e-5)
    assert [token for token, _ in second.top] == [0, 2]  # the lower id of two that tie
    assert finite(-float("inf")) == -9999.0


def speculate(prompt, num_new, border=None, **options):
    """Rounds of a scripted pair whose draft is sometimes wrong. border: of the main model."""
    script = mixing(1)
    main = ScriptedModel(script, border=border)
    draft = ScriptedModel(wrong_at(script, {12, 17, 18}))
    drafter = ModelDrafter(DraftCache(draft), Sampler())
    length = len(prompt) + num_new
    text = sequence(
        main, prompt, length, drafter, ConstantLength(4), options=GenerationOptions(**options)
    )
    return text, list(rounds_of(text)), main


@pytest.mark.parametrize(
    ("length", "border"),
    [*((n, None) for n in (1, 2, 5, 6, 11, 30)), *((30, n) for n in (1, 4, 5, 6, 29, 30))],
)
def test_a_prompt_is_scored_in_parts_and_each_token_once(monkeypatch, length, border):
    monkeypatch.setattr(decoding, "SCORED_PER_PASS", 5)
    script = mixing(1)
    prompt = [2]
    while len(prompt) < length:  # what the model itself would say, but for one token
        prompt.append(7 if len(prompt) == 3 else script(prompt))
    plain, _, _ = speculate(prompt, 8)
    state, rounds, main = speculate(prompt, 8, border, prompt_logprobs=1)
    scored = rounds[0].prompt_logprobs
    assert [token.token_id for token in scored] == prompt
    assert scored[0].logprob is None
    wrong = [place for place, t in enumerate(scored[1:], 1) if t.top[0][0] != t.token_id]
    assert wrong == ([3] if length > 3 else [])
    assert state.tokens == plain.tokens
    assert (rounds[0].stats.cached_tokens, rounds[0].stats.pass_tokens) == (0, len(prompt))
    assert border is not None or max(main.passes[: len(prompt) // 5 + 1]) <= 6


@pytest.mark.parametrize("length", [1, 2, 70])
def test_a_prompt_is_scored_without_an_output(tiny_pair, length):
    prompt = [5, 9, 7, 8, 6] * 20
    with SpeculativePipeline(*tiny_pair, precision="exact") as pipeline:
        options = {"prompt_logprobs": 2, "cache_prompt": False}
        alone = pipeline.generate(prompt[:length], max_new_tokens=0, **options)
        beside = pipeline.generate(prompt[:length], max_new_tokens=1, **options)
        [chunk] = pipeline.stream(prompt[:length], max_new_tokens=0, **options)
        with pytest.raises(OptionError, match=r"max_new_tokens=0 .* needs prompt_logprobs: give b"):
            pipeline.generate(prompt, max_new_tokens=0)
    assert alone.prompt_logprobs == beside.prompt_logprobs == chunk.prompt_logprobs
    assert (alone.text, alone.token_ids, alone.finish_reason) == ("", [], "length")
    assert (alone.stats.generated_tokens, alone.stats.tokens_per_second) == (0, 0.0)


def test_the_command_line_shows_them_as_json(tiny_pair):
    models = ("--main", tiny_pair[0], "--draft", tiny_pair[1], "--max-new-tokens", 3)
    done = run("generate", "area(", *models, "--logprobs", 2, "--prompt-logprobs", 0, "--json")
    shown = json.loads(done.stdout)
    assert [token["token_id"] for token in shown["logprobs"]] == shown["token_ids"]
    assert len(shown["logprobs"][0]["top"]) == 2
    tokenizer = load_tokenizer(Path(tiny_pair[0]))
    for token in shown["logprobs"]:
        for each in (token, *token["top"]):
            own = tokenizer.piece(each["token_id"])
            assert each["text"] == own.decode(errors="backslashreplace")
    assert len(shown["prompt_logprobs"]) == shown["prompt_tokens"]
    refused = run("generate", "area(", *models, "--logprobs", 2)
    assert refused.returncode == 2
    assert "--logprobs 2 is shown with --json only" in refused.stderr
