"""Host memory for sequences that had to give their blocks up: which block is copied where. No tensor here.

Preemption by swapping, as in PagedAttention, section 4.5: https://arxiv.org/abs/2309.06180
"""

from typing import NamedTuple

from kvviz.caches.block_table import BlockPool, Table
from kvviz.caches.layer_groups import LayerGroups, Window


class Copy(NamedTuple):
    """An instruction: copy a block of a group of layers to the host's memory (`out`), or back."""

    number: int  # the request whose block it is
    window: Window
    block: int
    host: int
    out: bool


class SwapSpace:
    """Room for `blocks` blocks of each group of layers, and the tables of the requests that lie there.

    `copies` have to be carried out in order, before the next forward, by the owner of the tensors.
    """

    def __init__(self, groups: LayerGroups, blocks: int) -> None:
        self.groups, self.blocks = groups, blocks
        self.pools: dict[Window, BlockPool] = {window: BlockPool(blocks) for window in groups.tables}
        self.copies: list[Copy] = []
        self.rows: dict[int, dict[Window, tuple[Table, list[int]]]] = {}  # by request: its tables, its host blocks

    def put(self, number: int, sequence: int) -> bool:
        """Copy the blocks of a request's sequence out; False, with nothing done, if there is no room or no block."""
        tables = {window: tables.sequences[sequence] for window, tables in self.groups.tables.items()}
        free = {window: self.blocks - pool.used for window, pool in self.pools.items()}
        if not all(0 < len(table.blocks) <= free[window] for window, table in tables.items()):
            return False
        row = self.rows[number] = {
            window: (table, [self.pools[window].take() for _ in table.blocks]) for window, table in tables.items()
        }
        self.copies += [
            Copy(number, window, block, host, True)
            for window, (table, hosts) in row.items()
            for block, host in zip(table.blocks, hosts, strict=True)
        ]
        return True

    def get(self, number: int, sequence: int) -> int:
        """Give a request's new sequence what it had; return how many tokens it has then. The room is free again.

        What is a cache hit is not copied.
        """
        row = self.rows[number]
        for window, (table, hosts) in row.items():
            tables = self.groups.tables[window]
            missing = tables.restore(sequence, table)
            self.copies += [Copy(number, window, block, hosts[place], False) for place, block in missing]
        self.drop(number)
        return next(iter(self.groups.tables.values())).sequences[sequence].length

    def drop(self, number: int) -> None:
        """Free the room of a request, if it has any."""
        for window, (_, hosts) in self.rows.pop(number, {}).items():
            for host in hosts:
                self.pools[window].drop(host)

    def __contains__(self, number: int) -> bool:
        return number in self.rows

    def take_copies(self) -> list[Copy]:
        """Return the copies that have to be carried out now; they are then no longer listed."""
        copies, self.copies = self.copies, []
        return copies
