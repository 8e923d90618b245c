"""Orders a sweep's visits to its cells and estimates the remaining time. Standard library only."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kvviz.decoding.modes import mode_named
from kvviz.decoding.requirements import needs
from kvviz.experiments.sweep.plan import VISIT_S, Guess
from kvviz.experiments.sweep.spec import Cell, SweepSpec, cells
from kvviz.memory.formula import DTYPE_BYTES
from kvviz.models.sources import Source

Key = tuple[int, str]  # cell, mode


def groups(spec: SweepSpec, sources: Mapping[str, Source], free: int) -> tuple[tuple[Cell, ...], ...]:
    """Group the cells to interleave: those whose models fit in `free` bytes together.

    A model whose size is unknown until it is loaded gets a group of its own.
    """
    found: list[list[Cell]] = []
    weights, most = 0, 0  # bytes of the last group: its weights, and the most that a cell needs beside them
    for mine in _by_model(spec).values():
        source, dtype = sources[mine[0].model], mine[0].dtype
        if source.params is None or source.spec is None:
            own, rest = free + 1, 0
        else:
            own = source.params * DTYPE_BYTES[dtype]
            rest = max(needs(source, spec.work(cell)).total for cell in mine) - own
        if found and weights + own + max(most, rest) <= free:
            found[-1] += mine
            weights, most = weights + own, max(most, rest)
        else:
            found.append(mine)
            weights, most = own, rest
    return tuple(map(tuple, found))


def _by_model(spec: SweepSpec) -> dict[tuple[str, str], list[Cell]]:
    """Group the cells by the model and dtype that they load."""
    found: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells(spec):
        found.setdefault((cell.model, cell.dtype), []).append(cell)
    return found


def visits(group: Sequence[Cell], rounds: int) -> Iterator[tuple[int, Cell]]:
    """Yield (round, cell), reversing the order every round (A B C, C B A) so that drift affects all cells alike."""
    for number in range(rounds):
        yield from ((number, cell) for cell in (group if number % 2 == 0 else reversed(group)))


def tokens_fed(spec: SweepSpec) -> Guess:
    """Count the tokens that passes and equivalence checks feed, as a measure of work for a model of unknown size."""
    passes = {(cell.index, mode): float(_fed(cell, mode)) for cell in cells(spec) for mode in spec.modes}
    return Guess(passes, {cell.index: sum(passes[cell.index, mode] for mode in spec.modes) for cell in cells(spec)})


def _fed(cell: Cell, mode: str) -> int:
    steps, prompt = cell.new_tokens, cell.prompt_tokens
    again = steps - 1 if mode_named(mode).caches else prompt * (steps - 1) + steps * (steps - 1) // 2
    return cell.batch * (prompt + again)


class Pace:
    """Estimates the remaining time: a guess for each pass and equivalence check, corrected by those measured so far.

    The guesses are seconds or, with `in_seconds` false, work in any unit; then estimates are None until something has
    been timed.
    """

    def __init__(self, guess: Guess, *, in_seconds: bool) -> None:
        self._guess, self._in_seconds = guess, in_seconds
        self._passes: dict[Key, list[float]] = {}
        self._proofs: dict[int, float] = {}
        self._besides: list[float] = [VISIT_S]

    def passed(self, key: Key, seconds: float) -> None:
        """Record the seconds of a timed pass."""
        self._passes.setdefault(key, []).append(seconds)

    def proven(self, cell: int, seconds: float) -> None:
        """Record the seconds of a cell's equivalence check."""
        self._proofs[cell] = seconds

    def visited(self, besides: float) -> None:
        """Record the seconds that a visit took besides its check and its passes."""
        self._besides.append(besides)

    def one(self, key: Key) -> float | None:
        """Seconds of a pass: the median of its measurements or, before any, its guess corrected by other passes."""
        if key in self._passes:
            return statistics.median(self._passes[key])
        measured = {other: statistics.median(found) for other, found in self._passes.items()}
        return self._righted(self._guess.passes[key], measured, self._guess.passes)

    def proof(self, cell: int) -> float | None:
        """Seconds of a cell's equivalence check: its guess corrected by other checks, or else the sum of its passes."""
        guessed = self._guess.proofs[cell]
        if self._proofs or not self._passes:
            return self._righted(guessed, self._proofs, self._guess.proofs)
        each = [self.one(key) for key in self._guess.passes if key[0] == cell]
        known = [seconds for seconds in each if seconds is not None]
        return sum(known) if len(known) == len(each) else None

    def _righted(self, guessed: float, measured: Mapping, guesses: Mapping) -> float | None:
        if not measured:
            return guessed if self._in_seconds else None
        return guessed * sum(measured.values()) / sum(guesses[key] for key in measured)

    def left(self, passes: Mapping[Key, int], unproven: Iterable[int]) -> float | None:
        """Seconds of the given number of passes per key, the unproven cells' checks and the visits; None if unknown."""
        total = 0.0
        parts = [(self.one(key), count) for key, count in passes.items() if count]
        for seconds, count in [*parts, *((self.proof(cell), 1) for cell in unproven)]:
            if seconds is None:
                return None
            total += seconds * count
        visits: dict[int, int] = {}
        for (cell, _), count in passes.items():
            visits[cell] = max(visits.get(cell, 0), count)
        return total + statistics.fmean(self._besides) * sum(visits.values())
