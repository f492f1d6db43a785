"""The pair in `models/`: speculative output equals plain output, on real text."""

import pytest

from ov_specdec import SpeculativePipeline
from ov_specdec.loading.locate import embedded_folder
from ov_specdec.loading.source import check_pair, open_source
from tests.prompts import PROMPTS

NEW_TOKENS = 128


@pytest.mark.parametrize("kv", ["paged", "stateful"])
def test_speculative_equals_plain_decoding_token_for_token(kv):
    model = SpeculativePipeline(kv=kv, precision="exact")
    lookup = SpeculativePipeline(kv=kv, precision="exact", drafter="prompt-lookup")
    both = SpeculativePipeline(kv=kv, precision="exact", drafter="both")
    accepted = 0
    for number, prompt in enumerate(PROMPTS):
        options = {"max_new_tokens": NEW_TOKENS, "ignore_eos": True}
        plain = model.generate(prompt, num_assistant_tokens=0, **options)
        assert len(plain.token_ids) == NEW_TOKENS
        length = (1, 2, 3, 5, 8)[number % 5]
        for result in (
            model.generate(prompt, **options),
            model.generate(prompt, num_assistant_tokens=length, **options),
            lookup.generate(prompt, **options),
            both.generate(prompt, num_assistant_tokens=length, **options),
        ):
            assert result.token_ids == plain.token_ids, prompt
            assert result.text == plain.text
            accepted += result.stats.accepted
    assert accepted > 0


def test_the_pair_shares_its_tokenizer():
    main, draft = (open_source(embedded_folder(role)) for role in ("main", "draft"))
    report = check_pair(main, draft)
    assert report.compatible, list(report.lines())
    assert main.tokenizer.vocab_size == 4096


def test_the_draft_is_a_fraction_of_the_main():
    main, draft = (
        (embedded_folder(role) / "openvino_model.bin").stat().st_size for role in ("main", "draft")
    )
    assert draft < main / 5
    assert main + draft < 40e6
