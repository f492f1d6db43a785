"""Several architectures, exported for real: speculative output is plain output, and torch's."""

import pytest

from ov_specdec import SpeculativePipeline
from tests.tiny import ARCHITECTURES, make_pair

PROMPTS = ([5, 6, 7, 8, 9, 10], [280, 17, 200] * 12)
NEW_TOKENS = 80


def reference(checkpoint, prompt):
    """Greedy decoding by transformers on torch, without any cache."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(checkpoint).eval()
    tokens = list(prompt)
    with torch.no_grad():
        for _ in range(NEW_TOKENS):
            logits = model(torch.tensor([tokens]), use_cache=False).logits[0, -1, :290]
            tokens.append(int(logits.argmax()))
    return tokens[len(prompt) :]


@pytest.fixture(scope="module", params=ARCHITECTURES)
def pair(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    main, draft = make_pair(request.param, folder)
    expected = [reference(folder / "main-checkpoint", prompt) for prompt in PROMPTS]
    return main, draft, expected


@pytest.mark.parametrize(
    ("kv", "max_hidden_tokens"), [("paged", None), ("stateful", None), ("stateful", 0)]
)
def test_speculative_is_plain_is_the_checkpoints_own(pair, kv, max_hidden_tokens):
    main, draft, expected = pair
    pipeline = SpeculativePipeline(
        main, draft, kv=kv, precision="exact", max_hidden_tokens=max_hidden_tokens
    )
    assert pipeline.main.kv == kv
    options = {"max_new_tokens": NEW_TOKENS, "ignore_eos": True}
    accepted = drafted = 0
    for prompt, output in zip(PROMPTS, expected, strict=True):
        assert pipeline.generate(prompt, num_assistant_tokens=0, **options).token_ids == output
        for length in (1, 4, "auto"):
            result = pipeline.generate(prompt, num_assistant_tokens=length, **options)
            assert result.token_ids == output
            accepted += result.stats.accepted
            drafted += result.stats.drafted
    assert 0.05 * drafted < accepted < drafted, "nothing was rejected, or nothing accepted"
