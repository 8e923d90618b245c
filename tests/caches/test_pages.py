"""The books of the paged caches, driven at random: counts, free list and contents against a plain list."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvviz.base.errors import KvvizError
from kvviz.caches.block_table import Blocks, FoundBlocks, OutOfBlocks, digest_of
from kvviz.caches.paged import Paged, Pages
from kvviz.caches.prefix import Prefix, SharedPages

BLOCK = 4


def keys_of(ids):
    """Keys that depend on a token and on all before it, as a model's do: (Hkv 2, T, D 3)."""
    total = torch.tensor(ids, dtype=torch.float64).cumsum(0) * 100 + torch.arange(len(ids)) + torch.tensor(ids) / 10
    return total[None, :, None] * torch.tensor([1.0, -2.0])[:, None, None] * torch.tensor([1.0, 2.0, 3.0])


class PagesMachine(RuleBasedStateMachine):
    """Sequences come, grow, fork, shrink, move their windows and go; `plain` is what each should hold."""

    kind, books = Pages, Blocks

    @initialize(limit=st.sampled_from([None, 9, 14]))
    def begin(self, limit):
        self.pages = self.kind(self.books(limit), BLOCK)
        self.plain = {}
        self.left = {}

    def any_of(self, number):
        return sorted(self.plain)[number % len(self.plain)]

    @rule()
    def new(self):
        sequence = self.pages.new()
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
            assert self.pages.books.limit is not None
        else:
            self.plain[sequence] = everything

    def tell(self, sequence, ids):
        pass

    @precondition(lambda self: self.plain)
    @rule(number=st.integers(0, 20))
    def fork(self, number):
        sequence = self.any_of(number)
        used = self.pages.books.used
        twin = self.pages.fork(sequence)
        assert self.pages.books.used == used, "a fork takes no block"
        self.plain[twin], self.left[twin] = list(self.plain[sequence]), self.left[sequence]

    @precondition(lambda self: self.plain)
    @rule(number=st.integers(0, 20))
    def release(self, number):
        sequence = self.any_of(number)
        self.pages.release(sequence)
        del self.plain[sequence], self.left[sequence]

    @precondition(lambda self: self.plain)
    @rule(number=st.integers(0, 20), share=st.floats(0, 1))
    def crop(self, number, share):
        sequence = self.any_of(number)
        tokens = int(share * (len(self.plain[sequence]) - self.left[sequence]))
        self.pages.crop(sequence, tokens)
        self.plain[sequence] = self.plain[sequence][: len(self.plain[sequence]) - tokens]

    @precondition(lambda self: self.plain)
    @rule(number=st.integers(0, 20), share=st.floats(0, 1))
    def leave(self, number, share):
        sequence = self.any_of(number)
        tokens = int(share * len(self.plain[sequence]))
        self.pages.leave(sequence, tokens)
        self.left[sequence] = max(self.left[sequence], tokens // BLOCK * BLOCK)

    @invariant()
    def the_books_hold(self):
        if not hasattr(self, "pages"):
            return
        self.pages.check()
        books = self.pages.books
        used = {block for table in self.pages.tables.values() for block in table.blocks}
        assert used.isdisjoint(books.free) and len(used) + len(books.free) == len(books.refs)
        assert books.limit is None or len(books.refs) <= books.limit

    @invariant()
    def the_contents_are_right(self):
        for sequence, ids in getattr(self, "plain", {}).items():
            if len(ids) > self.left[sequence]:
                keys, values = self.pages.read(sequence)
                assert torch.equal(keys, keys_of(ids)[:, self.left[sequence] :])
                assert torch.equal(values, keys[:, :, :2] + 1)


class SharedMachine(PagesMachine):
    """The same with blocks that are found again, and with sequences that start from what is there."""

    kind, books = SharedPages, FoundBlocks

    def tell(self, sequence, ids):
        self.pages.note(sequence, ids)

    @rule(ids=st.lists(st.integers(0, 1), min_size=1, max_size=14))
    def adopt(self, ids):
        sequence, tokens = self.pages.adopt(ids)
        assert tokens % BLOCK == 0 and tokens < len(ids)
        self.plain[sequence], self.left[sequence] = ids[:tokens], 0

    @invariant()
    def nothing_full_is_kept_twice(self):
        """Of the blocks in use whose tokens are known, no two hold the same."""
        seen = {}
        for table in getattr(self, "pages", SharedPages()).tables.values():
            for block, digest in zip(table.blocks, table.digests[table.gone :], strict=False):
                assert seen.setdefault(digest, block) == block


TestPages = PagesMachine.TestCase
TestPages.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestShared = SharedMachine.TestCase
TestShared.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def filled_with(pages, ids):
    sequence = pages.new()
    if isinstance(pages, SharedPages):
        pages.note(sequence, ids)
    keys = keys_of(ids)
    pages.append(sequence, keys, keys)
    return sequence


def test_a_block_that_is_free_can_not_be_freed_or_shared():
    books = Blocks()
    block = books.take()
    books.drop(block)
    for wrong in (books.drop, books.share):
        with pytest.raises(KvvizError, match="is free"):
            wrong(block)


def test_who_writes_into_a_shared_block_gets_a_copy():
    pages = Pages(block=BLOCK)
    first = filled_with(pages, [1, 0, 1, 1, 0, 1])  # two blocks, the second half full
    second = pages.fork(first)
    assert pages.tables[first].blocks == pages.tables[second].blocks and pages.books.refs == [2, 2]
    pages.copied = 0
    keys = keys_of([1, 0, 1, 1, 0, 1, 1])[:, 6:]
    pages.append(second, keys, keys)
    assert pages.tables[first].blocks == [0, 1] and pages.tables[second].blocks == [0, 2]
    assert pages.books.refs == [2, 1, 1]
    token = 2 * 2 * 3 * 8  # K and V x heads x D x bytes
    assert pages.copied == (2 + 1) * token, "the two tokens that stood there, and the new one"
    assert torch.equal(pages.read(first)[0], keys_of([1, 0, 1, 1, 0, 1])), "the first one's are untouched"


def test_like_beginnings_are_kept_once_and_found_after_their_owner_has_gone():
    pages = SharedPages(block=BLOCK)
    ids = [1, 0, 1, 1, 0, 0, 1, 0, 1]
    first = filled_with(pages, ids)
    second = filled_with(pages, [*ids[:8], 0])
    assert pages.tables[first].blocks[:2] == pages.tables[second].blocks[:2] == [0, 1]
    assert pages.books.refs == [2, 2, 1, 1]
    pages.release(first)
    pages.release(second)
    assert pages.books.used == 0 and sorted(pages.books.known_free) == [0, 1]
    third, tokens = pages.adopt([*ids[:8], 1, 1])
    assert tokens == 8 and pages.tables[third].blocks == [0, 1]
    assert torch.equal(pages.read(third)[0], keys_of(ids[:8]))


def test_the_same_tokens_after_another_beginning_are_another_block():
    assert digest_of(digest_of(b"", [0] * 4), [1] * 4) != digest_of(digest_of(b"", [1] * 4), [1] * 4)
    pages = SharedPages(block=BLOCK)
    filled_with(pages, [0, 0, 0, 0, 1, 1, 1, 1])
    filled_with(pages, [1, 0, 0, 0, 1, 1, 1, 1])
    assert pages.books.used == 4


def test_at_the_limit_the_longest_unused_known_block_is_overwritten():
    pages = SharedPages(FoundBlocks(3), BLOCK)
    old, new = filled_with(pages, [0] * 4), filled_with(pages, [1] * 4)
    pages.release(old)
    pages.release(new)
    filled_with(pages, [0, 1, 1, 0, 1, 1, 0, 1])
    assert pages.books.forgotten == 1
    assert pages.adopt([0] * 5)[1] == 0 and pages.adopt([1] * 5)[1] == 4


def test_rows_that_do_not_all_fit_are_not_written_at_all():
    cache = Paged(pages=Pages(Blocks(3), 16))
    keys = torch.randn(2, 1, 16, 4)
    cache.append(keys, keys)
    with pytest.raises(OutOfBlocks, match="all 3 blocks are in use"):
        cache.append(keys, keys)
    assert (cache.seen, cache.held, cache.pages.books.used) == (16, 16, 2)
    cache.pages.check()


def test_beams_change_places_without_a_copy():
    cache = Paged()
    keys = torch.randn(3, 2, 20, 4)
    cache.append(keys, keys)
    cache.reorder(torch.tensor([2, 2, 0]))
    assert cache.copied == 3 * 20 * 2 * 2 * 4 * 4, "the books of the append alone"
    assert cache.pages.books.used == 4 and cache.nbytes == 2 * 20 * 2 * 2 * 4 * 4
    new = torch.randn(3, 2, 1, 4)
    got, _ = cache.append(new, new)
    assert torch.equal(got, torch.cat([keys[[2, 2, 0]], new], dim=2))
    cache.pages.check()


def test_a_fork_of_a_batch_goes_its_own_way():
    cache = Prefix()
    keys = torch.randn(1, 2, 40, 4)
    cache.note([list(range(40))])
    cache.append(keys, keys)
    twin = cache.fork()
    for one, token in ((cache, 7), (twin, 8)):
        one.note([[token]])
        new = torch.full((1, 2, 1, 4), float(token))
        assert torch.equal(one.append(new, new)[0], torch.cat([keys, new], dim=2))
    picture = twin.picture()
    assert [block["refs"] for block in picture["blocks"]] == [2, 2, 1, 1]
    assert picture["tables"] == [{"blocks": [0, 1, 2], "tokens": 41, "left_behind": 0}]
    twin.free()
    assert [block["refs"] for block in cache.picture()["blocks"]] == [1, 1, 0, 1]
    cache.free()
    assert cache.allocated == 0
