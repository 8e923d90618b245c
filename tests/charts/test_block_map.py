"""The map of an engine's blocks: a square a block, whatever state, in the place that its prefix gives it."""

import msgspec

from kvviz.charts.block_map import block_map, blocks_over_time, claim_of_blocks
from kvviz.decoding.endpoint.kv_events import BlockMap, read_batch
from tests.kv_publisher import Wire


def test_each_block_is_a_square_in_the_row_of_what_it_follows():
    wire, found = Wire("0.26.0"), BlockMap()
    events = (
        [wire.stored([1, 2, 3], parent=77), wire.stored([4], parent=2), wire.stored([5], medium="<b>CPU")],
        [wire.removed([4])],
    )
    for number, batch in enumerate(events):
        found.apply(number, read_batch(msgspec.msgpack.decode(wire.payload(1.0 + number, *batch))))
    told = found.told()
    drawn = block_map(told).partition('<div class="kvb"')[2]
    assert [drawn.count(f'class="kvb-{state}"') for state in ("there", "other", "removed", "unseen")] == [3, 1, 1, 1]
    assert drawn.count('class="kvb-tree"') == 2 and drawn.count("--kvb-depth:2") == 2
    assert "<b>" not in drawn and "removed at 1 s" in drawn and ">gone<" in drawn
    (line,) = blocks_over_time(told).data
    assert (list(line.x), list(line.y)) == ([0, 1], [5, 4])
    assert claim_of_blocks(told) == "The engine's prefix cache grew to 5 blocks of 4 tokens, and 4 are left"
    assert "7 more blocks are not drawn" in block_map({**told, "not_drawn": 7})
