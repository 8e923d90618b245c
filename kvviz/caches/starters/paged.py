import torch

from kvviz.caches.base import KVCache, Pair

BLOCK = 16  # tokens


class Paged(KVCache):
    title = "Paged"
    summary = "blocks of 16 tokens, and for each sequence a table that says which are its own"
    windows = "ring"  # a layer with a window gets kvviz's ring: this class need not think of windows
    crops = False  # tokens can't be taken back
    exercise = "paged"

    def __init__(self, *, window: int | None = None, capacity: int | None = None) -> None:
        super().__init__(window=window, capacity=capacity)
        self.blocks: dict[int, Pair] = {}  # by number: keys and values, (Hkv, BLOCK, D) each
        self.tables: list[list[int]] = []  # of each sequence: the numbers of its blocks, in order
        self.taken = 0  # blocks so far, so that each has a number of its own

    def _append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        """Take the T new tokens of a prefill or a step, k and v (B, Hkv, T, D); return all, (B, Hkv, T_all, D)."""
        self.tables = self.tables or [[] for _ in range(k.shape[0])]
        for row in range(k.shape[0]):
            self.write(row, k[row], v[row])
        self.copied = k.nbytes + v.nbytes
        self.seen = self.held = self.seen + k.shape[2]
        keys, values = (torch.stack([self.gather(row, part) for row in range(k.shape[0])]) for part in (0, 1))
        self.gathered = keys.nbytes + values.nbytes
        return keys, values

    def write(self, row: int, k: torch.Tensor, v: torch.Tensor) -> None:
        """Write the new tokens of one sequence, k and v (Hkv, T, D), into its blocks."""
        end, table = self.seen + k.shape[1], self.tables[row]
        # solution
        for number in range(self.seen // BLOCK, -(-end // BLOCK)):  # the blocks that the new tokens fall into
            if number == len(table):
                table.append(self.new_block(k, v, BLOCK))
            start, stop = max(self.seen, number * BLOCK), min(end, (number + 1) * BLOCK)  # positions in the text
            for block, new in zip(self.blocks[table[number]], (k, v), strict=True):
                block[:, start - number * BLOCK : stop - number * BLOCK] = new[:, start - self.seen : stop - self.seen]
        # or, to start from
        # table.append(self.new_block(k, v, end - self.seen))  # yours: a block of its own for every append
        # for block, new in zip(self.blocks[table[-1]], (k, v), strict=True):
        #     block[:] = new
        # end

    def new_block(self, k: torch.Tensor, v: torch.Tensor, size: int) -> int:
        """Allocate a block for `size` tokens such as k and v (Hkv, T, D); return its number."""
        self.taken += 1
        self.blocks[self.taken] = k.new_empty(k.shape[0], size, k.shape[2]), v.new_empty(v.shape[0], size, v.shape[2])
        return self.taken

    def gather(self, row: int, part: int) -> torch.Tensor:
        """Read the keys (part 0) or values (part 1) of a sequence out of its blocks: (Hkv, T_all, D)."""
        return torch.cat([self.blocks[number][part] for number in self.tables[row]], dim=1)[:, : self.seen]

    def filled(self) -> dict[str, torch.Tensor]:
        """The part of each block that tokens have been written to, by a name: the blocks of two tables count once."""
        found = dict[str, torch.Tensor]()
        for table in self.tables:
            left = self.seen
            for number in table:
                keys, values = self.blocks[number]
                found |= {f"{number}.keys": keys[:, :left], f"{number}.values": values[:, :left]}
                left -= keys.shape[1]
        return found

    def free(self) -> None:
        """Release everything."""
        super().free()
        self.blocks, self.tables, self.taken = {}, [], 0
