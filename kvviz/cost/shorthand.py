"""Compare the shorthand for decoding's cost, N P d^2 + N^2 d^2 / 2 against (P + N) d^2, with the full count.

The shorthand counts one d x d product for each token that a forward processes, and nothing else; P is the prompt's
length and N the number of new tokens. The full count of a plain decoder layer is 24 T d^2 + 4 T^2 d FLOPs over T tokens
(query, key, value, output, an MLP four times as wide; scores and weighted sum); `kvviz.cost.flops` counts real models.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any

from kvviz.base.errors import ConfigError, KvvizError
from kvviz.cost.blocks import Forward
from kvviz.cost.flops import cached_step, flops, prefill, square_equals_linear
from kvviz.cost.roofline import DECODE, PREFILL, Place, Roof, Work, work_of
from kvviz.cost.shape import Shape, read_shape
from kvviz.memory.calculator import is_own, unpack
from kvviz.memory.formula import DTYPE_BYTES
from kvviz.models.catalog.rows import model_row
from kvviz.models.config_fields import checked

LIMITS = {"prompt": 1_000_000, "new": 4096, "width": 1_000_000, "layers": 10_000}
_SAMPLED = 200  # forwards of a run that are timed by the roof: neighbours hardly differ


@dataclass(frozen=True)
class Case:
    """`prompt` tokens (P), `new` tokens (N), a hidden size `width` (d), `layers`, and the cache's `dtype`.

    `model` is a catalog id or a packed config for the full count; "" counts plain layers.
    """

    prompt: int = 8
    new: int = 20
    width: int = 64
    layers: int = 2
    dtype: str = "float32"
    model: str = ""

    def __post_init__(self) -> None:
        for name, most in LIMITS.items():
            value = checked(name, getattr(self, name))
            if value > most:
                raise ConfigError(f"{name} is {value:,}; this page goes up to {most:,}")
        if self.dtype not in DTYPE_BYTES:
            raise ConfigError(f"dtype is {self.dtype!r}; it is one of {', '.join(DTYPE_BYTES)}")

    @property
    def last_step(self) -> int:
        """Tokens over which the last step goes: the last new token is chosen, and no step reads it."""
        return self.prompt + self.new - 1

    @property
    def linear(self) -> int:
        """N P d^2: the prompt, processed again for every new token."""
        return self.new * self.prompt * self.width**2

    @property
    def square(self) -> float:
        """N^2 d^2 / 2: the new tokens, processed again for every later one."""
        return self.new**2 * self.width**2 / 2

    @property
    def uncached(self) -> float:
        """The shorthand's cost without a cache: both terms."""
        return self.linear + self.square

    @property
    def cached(self) -> int:
        """(P + N) d^2, the shorthand's cost with a cache: every token once."""
        return (self.prompt + self.new) * self.width**2

    @property
    def ratio(self) -> float:
        """The shorthand's cost without the cache divided by its cost with it."""
        return self.uncached / self.cached

    @property
    def linear_over_square(self) -> float:
        """Linear term divided by quadratic term: 2 P / N, independent of d."""
        return 2 * self.prompt / self.new

    @property
    def cache_bytes(self) -> int:
        """Bytes of the cache at the end: 2 x layers x (P + N - 1) x d x element bytes; no step reads the last token."""
        return 2 * self.layers * self.last_step * self.width * DTYPE_BYTES[self.dtype]

    @property
    def read_uncached(self) -> tuple[int, int]:
        """Tokens that all forwards compute without a cache: N P, and N (N - 1) / 2 new ones computed again."""
        return self.new * self.prompt, self.new * (self.new - 1) // 2

    def steps(self) -> list[tuple[int, int, int]]:
        """Return (token, length of its forward, its cost by the shorthand) for each new token."""
        return [(t, self.prompt + t, (self.prompt + t) * self.width**2) for t in range(self.new)]


OPENING = Case(prompt=64, new=1024, width=4096, layers=32, dtype="bfloat16", model="llama-3.1-8b")
PRESETS = {
    "LLaMA 3.1-8B, a long answer": OPENING,
    "LLaMA 3.1-8B, a long prompt": replace(OPENING, prompt=1024, new=256),
    "A small classroom model": Case(),
    "A long prompt, d = 4,096": Case(prompt=1024, new=200, width=4096, layers=32, dtype="float16"),
    "GPT-2, to its last position": Case(prompt=512, new=512, width=768, layers=12, model="gpt2"),
    "GPT-3's cache": Case(prompt=1024, new=1024, width=12288, layers=96, dtype="float16", model="gpt3-175b"),
    "128 + 128 tokens": Case(prompt=128, new=128, width=4096, layers=32, dtype="float16"),
}


def from_params(params: Mapping[str, str]) -> tuple[Case, list[str]]:
    """Return the case of a link, and a sentence for each of its parameters that is unusable."""
    case, problems = Case(), []
    for name in (field.name for field in fields(Case) if field.name in params):
        try:
            case = replace(case, **{name: _value(name, params[name])})
        except KvvizError as error:
            problems.append(f"The link's {name}: {error}.")
    return case, problems


def _value(name: str, text: str) -> Any:
    """Read a field from a link's text. Raises KvvizError for a text that is no number, or for an unknown model."""
    if name == "model" and text:
        config_of(text)
    if name not in LIMITS:
        return text
    try:
        return int(text)
    except ValueError as error:
        raise KvvizError(f"{text[:40]!r} is no whole number") from error


def to_params(case: Case) -> dict[str, str]:
    """Return the fields of a case that differ from the default, as parameters of a link that is never empty."""
    usual = asdict(Case())
    return {name: str(value) for name, value in asdict(case).items() if value != usual[name]} or {"model": ""}


def config_of(model: str) -> Mapping[str, object]:
    """Return the config of a catalog id or of a packed config. Raises KvvizError for any other name."""
    return unpack(model) if is_own(model) else model_row(model).config


@lru_cache(maxsize=64)
def shape_of(model: str) -> Shape:
    """Return the shape of a catalog id or of a packed config. Raises KvvizError if its work can't be counted."""
    return read_shape(config_of(model), name=model)


Terms = Mapping[str, int]


@dataclass(frozen=True)
class Count:
    """The full count of a case: FLOPs of a step by term at a context of T tokens, without and with the cache.

    `overtakes` is the context at which attention's products cost more than the layers' other products.
    """

    uncached: Callable[[int], Terms]
    cached: Callable[[int], Terms]
    overtakes: int | None


def plain(width: int, layers: int) -> Count:
    """Count plain decoder layers: 24 T d^2 + 4 T^2 d each; a cached step 24 d^2 + 4 T d; no head."""

    def step(n: int, new: int) -> Terms:
        matrices, products = layers * new * width**2, 4 * layers * new * n * width
        return {"projections": 8 * matrices, "mlp": 16 * matrices, "attention": products}

    return Count(lambda n: step(n, n), lambda n: step(n, 1), 6 * width)


@lru_cache(maxsize=32)
def full(case: Case) -> Count:
    """Count a case's model, including the head, or plain layers. Raises KvvizError if it can't be counted."""
    if not case.model:
        return plain(case.width, case.layers)
    uncached, cached = (partial(_counted, case.model, forward) for forward in (prefill, cached_step))
    return Count(uncached, cached, square_equals_linear(shape_of(case.model)))


@lru_cache(maxsize=1 << 14)  # a run that is one token longer has the same forwards and one more
def _counted(model: str, forward: Callable[[Shape, int], Forward], tokens: int) -> Terms:
    shape = shape_of(model)
    return flops(shape, forward(shape, tokens))


@lru_cache(maxsize=8)  # of a long run it is large
def _forwards(case: Case) -> tuple[list[Terms], list[Terms]]:
    """FLOPs by term of each forward of a case's run, without and with the cache; both begin with the prefill."""
    count, later = full(case), range(case.prompt + 1, case.prompt + case.new)
    first = count.uncached(case.prompt)
    without, within = ([first, *map(step, later)] for step in (count.uncached, count.cached))
    return without, within


@lru_cache(maxsize=128)
def run_flops(case: Case, but: str = "") -> tuple[tuple[int, ...], tuple[int, ...]]:
    """FLOPs of a case's run up to each new token, without and with the cache, by the full count.

    The first of each is the prefill, which makes the first token; the last is the whole run. `but` names a term that is
    left out.
    """
    without, within = (
        tuple(accumulate(sum(terms.values()) - terms.get(but, 0) for terms in forwards)) for forwards in _forwards(case)
    )
    return without, within


@dataclass(frozen=True)
class RunTime:
    """The least seconds of a run by a roof, without the cache and with it, by what its forwards wait for.

    That is `arithmetic` where it takes longer than all that is moved, else the `weights` and the `rest` of the bytes.
    Of the run without the cache, `hidden` are the seconds in which it reads weights while its arithmetic takes longer,
    `covered` those in which it computes while its reading takes longer.
    """

    uncached: Mapping[str, float]
    cached: Mapping[str, float]
    hidden: float
    covered: float

    @property
    def totals(self) -> tuple[float, float]:
        """The seconds without the cache and with it."""
        return sum(self.uncached.values()), sum(self.cached.values())

    @property
    def gain(self) -> float:
        """How many times the seconds the run takes without the cache."""
        without, within = self.totals
        return without / within


@lru_cache(maxsize=1 << 12)
def _work(model: str, place: Place, dtype: str) -> Work:
    return work_of(shape_of(model), place, dtype)


@lru_cache(maxsize=64)
def run_time(case: Case, dtype: str, roof: Roof) -> RunTime | None:
    """The least time of a case's run by a roof, each forward the longer of reading and computing.

    Of a long run _SAMPLED forwards stand for all. None for plain layers, for a run of one token, and for a model that
    reads its text with an encoder.
    """
    if not case.model or case.new == 1 or shape_of(case.model).spec.crossing:
        return None
    lengths = range(case.prompt, case.prompt + case.new)

    def least(*parts: tuple[str, range]) -> tuple[dict[str, float], float, float]:
        spent, hidden, covered = {"arithmetic": 0.0, "weights": 0.0, "rest": 0.0}, 0.0, 0.0
        for phase, lengths in parts:
            apart = -(-len(lengths) // _SAMPLED)
            some = lengths[apart // 2 :: apart]  # the middle of each stretch, so that none counts too short
            for tokens in some:
                work = _work(case.model, Place(phase, tokens), dtype)
                stands_for = len(lengths) / len(some)
                weights = work["weight_bytes"] / roof.read * stands_for
                if work["intensity"] > roof.ridge:
                    spent["arithmetic"] += roof.least(work) * stands_for
                    hidden += weights
                else:
                    spent["weights"] += weights
                    spent["rest"] += roof.least(work) * stands_for - weights
                    covered += work["flops"] / roof.flops * stands_for
        return spent, hidden, covered

    without, hidden, covered = least((PREFILL, lengths))
    within, *_ = least((PREFILL, lengths[:1]), (DECODE, lengths[1:]))
    return RunTime(without, within, hidden, covered)


def saving(case: Case, but: str = "") -> float:
    """How many times the work a run takes without the cache; `but` names a term that both runs leave out.

    Raises KvvizError if the model can't be counted.
    """
    without, within = run_flops(case, but)
    return without[-1] / within[-1]


def bend(sums: Sequence[float]) -> float:
    """How many times the work of the first half of the decode steps the second half takes.

    `sums` holds the work so far after each new token, the first one that of the prefill. A straight line gives 1, a
    square from nothing 3. Steps in the middle of an odd number belong to neither half; 1 where there are not two steps.
    """
    half = (len(sums) - 1) // 2
    return (sums[-1] - sums[-1 - half]) / (sums[half] - sums[0]) if half else 1.0


def attention_share(case: Case) -> float:
    """Attention's share of the FLOPs of the last step without the cache."""
    whole = full(case).uncached(case.last_step)
    return whole.get("attention", 0) / sum(whole.values())


def questions(case: Case) -> list[tuple[str, str]]:
    """Return four questions about a run's cost, each with what the full count answers for this case."""
    count, end, second = full(case), case.last_step, case.prompt + 1
    early, late = (sum(count.cached(n).values()) for n in (second, max(second, end)))
    from_where = "never" if count.overtakes is None else f"from {count.overtakes:,} tokens on"
    more = f"grows by {late / early - 1:.2%}" if late >= early else f"shrinks by {1 - late / early:.2%}"
    return [
        (
            "Does a step without the cache cost O(T²)?",
            f"Attention does; the layers' other products cost O(T). At {end:,} tokens attention is "
            f"{attention_share(case):.1%} of the step, and {from_where} the larger part.",
        ),
        (
            f"Does the cache save P + N = {case.prompt + case.new:,} times the work?",
            "Only if every step were as long as the last one, and attention were all of the work. Counted, the run "
            f"saves {saving(case):,.1f}×.",
        ),
        (
            "Does a step with the cache always cost the same?",
            f"Nearly: it still scans the cache. From {second:,} to {max(second, end):,} tokens it {more}.",
        ),
        ("Is the quadratic term always the larger one?", _larger_term(case)),
    ]


def _larger_term(case: Case) -> str:
    if case.linear == case.square:
        return "Here both are equal: N = 2 P."
    larger, smaller = ("linear", "quadratic") if case.linear > case.square else ("quadratic", "linear")
    return (
        f"In N P d² + N² d² / 2 it is a question of N against 2 P, whatever d is: here the {larger} term is "
        f"{max(case.linear_over_square, 1 / case.linear_over_square):,.4g} times the {smaller} one."
    )
