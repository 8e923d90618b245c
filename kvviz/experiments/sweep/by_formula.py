"""Work and cache of a sweep by formula, before anything runs: rows with FLOPs in place of seconds."""

from kvviz.cost.flops import cached_step, estimated, prefill, total_flops
from kvviz.cost.shape import Shape
from kvviz.experiments.kind import Record
from kvviz.experiments.sweep.spec import Cell, SweepSpec, cells, find_sources
from kvviz.memory.formula import kv_memory

PLAIN = ("uncached", "cached")  # the modes whose work is known by formula
MOST = 20_000  # new tokens of all cells that a page counts while somebody waits
FEWEST = 3  # points of a line; a sweep of one point is drawn up to its new tokens


def counted(spec: SweepSpec) -> list[Record]:
    """A row for each cell in each plain mode: the whole run's FLOPs, and the cache at its end.

    A cell is left out whose model can't be counted; there are none if the cells have more than MOST new tokens.
    """
    shapes = {name: estimated(source.config) for name, source in find_sources(spec).items()}
    grid = cells(spec)
    if sum(cell.new_tokens for cell in grid) > MOST:
        return []
    if len(grid) == 1:
        grid = tuple(_shorter(grid[0], part) for part in range(1, FEWEST + 1))
    found = []
    for cell in grid:
        shape = shapes[cell.model]
        if shape is not None:
            found += [_row(cell, mode, shape) for mode in PLAIN]
    return found


def _shorter(cell: Cell, part: int) -> Cell:
    new = max(1, cell.new_tokens * part // FEWEST)
    return Cell(cell.index, cell.model, cell.prompt_tokens, new, cell.batch, cell.dtype)


def _row(cell: Cell, mode: str, shape: Shape) -> Record:
    later = range(cell.prompt_tokens + 1, cell.prompt_tokens + cell.new_tokens)  # the last token is never read
    step = prefill if mode == "uncached" else cached_step
    work = total_flops(shape, prefill(shape, cell.prompt_tokens, cell.batch))
    work += sum(total_flops(shape, step(shape, tokens, cell.batch)) for tokens in later)
    held = kv_memory(shape.spec, cell.prompt_tokens + cell.new_tokens - 1, batch=cell.batch, dtype=cell.dtype)
    return {
        **{name: getattr(cell, name) for name in ("model", "prompt_tokens", "new_tokens", "batch", "dtype")},
        "mode": mode,
        "flops": work,
        "cache_bytes": held.total_bytes if mode == "cached" else 0,
    }
