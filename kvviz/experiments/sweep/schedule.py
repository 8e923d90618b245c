"""The order in which a sweep visits its cells, and how long the rest will take. Standard library only."""

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
    """Cells that are measured in turn: those whose models fit `free` bytes together.

    A model whose size only loading tells is alone.
    """
    found: list[list[Cell]] = []
    weights, most = 0, 0  # bytes of the last group: of its weights, and of the rest of its neediest cell
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
    """Cells by what has to be loaded for them."""
    found: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells(spec):
        found.setdefault((cell.model, cell.dtype), []).append(cell)
    return found


def visits(group: Sequence[Cell], rounds: int) -> Iterator[tuple[int, Cell]]:
    """(round, cell): every round visits every cell once, A B C, C B A, ... so that drift hits all alike."""
    for number in range(rounds):
        yield from ((number, cell) for cell in (group if number % 2 == 0 else reversed(group)))


def tokens_fed(spec: SweepSpec) -> Guess:
    """Tokens that passes and proofs feed: a measure of work where nothing is known of the model."""
    passes = {(cell.index, mode): float(_fed(cell, mode)) for cell in cells(spec) for mode in spec.modes}
    return Guess(passes, {cell.index: sum(passes[cell.index, mode] for mode in spec.modes) for cell in cells(spec)})


def _fed(cell: Cell, mode: str) -> int:
    steps, prompt = cell.new_tokens, cell.prompt_tokens
    again = steps - 1 if mode_named(mode).caches else prompt * (steps - 1) + steps * (steps - 1) // 2
    return cell.batch * (prompt + again)


class Pace:
    """How long the rest takes: a guess of each pass and proof, set right by those measured so far.

    The guesses are seconds, or (`in_seconds` false) work in any one unit; then nothing is known before the first pass.
    """

    def __init__(self, guess: Guess, *, in_seconds: bool) -> None:
        self._guess, self._in_seconds = guess, in_seconds
        self._passes: dict[Key, list[float]] = {}
        self._proofs: dict[int, float] = {}
        self._besides: list[float] = [VISIT_S]

    def passed(self, key: Key, seconds: float) -> None:
        """Take note of a timed pass."""
        self._passes.setdefault(key, []).append(seconds)

    def proven(self, cell: int, seconds: float) -> None:
        """Take note of a cell's proof."""
        self._proofs[cell] = seconds

    def visited(self, besides: float) -> None:
        """Take note of what a visit took beside its proof and its passes."""
        self._besides.append(besides)

    def one(self, key: Key) -> float | None:
        """Seconds of a pass: its own median where it has been measured, else the guess, set right by the others."""
        if key in self._passes:
            return statistics.median(self._passes[key])
        measured = {other: statistics.median(found) for other, found in self._passes.items()}
        return self._righted(self._guess.passes[key], measured, self._guess.passes)

    def proof(self, cell: int) -> float | None:
        """Seconds of a cell's proof: the guess, set right by the proofs so far, else by the passes."""
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
        """Seconds of so many passes of each key, of these proofs and of the visits; None while nothing is known."""
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
