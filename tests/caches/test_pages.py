"""The block tables of the paged caches, driven at random: counts, free list and contents against a plain list."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvviz.base.errors import KvvizError
from kvviz.caches.block_table import BlockPool, BlockTables, OutOfBlocks, block_hash
from kvviz.caches.paged import Paged, Pages
from tests.caches.conftest import check
from tests.draws import draws

BLOCK = 4


def pages(limit=None):
    """An empty memory of blocks of 4 tokens."""
    return Pages(BlockTables(BlockPool(limit), BLOCK))


def keys_of(ids):
    """Keys that depend on a token and on all before it, as a model's do: (Hkv 2, T, D 3)."""
    total = torch.tensor(ids, dtype=torch.float64).cumsum(0) * 100 + torch.arange(len(ids)) + torch.tensor(ids) / 10
    return total[None, :, None] * torch.tensor([1.0, -2.0])[:, None, None] * torch.tensor([1.0, 2.0, 3.0])


class PagesMachine(RuleBasedStateMachine):
    """Sequences come, grow, fork, shrink, move their windows and go; `plain` is what each should hold."""

    @initialize(limit=st.sampled_from([None, 9, 14]))
    def begin(self, limit):
        self.pages = pages(limit)
        self.tables = self.pages.tables
        self.plain = {}
        self.left = {}

    def any_of(self, number):
        return sorted(self.plain)[number % len(self.plain)]

    @rule()
    def new(self):
        sequence = self.tables.new()
        self.plain[sequence], self.left[sequence] = [], 0

    @precondition(lambda self: self.plain)
    @rule(number=st.integers(0, 20), ids=st.lists(st.integers(0, 1), min_size=1, max_size=11))
    def append(self, number, ids):
        sequence = self.any_of(number)
        everything = self.plain[sequence] + ids
        keys = keys_of(everything)[:, len(self.plain[sequence]) :]
        self.tell(sequence, ids)
        try:
            self.pages.append(sequence, keys, keys[:, :, :2] + 1)
        except OutOfBlocks:
            assert self.tables.pool.limit is not None
        else:
            self.plain[sequence] = everything

    def tell(self, sequence, ids):
        pass

    @precondition(lambda self: self.plain)
    @rule(number=st.integers(0, 20))
    def fork(self, number):
        sequence = self.any_of(number)
        used = self.tables.pool.used
        twin = self.tables.fork(sequence)
        assert self.tables.pool.used == used, "a fork takes no block"
        self.plain[twin], self.left[twin] = list(self.plain[sequence]), self.left[sequence]

    @precondition(lambda self: self.plain)
    @rule(number=st.integers(0, 20))
    def release(self, number):
        sequence = self.any_of(number)
        self.tables.release(sequence)
        del self.plain[sequence], self.left[sequence]

    @precondition(lambda self: self.plain)
    @rule(number=st.integers(0, 20), share=st.floats(0, 1))
    def crop(self, number, share):
        sequence = self.any_of(number)
        tokens = int(share * (len(self.plain[sequence]) - self.left[sequence]))
        self.tables.crop(sequence, tokens)
        self.plain[sequence] = self.plain[sequence][: len(self.plain[sequence]) - tokens]

    @precondition(lambda self: self.plain)
    @rule(number=st.integers(0, 20), share=st.floats(0, 1))
    def drop_front(self, number, share):
        sequence = self.any_of(number)
        tokens = int(share * len(self.plain[sequence]))
        self.tables.drop_front(sequence, tokens)
        self.left[sequence] = max(self.left[sequence], tokens // BLOCK * BLOCK)

    @invariant()
    def the_pool_is_right(self):
        if not hasattr(self, "pages"):
            return
        check(self.tables)
        pool = self.tables.pool
        used = {block for table in self.tables.sequences.values() for block in table.blocks}
        assert used.isdisjoint(pool.free) and len(used) + len(pool.free) == len(pool.refs)
        assert pool.limit is None or len(pool.refs) <= pool.limit

    @invariant()
    def the_contents_are_right(self):
        for sequence, ids in getattr(self, "plain", {}).items():
            if len(ids) > self.left[sequence]:
                keys, values = self.pages.read(sequence)
                assert torch.equal(keys, keys_of(ids)[:, self.left[sequence] :])
                assert torch.equal(values, keys[:, :, :2] + 1)


class SharedMachine(PagesMachine):
    """The same with cached blocks, and with sequences that start from them."""

    def tell(self, sequence, ids):
        self.tables.note(sequence, ids)

    @rule(ids=st.lists(st.integers(0, 1), min_size=1, max_size=14))
    def new_with_prefix(self, ids):
        sequence, tokens = self.tables.new_with_prefix(ids)
        assert tokens % BLOCK == 0 and tokens < len(ids)
        self.plain[sequence], self.left[sequence] = ids[:tokens], 0

    @invariant()
    def nothing_full_is_kept_twice(self):
        """Of the blocks in use whose tokens are known, no two hold the same."""
        seen = {}
        for table in getattr(self, "tables", BlockTables()).sequences.values():
            for block, hashed in zip(table.blocks, table.hashes[table.dropped :], strict=False):
                assert seen.setdefault(hashed, block) == block


TestPages = PagesMachine.TestCase
TestPages.settings = draws(40, stateful_step_count=40)
TestShared = SharedMachine.TestCase
TestShared.settings = draws(40, stateful_step_count=40)


def filled_with(pages, ids):
    sequence = pages.tables.new()
    pages.tables.note(sequence, ids)
    keys = keys_of(ids)
    pages.append(sequence, keys, keys)
    return sequence


def test_a_block_that_is_free_can_not_be_freed_or_shared():
    pool = BlockPool()
    block = pool.take()
    pool.drop(block)
    for wrong in (pool.drop, pool.share):
        with pytest.raises(KvvizError, match="is free"):
            wrong(block)


def test_who_writes_into_a_shared_block_gets_a_copy():
    memory = pages()
    tables = memory.tables
    first = filled_with(memory, [1, 0, 1, 1, 0, 1])  # two blocks, the second half full
    second = tables.fork(first)
    assert tables.sequences[first].blocks == tables.sequences[second].blocks and tables.pool.refs == [2, 2]
    keys = keys_of([1, 0, 1, 1, 0, 1, 1])[:, 6:]
    copied = memory.append(second, keys, keys)
    assert tables.sequences[first].blocks == [0, 1] and tables.sequences[second].blocks == [0, 2]
    assert tables.pool.refs == [2, 1, 1]
    token = 2 * 2 * 3 * 8  # K and V x heads x D x bytes
    assert copied == (2 + 1) * token, "the two tokens that stood there, and the new one"
    assert torch.equal(memory.read(first)[0], keys_of([1, 0, 1, 1, 0, 1])), "the first one's are untouched"


def test_the_same_prefix_is_kept_once_and_is_a_hit_after_its_owner_has_gone():
    memory = pages()
    tables = memory.tables
    ids = [1, 0, 1, 1, 0, 0, 1, 0, 1]
    first = filled_with(memory, ids)
    second = filled_with(memory, [*ids[:8], 0])
    assert tables.sequences[first].blocks[:2] == tables.sequences[second].blocks[:2] == [0, 1]
    assert tables.pool.refs == [2, 2, 1, 1]
    tables.release(first)
    tables.release(second)
    assert tables.pool.used == 0 and sorted(tables.pool.cached_free) == [0, 1]
    third, tokens = tables.new_with_prefix([*ids[:8], 1, 1])
    assert tokens == 8 and tables.sequences[third].blocks == [0, 1]
    assert torch.equal(memory.read(third)[0], keys_of(ids[:8]))


def test_the_same_tokens_after_a_different_prefix_are_another_block():
    assert block_hash(block_hash(b"", [0] * 4), [1] * 4) != block_hash(block_hash(b"", [1] * 4), [1] * 4)
    memory = pages()
    filled_with(memory, [0, 0, 0, 0, 1, 1, 1, 1])
    filled_with(memory, [1, 0, 0, 0, 1, 1, 1, 1])
    assert memory.tables.pool.used == 4


def test_at_the_limit_the_longest_unused_cached_block_is_overwritten():
    memory = pages(3)
    tables = memory.tables
    old, new = filled_with(memory, [0] * 4), filled_with(memory, [1] * 4)
    tables.release(old)
    tables.release(new)
    filled_with(memory, [0, 1, 1, 0, 1, 1, 0, 1])
    assert tables.pool.evictions == 1
    assert tables.new_with_prefix([0] * 5)[1] == 0 and tables.new_with_prefix([1] * 5)[1] == 4


def test_tables_need_no_tensors():
    tables = BlockTables(block=BLOCK)
    first = tables.new()
    assert [tuple(write) for write in tables.append(first, 6)] == [(0, 0, 0, 4, None), (1, 0, 4, 2, None)]
    second = tables.fork(first)
    assert [tuple(write) for write in tables.append(second, 3)] == [(2, 2, 0, 2, 1), (3, 0, 2, 1, None)]
    assert tables.filled([first]) == {0: 4, 1: 2} and tables.filled([first, second]) == {0: 4, 1: 2, 2: 4, 3: 1}
    check(tables)


def test_rows_that_do_not_all_fit_are_not_written_at_all():
    cache = Paged(pages=Pages(BlockTables(BlockPool(3))))
    keys = torch.randn(2, 1, 16, 4)
    cache.append(keys, keys)
    with pytest.raises(OutOfBlocks, match="all 3 blocks are in use"):
        cache.append(keys, keys)
    assert (cache.seen, cache.held, cache.pages.tables.pool.used) == (16, 16, 2)
    check(cache.pages.tables)


def test_beams_change_places_without_a_copy():
    cache = Paged()
    keys = torch.randn(3, 2, 20, 4)
    cache.append(keys, keys)
    cache.reorder(torch.tensor([2, 2, 0]))
    assert cache.copied == 3 * 20 * 2 * 2 * 4 * 4, "the bytes of the append alone"
    assert cache.pages.tables.pool.used == 4 and cache.nbytes == 2 * 20 * 2 * 2 * 4 * 4
    new = torch.randn(3, 2, 1, 4)
    got, _ = cache.append(new, new)
    assert torch.equal(got, torch.cat([keys[[2, 2, 0]], new], dim=2))
    check(cache.pages.tables)
