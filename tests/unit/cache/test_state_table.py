"""Which blocks hold recurrent states, checked by a pass that writes what a state stands for."""

import random

import pytest

from ov_specdec.cache.block_pool import BlockPool
from ov_specdec.cache.block_table import BlockTable
from ov_specdec.cache.slot import common_prefix
from ov_specdec.cache.state_table import NUM_OWN, ZEROS, StatePool, StateTable
from ov_specdec.errors import CacheFullError

SIZE = 4
"""Tokens of a block."""


class Model:
    """Block tables with states, each of which is the tokens that were fed: by block."""

    def __init__(self, num_states=60, num_blocks=200):
        self.pool = BlockPool(num_blocks)
        self.states = StatePool(num_states)
        self.held = {ZEROS: ()}

    def open(self):
        return BlockTable(self.pool, SIZE, None, StateTable(self.states, SIZE))

    def feed(self, table, tokens, num_rows=1, spare=False):
        """A pass; what the state before it stands for."""
        length = table.length
        table.append(len(tokens))
        try:
            span = table.states.extend(length, len(tokens), num_rows, has_spare_row=spare)
        except CacheFullError:
            table.rollback(length)
            raise
        before = self.held[span.blocks[0]]
        fed = list(tokens) + tokens[-1:] * spare
        slots = span.blocks[1:]
        done = length % span.interval
        for count, _ in enumerate(fed, 1):
            if (done + count) % span.interval == 0 or count == len(fed):
                block = slots[(done + count - 1) // span.interval]
                assert block != ZEROS
                self.held[block] = (*before, *fed[:count])
        assert len(slots) == -(-(done + len(fed)) // span.interval)
        return before


def test_a_long_prompt_leaves_two_states():
    model = Model()
    table = model.open()
    prompt = list(range(50))
    model.feed(table, prompt)
    assert sorted(table.states.states) == [0, 48, 50]
    table.commit(prompt, 49)
    table.rollback(49)
    assert table.length == 48, "there is no state after 49 tokens"
    assert model.feed(table, [48, 49], num_rows=2) == tuple(range(48))


def read(model, tokens):
    """A sequence that reads a prompt as far as it is not cached; how much was."""
    table = model.open()
    table.match_prefix(tokens[:-1])
    cached = table.length
    assert model.feed(table, tokens[cached:]) == tuple(tokens[:cached])
    table.commit(tokens, len(tokens) - 1)
    return table, cached


def test_others_begin_at_the_last_full_block_of_a_prompt_and_of_a_turn():
    model = Model()
    prompt = list(range(30))
    table, cached = read(model, prompt)
    assert cached == 0
    assert read(model, prompt)[1] == 28
    text = [*prompt, *range(100, 117)]
    for token in text[30:]:
        model.feed(table, [token])
        table.commit(text, table.length - 1)
    table.free(text)
    assert read(model, [*text, 7])[1] == 44
    assert read(model, [*prompt, 7, 8, 9])[1] == 28


def test_where_prompts_part_a_state_is_kept_for_the_third():
    model = Model()
    system = list(range(21))
    others = [[*system, *range(start, start + 30)] for start in (100, 200, 300)]
    assert [read(model, prompt)[1] for prompt in others] == [0, 0, 20]


def test_what_is_discarded_is_not_found():
    model = Model()
    table, _ = read(model, list(range(30)))
    table.free()
    assert not model.states.blocks._nodes
    assert model.states.blocks.num_available == model.states.size
    assert read(model, list(range(30)))[1] == 0


def test_states_that_nobody_uses_are_given_up_the_oldest_first():
    model = Model(num_states=2 + 8)
    prompts = [[start, *range(30)] for start in range(100, 110)]
    for prompt in prompts:
        table, _ = read(model, prompt)
        table.free(prompt)
    assert read(model, prompts[0])[1] == 0
    assert read(model, prompts[-1])[1] == 28


def test_a_pass_without_room_changes_nothing():
    model = Model(num_states=2 + 6)
    table = model.open()
    model.feed(table, [1, 2], num_rows=2)
    with pytest.raises(CacheFullError):
        model.feed(table, list(range(9)), num_rows=9)
    assert (table.length, model.feed(table, [3])) == (2, (1, 2))


def test_the_room_for_draft_tokens_is_shared_with_one_who_may_come():
    model = Model(num_states=2 + 60)
    assert model.states.max_draft_tokens == 60 - NUM_OWN
    tables = [read(model, [start] * 30)[0] for start in (1, 2)]
    assert model.states.max_draft_tokens == 20 - NUM_OWN
    tables[0].free()
    assert model.states.max_draft_tokens == 30 - NUM_OWN
    assert model.states.has_room
    for start in range(20, 34):
        read(model, [start] * 30)
    assert not model.states.has_room


@pytest.mark.parametrize("seed", range(20))
def test_any_sequence_of_passes_goes_on_from_the_state_of_its_tokens(seed):
    generator = random.Random(seed)  # noqa: S311
    model = Model(num_states=90)
    texts, tables = [[] for _ in range(3)], [model.open() for _ in range(3)]
    for _ in range(300):
        index = generator.randrange(3)
        text, table = texts[index], tables[index]
        if generator.random() < 0.1:
            table.free(text[: table.length])
            texts[index] = text = generator.choice(texts)[: generator.randrange(40)]
            texts[index] = text = [*text, *generator.choices(range(3), k=generator.randrange(50))]
            table.match_prefix(text[:-1])
        num_lacking = len(text) - table.length
        drafts = generator.choices(range(3), k=generator.randrange(5))
        tokens = [*text[table.length :], 0, *drafts]
        num_rows, spare = generator.choice((1, 1 + len(drafts))), len(tokens) == 1
        before = model.feed(table, tokens, num_rows, spare)
        assert before == tuple(text[: table.length - len(tokens)])
        texts[index] = text = [*text, 0, *drafts[: generator.randrange(1 + len(drafts))]]
        table.commit(text, table.length - len(drafts) - 1)
        table.rollback(min(len(text), table.length))
        assert common_prefix(model.held[table.states.states[table.length]], text) == table.length
        assert num_lacking >= 0
    for table in tables:
        table.free()
    blocks = model.states.blocks
    blocks.forget(range(blocks.size))
    assert blocks.num_used == 2
