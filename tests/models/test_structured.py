"""Structured output of tiny models, from Python and the command line."""

import pytest
from jsonschema import validate

from ov_specdec import SpeculativePipeline
from ov_specdec.models.locate import embedded_folder

PROMPT = "def area("
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "size": {"enum": ["small", "large", 3]},
        "parts": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
    },
    "required": ["name", "size", "parts"],
    "additionalProperties": False,
}
LENGTH = {"max_new_tokens": 120}
PLAIN = {"num_assistant_tokens": 0}


@pytest.mark.parametrize("pairing", ["intersection", "retokenize"])
def test_drafts_of_another_tokenizer_fit_too(tiny_pair, pairing):
    main, draft = tiny_pair[0], embedded_folder("draft")
    with SpeculativePipeline(main, draft, precision="exact", pairing=pairing) as made:
        plain = made.generate(PROMPT, json_schema=SCHEMA, **LENGTH, **PLAIN)
        result = made.generate(PROMPT, json_schema=SCHEMA, **LENGTH, num_assistant_tokens=3)
        assert result.token_ids == plain.token_ids
        assert result.stats.drafted > 0
        validate(result.parsed, SCHEMA)


def test_a_text_to_text_model_begins_with_its_own_token(encoder_decoder):
    main = encoder_decoder("bart").main
    with SpeculativePipeline(main, drafter="none", precision="exact") as made:
        forced = {"forced_bos_token_id": 3}
        for more in ({}, forced):
            plain = made.generate(PROMPT, json_schema=SCHEMA, max_new_tokens=100, **PLAIN, **more)
            result = made.generate(PROMPT, json_schema=SCHEMA, max_new_tokens=100, **more)
            assert result.token_ids == plain.token_ids
            assert (result.token_ids[0] == 3) == bool(more)
            assert result.stats.forced > 3
