"""Defines a sweep: one comparison over a grid of models, lengths, batches and precisions. Standard library only."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import ClassVar

from kvviz.base.errors import KvvizError
from kvviz.base.records import Sampling
from kvviz.base.settings import Limits
from kvviz.decoding.modes import check_modes, mode_named
from kvviz.experiments.comparison.spec import ComparisonSpec, comparison_like
from kvviz.experiments.kind import Spec
from kvviz.experiments.limits import check_sizes
from kvviz.models.catalog.rows import Preset, presets
from kvviz.models.sources import Source, find_source

MOST_CELLS = 200
LONGEST_BUDGET = 7 * 86_400  # seconds

PRESETS: Mapping[str, Preset] = presets()

Pass = tuple[int, str, int]  # cell, mode, round


@dataclass(frozen=True)
class Cell:
    """One point of the grid, measured as one comparison of all modes."""

    index: int
    model: str
    prompt_tokens: int
    new_tokens: int
    batch: int
    dtype: str


@dataclass(frozen=True)
class SweepSpec(Spec):
    """A sweep over every combination of models, lengths, batches and dtypes, each in all modes.

    Each prompt is `prompt_tokens` seeded random tokens, or the tokens of the text `prompt`, repeated or cut. No visit
    starts that would exceed `budget_s` seconds.
    """

    kind: ClassVar[str] = "sweep"
    called: ClassVar[str] = "a sweep"

    models: tuple[str, ...]
    modes: tuple[str, ...] = ("uncached", "cached")
    prompt_tokens: tuple[int, ...] = (64, 128, 256, 512)
    new_tokens: tuple[int, ...] = (64,)
    batches: tuple[int, ...] = (1,)
    dtypes: tuple[str, ...] = ("float32",)
    repeats: int = 3
    seed: int = 0
    budget_s: float | None = None
    prompt: str | None = None
    preset: str = ""
    weights: str = "auto"
    device: str = "auto"
    attn: str = "sdpa"

    def __post_init__(self) -> None:
        for name in LISTS:
            values, words = getattr(self, name), name.replace("_", " ")
            if not isinstance(values, tuple) or not values:
                raise KvvizError(f"{words} of a sweep is a list of at least one value, not {str(values)[:80]!r}")
            if len({repr(value) for value in values}) != len(values):
                raise KvvizError(f"{words} of a sweep names a value twice: {', '.join(map(str, values))[:200]}")
        count = math.prod(len(getattr(self, name)) for name in LISTS if name != "modes")
        if count > MOST_CELLS:
            raise KvvizError(f"this grid has {count:,} cells; a sweep has at most {MOST_CELLS}: give fewer values")
        for name in self.modes:
            if not mode_named(str(name)).unaided:
                raise KvvizError(f"a sweep takes no draft model and no server: leave {name} out for `kvviz run`")
        if not isinstance(self.device, str) or not isinstance(self.preset, str):
            raise KvvizError("device and preset of a sweep are names")
        if self.preset and self.preset not in PRESETS:
            raise KvvizError(f"no preset {self.preset!r}; the presets are {', '.join(PRESETS)}")
        number = isinstance(self.budget_s, int | float) and not isinstance(self.budget_s, bool)
        if self.budget_s is not None and not (number and 0 < self.budget_s <= LONGEST_BUDGET):  # NaN is refused, too
            raise KvvizError(
                f"the budget is {self.budget_s!r}; it is a number of seconds above 0, at most {LONGEST_BUDGET:,}"
            )
        for cell in cells(self):
            self.work(cell)  # each cell is a comparison, whose spec checks the counts and names

    def work(self, cell: Cell) -> ComparisonSpec:
        """A cell as a comparison."""
        grid = {name: value for name, value in asdict(cell).items() if name != "index"}
        filler = "random" if self.prompt is None else "text"
        return comparison_like(self, **grid, filler=filler, sampling=Sampling(seed=self.seed))

    @property
    def largest(self) -> ComparisonSpec:
        """The largest sizes as one comparison, to check them against limits."""
        cell = Cell(0, self.models[0], max(self.prompt_tokens), max(self.new_tokens), max(self.batches), self.dtypes[0])
        return self.work(cell)


LISTS = ("models", "modes", "prompt_tokens", "new_tokens", "batches", "dtypes")


def cells(spec: SweepSpec) -> tuple[Cell, ...]:
    """List the grid's cells; models vary slowest and new tokens fastest."""
    grid = product(spec.models, spec.dtypes, spec.batches, spec.prompt_tokens, spec.new_tokens)
    return tuple(
        Cell(index, model, prompt, new, batch, dtype) for index, (model, dtype, batch, prompt, new) in enumerate(grid)
    )


def same_work(spec: SweepSpec, other: SweepSpec) -> bool:
    """Whether two specs can share records: they are equal except for the repeats and the budget."""
    return replace(spec, repeats=1, budget_s=None) == replace(other, repeats=1, budget_s=None)


def find_sources(spec: SweepSpec) -> dict[str, Source]:
    """Find each model's source. Raises KvvizError for a model that does not exist."""
    return {model: find_source(model, spec.weights) for model in spec.models}


def check_sweep(spec: SweepSpec) -> None:
    """Refuse a sweep if none of its models supports all modes; if some do, only the other models' cells fail."""
    refusals = []
    for source in find_sources(spec).values():
        try:
            check_modes(spec.modes, source.config)
        except KvvizError as error:
            refusals.append(error)
    if len(refusals) == len(spec.models):
        raise refusals[0]


def cell_name(spec: SweepSpec, cell: Cell) -> str:
    """Describe a cell by its lengths and by whatever else varies in its sweep: '512 + 64 tokens, batch 4'."""
    parts = [f"{cell.prompt_tokens:,} + {cell.new_tokens:,} tokens"]
    parts += [f"batch {cell.batch}"] if len(spec.batches) > 1 else []
    parts += [cell.dtype] if len(spec.dtypes) > 1 else []
    return ", ".join([cell.model, *parts] if len(spec.models) > 1 else parts)


def check(spec: SweepSpec, limits: Limits) -> None:
    """Refuse a sweep that names a model that does not exist or exceeds this server's limits."""
    check_sizes(spec.largest, limits)
    find_sources(spec)


def title(spec: SweepSpec) -> str:
    """The sweep's name in a list."""
    name = PRESETS[spec.preset].title if spec.preset in PRESETS else "A grid"
    return f"{name} ({', '.join(spec.models)})"
