"""Several turns on one pipeline: with a salt, later prompts hold answers as they were generated."""

import pytest

from ov_specdec import SpeculativePipeline
from tests.support.chats import USER

MINE = {"cache_salt": "mine"}
SAMPLED = {"temperature": 1.5, "seed": 3, "max_new_tokens": 24, "suppress_tokens": [0], **MINE}
"""What a random model draws is hardly ever what its text encodes to. Token 0 has no text."""


@pytest.fixture(scope="module")
def pipeline(chat_pair):
    with SpeculativePipeline(*chat_pair, precision="exact") as pipeline:
        yield pipeline


def prompt_ids(pipeline, messages, **salt):
    """The ids that a pipeline reads for messages, as logits processors see them."""
    seen = []

    def watch(tokens, logits):
        seen.append(tokens)
        return logits

    options = {"max_new_tokens": 1, "num_assistant_tokens": 0, "logits_processor": [watch]}
    pipeline.generate(messages, **options, **salt)
    return seen[0]


def later(pipeline, text):
    """What is read where a text was the answer to the user's message."""
    return prompt_ids(pipeline, [USER, {"role": "assistant", "content": text}, USER], **MINE)


def test_a_later_turn_reads_what_was_generated(pipeline):
    before = prompt_ids(pipeline, [USER])
    assert before == prompt_ids(pipeline, USER["content"])
    result = pipeline.generate([USER], **SAMPLED)
    assert later(pipeline, result.text)[: len(before) + 24] == [*before, *result.token_ids]
    follow_up = [USER, {"role": "assistant", "content": result.text}, USER]
    pipeline.generate([USER], **SAMPLED)
    # The cache holds all of the first turn but its newest token, which no model has read.
    cached = pipeline.generate(follow_up, max_new_tokens=1, **MINE).stats.cached_tokens
    # Earlier tests may have left blocks that hold even more.
    assert cached >= len(before) + len(result.token_ids) - 1
    with SpeculativePipeline(pipeline.tokenizer.path, drafter="none") as fresh:
        assert later(fresh, result.text) != later(pipeline, result.text)


@pytest.mark.parametrize("end", ["cancel", "close"])
def test_a_stream_that_was_ended_is_remembered_as_far_as_it_came(pipeline, end):
    before = prompt_ids(pipeline, [USER])
    options = {**SAMPLED, "seed": 5, "num_assistant_tokens": 2}
    with pipeline.stream([USER], **options) as stream:
        chunks = [next(stream) for _ in range(8)]
        if end == "cancel":
            stream.cancel()
            chunks += stream
    text = "".join(chunk.text for chunk in chunks)
    ids = [token for chunk in chunks for token in chunk.token_ids]
    whole = [size for size in range(len(ids)) if text == pipeline.tokenizer.decode(ids[: size + 1])]
    kept = ids[: whole[0] + 1] if whole else ids
    assert len(kept) > 4
    assert later(pipeline, text)[: len(before) + len(kept)] == [*before, *kept]
