"""Structured output with real grammars on scripted models: as in plain decoding, and faster."""

import pytest
from jsonschema import validate

from tests.support.structured import generate, generator, random_logits

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "count": {"type": "integer", "minimum": 0, "maximum": 999},
        "kind": {"enum": ["large", "larger", "small"]},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    },
    "required": ["name", "count", "kind", "tags"],
    "additionalProperties": False,
}

CONSTRAINTS = [
    {"json_schema": SCHEMA},
    {"json_schema": SCHEMA, "json_whitespace": "spaced"},
    {"regex": r"[a-c]{2,5}-\d\d:(yes|no)"},
    {"choices": ["left", "left turn", 'a "quoted" word', "é\n"]},
    {"grammar": 'start: item ("," item)~1..3\nitem: "x=" NUMBER\nNUMBER: /[0-9]{1,3}/'},
]

LENGTH = {"max_new_tokens": 200}
DRAFTERS = [
    {"draft": random_logits(noise=0.5)},
    {"draft": random_logits(noise=0.5), "drafter": "both"},
    {"drafter": "suffix"},
    {"drafter": "prompt-lookup"},
    {"drafter": "none"},
]


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "seed": 7}], ids=["greedy", "seed"])
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_a_text_is_that_of_plain_decoding(constraint, drafter, sampling):
    made, options = generator(**drafter), {**constraint, **LENGTH, **sampling}
    for prompt in ("def area(", 'x=1,x=1 {"name": left'):
        plain = generate(made, prompt, **options, num_assistant_tokens=0)
        assert plain.finish_reason == "stop"
        assert plain.parsed is not None
        assert (plain.stats.forced, plain.stats.drafted) == (0, 0)
        lengths = ["auto", 3] if drafter != {"drafter": "none"} else ["auto"]
        for length in lengths:
            result = generate(made, prompt, **options, num_assistant_tokens=length)
            assert result.token_ids == plain.token_ids
            assert result.parsed == plain.parsed
            passes = result.stats.main_passes
            forced, accepted = result.stats.forced, result.stats.accepted
            # Of the last round, the end may be a draft token.
            assert passes + forced + accepted - len(plain.token_ids) in (0, 1)
        if "json_schema" in constraint:
            validate(plain.parsed, SCHEMA)
            assert result.stats.forced > 20
