import pytest
from hypothesis import given
from hypothesis import strategies as st

from ov_specdec.cache.block_pool import BlockPool
from ov_specdec.cache.block_table import BlockTable
from ov_specdec.cache.slot import common_prefix
from ov_specdec.errors import CacheFullError, SessionError

TEXT = list(range(10, 20))
ROOT = (None,)


def left_behind(pool, text):
    """Have a sequence held and freed."""
    table = BlockTable(pool, block_size=4)
    table.append(len(text))
    blocks = list(table.blocks)
    table.free(text)
    return blocks


def test_blocks_that_others_may_find_are_not_rolled_back_into():
    table = BlockTable(BlockPool(8), block_size=4)
    table.append(10)
    table.commit(TEXT, 9)
    table.rollback(8)
    with pytest.raises(SessionError, match=r"roll back to 7: .* the first 8 tokens"):
        table.rollback(7)


def test_without_room_for_more_tokens_nothing_changes():
    pool = BlockPool(3)
    table = BlockTable(pool, block_size=4)
    table.append(5)
    with pytest.raises(CacheFullError):
        table.append(8)
    assert (table.length, pool.num_available) == (5, 1)


def test_a_copy_that_fails_leaves_the_shared_block_to_others():
    def fail(source, target):
        raise RuntimeError("the device is lost")

    pool = BlockPool(8, fail)
    left_behind(pool, TEXT)
    table = BlockTable(pool, block_size=4)
    with pytest.raises(RuntimeError, match="lost"):
        table.match_prefix(TEXT)
    assert table.length == 8
    table.free()
    assert pool.num_used == 0


NEAR = st.lists(st.integers(0, 2), max_size=11)


@given(st.lists(NEAR, max_size=20), st.integers(1, 30), NEAR)
def test_what_is_found_is_what_a_search_through_all_finds(texts, num_blocks, wanted):
    pool = BlockPool(num_blocks)
    for text in texts:
        table = BlockTable(pool, block_size=4)
        table.match_prefix(text)
        try:
            table.append(len(text) - table.length)
        except CacheFullError:
            table.free()
        else:
            table.free(text)
    found = pool.match(wanted, 4, ROOT)
    # Every node that is left, with the tokens from the root to its end.
    paths = {ROOT: ()}
    for node in sorted(pool._nodes.values(), key=lambda node: node.serial):
        if node.parent in paths:  # else a block before it was given up
            paths[node.serial] = (*paths[node.parent], *node.tokens)
    longest = max(common_prefix(path, wanted) for path in paths.values())
    assert len(found.blocks) * 4 + found.num_partial == longest
    assert paths[found.nodes[-1]] == tuple(wanted[: len(found.blocks) * 4])
    if found.partial is None:
        assert found.num_partial == 0
    else:
        partial = pool._nodes[found.partial]
        assert partial.parent == found.nodes[-1]
        assert common_prefix(partial.tokens, wanted[len(found.blocks) * 4 :]) == found.num_partial


class Counted(int):
    """A token that counts how often it is compared."""

    num_compared = 0

    def __eq__(self, other):
        Counted.num_compared += 1
        return int(self) == int(other)

    def __ne__(self, other):
        return not self == other

    def __lt__(self, other):
        Counted.num_compared += 1
        return int(self) < int(other)

    __hash__ = int.__hash__


def test_few_of_many_conversations_with_one_beginning_are_compared():
    pool = BlockPool(20_001)
    for number in range(10_000):
        left_behind(pool, [1, 1, 1, 1, 2, *divmod(2 * number, 100), 3])
    wanted = [Counted(token) for token in (1, 1, 1, 1, 2, 77, 77, 4)]
    found = pool.match(wanted, 4, ROOT)
    assert (len(found.blocks), found.num_partial) == (1, 2)
    assert Counted.num_compared < 4 * 2 * (10_000).bit_length()


TEXTS = st.lists(st.integers(0, 1), min_size=1, max_size=14)


class Memory:
    """Blocks as a model would have them: what each slot was last written."""

    def __init__(self):
        self.slots = {}

    def write(self, table, text, start):
        for place in range(start, len(text)):
            self.slots[table.blocks[place // 4], place % 4] = text[place]

    def read(self, table):
        return [self.slots[table.blocks[place // 4], place % 4] for place in range(table.length)]

    def copy(self, source, target):
        for slot in range(4):
            self.slots[target, slot] = self.slots.get((source, slot))


@given(
    st.integers(3, 12),
    st.lists(st.tuples(st.integers(0, 2), TEXTS, st.booleans(), st.integers(0, 3)), max_size=40),
)
def test_whatever_is_shared_each_sequence_reads_its_own_tokens(num_blocks, steps):
    memory = Memory()
    pool = BlockPool(num_blocks, memory.copy)
    tables, texts = [BlockTable(pool, 4) for _ in range(3)], [[], [], []]
    for which, text, is_kept, num_wrong in steps:
        table = tables[which]
        table.free(texts[which] if is_kept else ())
        texts[which] = []
        num_kept = table.num_kept(text)
        held = table.match_prefix(text)
        assert 0 <= num_kept - held < 4  # a partial block is copied where there is room
        assert memory.read(table) == text[:held]
        try:
            table.append(len(text) - held)
        except CacheFullError:
            table.free()
            continue
        memory.write(table, text, held)
        text = text[: max(len(text) - num_wrong, held)]
        table.rollback(len(text))
        texts[which] = text
        table.commit(text, len(text) - 1)
        for other, own in zip(tables, texts, strict=True):
            assert memory.read(other) == own
    assert pool.num_used == len({block for table in tables for block in table.blocks})
    for table in tables:
        table.free()
    assert pool.num_used == 0
    pool.forget(range(num_blocks))
    assert pool.match([0], 4, ROOT).blocks == []
    assert len({pool.allocate() for _ in range(num_blocks)}) == num_blocks
