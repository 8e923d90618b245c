"""The tree of prefixes against a slow reading of the pool, over random requests in small memories."""

import hashlib
from array import array

import hypothesis.strategies as st
from hypothesis import given

from kvviz.caches.block_table import EVICTIONS, BlockPool, BlockTables
from kvviz.caches.prefix_tree import PrefixTree
from tests.draws import draws

BLOCK, MOST = 2, 7  # tokens of a block, blocks of the smallest memory


def in_pool(pool, prefix):
    """Whether any block of the pool holds the end of a prefix: every hash, every block."""
    wanted = b""
    for start in range(0, len(prefix), BLOCK):
        wanted = hashlib.sha256(wanted + array("q", prefix[start : start + BLOCK]).tobytes()).digest()
    return any(pool._hashes.get(block) == wanted for block in range(len(pool.refs)))


def blocks_of(runs, served, before=()):
    """Each block of the tree by the tokens up to its end, with its state and its requests."""
    for run in runs:
        ids = served[run.requests[0]]
        assert tuple(ids[: run.first]) == before and run.states
        for place, state in enumerate(run.states, 1):
            yield tuple(ids[: run.first + place * BLOCK]), (state, run.requests)
        end = tuple(ids[: run.first + len(run.states) * BLOCK])
        assert all(child.requests != run.requests for child in run.children), "two runs that are one"
        starts = [tuple(served[child.requests[0]][len(end) : len(end) + BLOCK]) for child in run.children]
        assert len(set(starts)) == len(starts), "two children that begin alike"
        yield from blocks_of(run.children, served, end)


@given(
    requests=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=2 * MOST), max_size=9),
    blocks=st.integers(MOST, 2 * MOST),
    evict=st.sampled_from(EVICTIONS),
)
@draws(60)
def test_the_tree_is_what_the_pool_has(requests, blocks, evict):
    tables = BlockTables(BlockPool(blocks, evict), BLOCK)
    tree, served, before = PrefixTree(tables.pool, BLOCK), [], set()
    for ids in requests:
        sequence, hits = tables.new_with_prefix(ids)
        tables.note(sequence, ids[hits:])
        list(tables.append(sequence, len(ids) - hits))
        tables.release(sequence)
        ever = {tuple(old[: end * BLOCK]) for old in served for end in range(1, len(old) // BLOCK + 1)}
        served.append(ids)
        found = dict(blocks_of(tree.served(ids, hits), served))
        prefixes = ever | {tuple(ids[: end * BLOCK]) for end in range(1, len(ids) // BLOCK + 1)}
        assert set(found) == prefixes
        for prefix, (state, whose) in found.items():
            assert whose == [i for i, old in enumerate(served) if tuple(old[: len(prefix)]) == prefix]
            own, there = tuple(ids[: len(prefix)]) == prefix, in_pool(tables.pool, prefix)
            assert there == (state not in ("evicted", "gone"))
            assert (state == "hit") == (own and len(prefix) <= hits)
            assert (state == "evicted") == (not there and prefix in before)
            assert (state == "kept") == (there and prefix in before and state != "hit")
            assert state not in ("computed", "again") or (state == "again") == (prefix in ever)
        before = {prefix for prefix in prefixes if in_pool(tables.pool, prefix)}


def test_what_was_hit_most_stays_and_what_is_oldest_goes():
    """Three blocks, one of them for what is not full: a prefix that was hit, then two others, and room for two."""
    kept = {}
    for evict in EVICTIONS:
        tables = BlockTables(BlockPool(3, evict), BLOCK)
        for ids in ([1, 1, 0], [1, 1, 0], [0, 0, 0], [0, 1, 0]):
            sequence, hits = tables.new_with_prefix(ids)
            tables.note(sequence, ids[hits:])
            list(tables.append(sequence, len(ids) - hits))
            tables.release(sequence)
        kept[evict] = [in_pool(tables.pool, prefix) for prefix in ((1, 1), (0, 0), (0, 1))]
    assert kept == {"lru": [False, True, True], "hits": [True, False, True]}
