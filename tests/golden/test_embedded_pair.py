"""The pair in `models/`: speculative output equals plain output, on real text."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ov_specdec import SpeculativePipeline
from tests.support.cores import every_core
from tests.support.prompts import PROMPTS

ROOT = Path(__file__).parents[2]
NEW_TOKENS = 64
OPTIONS = {"max_new_tokens": NEW_TOKENS, "ignore_eos": True}
LONG = {**OPTIONS, "max_new_tokens": 2 * NEW_TOKENS}
LENGTHS = (1, 2, 3, 5, 8)


@pytest.fixture(scope="module", params=["paged", "stateful"])
def pipelines(request):
    """One for each drafter, all on one KV backend."""
    return [
        SpeculativePipeline(kv=request.param, precision="exact", drafter=drafter)
        for drafter in ("model", "prompt-lookup", "both")
    ]


@pytest.mark.parametrize(
    "number",
    [pytest.param(n, marks=pytest.mark.deep if n % 16 else []) for n in range(len(PROMPTS))],
)
def test_speculative_equals_plain_decoding_token_for_token(pipelines, number):
    model, *others = pipelines
    other = others[number // 8 % len(others)]
    prompt, length = PROMPTS[number], LENGTHS[number % len(LENGTHS)]
    plain = model.generate(prompt, num_assistant_tokens=0, **OPTIONS)
    assert len(plain.token_ids) == NEW_TOKENS
    results = [
        model.generate(prompt, **OPTIONS),
        model.generate(prompt, num_assistant_tokens=length, **OPTIONS),
        other.generate(prompt, **OPTIONS),
    ]
    for result in results:
        assert result.token_ids == plain.token_ids
        assert result.text == plain.text
    assert sum(result.stats.accepted for result in results) > 0


def test_drafts_go_on_where_texts_exceed_the_drafts_context(pipelines):
    model = pipelines[0]
    context = model.draft.runner.max_length
    # One begins beyond it, one exceeds it while it grows.
    prompts = [(PROMPTS[0] * 99)[: 4 * context], (PROMPTS[1] * 99)[: 3 * context // 2]]
    plain = model.generate_batch(prompts, num_assistant_tokens=0, **LONG)
    results = model.generate_batch(prompts, num_assistant_tokens=4, **LONG)
    assert [result.token_ids for result in results] == [result.token_ids for result in plain]
    for result in results:
        last = result.stats.rounds[-1]
        assert last.cached_tokens > context
        assert sum(r.num_accepted for r in result.stats.rounds if r.cached_tokens > context) > 9


ON_EVERY_CORE = """
import json, sys

from ov_specdec import SpeculativePipeline
from tests.support.prompts import PROMPTS

outputs, options = [], json.loads(sys.argv[2])
pipeline = SpeculativePipeline(kv=sys.argv[1], precision="exact")
for prompt, length in zip(PROMPTS, (2, 5, 8)):
    both = [pipeline.generate(prompt, num_assistant_tokens=n, **options) for n in (0, length)]
    outputs.append([result.token_ids for result in both])
print(json.dumps(outputs))
"""


@pytest.mark.deep
@pytest.mark.parametrize("kv", ["paged", "stateful"])
def test_so_it_does_with_a_thread_for_every_core(kv):
    command = [sys.executable, "-c", ON_EVERY_CORE, kv, json.dumps(OPTIONS)]
    with every_core():
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    outputs = json.loads(done.stdout)
    assert [len(plain) for plain, _ in outputs] == [NEW_TOKENS] * 3
    assert all(plain == speculative for plain, speculative in outputs)
