import pytest
from hypothesis import given
from hypothesis import strategies as st

from ov_specdec.cache.blocks import BlockPool, BlockTable
from ov_specdec.errors import SessionError


def test_a_table_takes_blocks_as_tokens_need_them():
    table = BlockTable(BlockPool(8, 8), block_size=4)
    table.append(4)
    assert table.blocks == [0]
    table.append(1)
    assert table.blocks == [0, 1]
    table.append(7)
    assert (table.blocks, table.length) == ([0, 1, 2], 12)


def test_rollback_sets_the_counter_and_keeps_the_blocks():
    table = BlockTable(BlockPool(8, 8), block_size=4)
    table.append(10)
    blocks = list(table.blocks)
    table.rollback(3)
    assert (table.blocks, table.length) == (blocks, 3)
    table.append(7)
    assert table.blocks == blocks


@pytest.mark.parametrize("length", [-1, 6])
def test_rollback_outside_the_cache_is_refused(length):
    table = BlockTable(BlockPool(8, 8), block_size=4)
    table.append(5)
    with pytest.raises(SessionError, match=f"to {length}: .* 5 tokens"):
        table.rollback(length)


def test_the_pool_doubles_up_to_its_limit_and_says_when_it_is_full():
    pool = BlockPool(2, 5)
    assert [pool.allocate() for _ in range(5)] == [0, 1, 2, 3, 4]
    assert pool.size == 5
    with pytest.raises(SessionError, match="all 5 blocks"):
        pool.allocate()


def test_a_pool_larger_than_its_limit_is_refused():
    with pytest.raises(SessionError, match="6 blocks"):
        BlockPool(6, 5)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20)), max_size=60))
def test_sequences_never_share_a_block(steps):
    pool = BlockPool(1, 64)
    tables = [BlockTable(pool, block_size=4) for _ in range(3)]
    for which, amount in steps:
        table = tables[which]
        if amount == 0:
            table.clear()
        elif amount <= table.length:
            table.rollback(amount)
        elif table.length + amount <= 80:
            table.append(amount)
    held = [block for table in tables for block in table.blocks]
    assert len(held) == len(set(held))
    assert all(block < pool.size for block in held)
    for table in tables:
        assert len(table.blocks) * 4 >= table.length
