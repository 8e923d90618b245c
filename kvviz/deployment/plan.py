"""Will it run, and how many? A deployment's memory on each card, what fits there, and what to change if it does not.

`plan` is the one function: it takes a config and an `Asked`, and answers with a `Plan`. `options` asks the other way
round: what a card can hold of a model, by the precision of its weights and of its cache.
"""

import tomllib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from kvviz.base.errors import ConfigError
from kvviz.base.precision import WEIGHT_BITS, precision
from kvviz.base.words import human
from kvviz.deployment.activations import Activations, Widths, activations, read_widths
from kvviz.deployment.cards import card_named
from kvviz.deployment.weights import Sharing, Weights, read_weights
from kvviz.memory.engine_views import view_named
from kvviz.memory.formula import kv_memory
from kvviz.memory.llama_cpp import LlamaCpp
from kvviz.models.catalog.rows import Accelerator, accelerators
from kvviz.models.config_fields import checked
from kvviz.models.spec import ModelSpec

_OVERHEADS: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("overheads.toml").read_text(encoding="utf-8"))
MOST_SEQUENCES, MOST_TOKENS = 2**20, 2**24
# They page the cache and capture graphs. One prompt at a time is counted for them, in chunks if their chunk is known.
ENGINES = ("vllm", "sglang", "tensorrt-llm")
VLLM_UTILIZATION: float = _OVERHEADS["vllm"]["utilization"]
_SMALL_CHUNK = 512  # tokens of the chunk that a change proposes
_COUNTS = (2, 4, 8, 16)  # of cards, as machines have them


@dataclass(frozen=True)
class Asked:
    """A deployment. `sequences` None: as many as fit. `tensor` None: all cards that pipeline and data parallelism leave
    over; in the view llama.cpp they become pipeline stages, because llama.cpp shares a model out by layers.

    `tokens`: the context of each sequence. `dtype` is the cache's, `weights` the weights'. `chunk`: tokens of a prefill
    at once; None for the engine's default, or the whole prompt. `utilization`: the share of each card that the engine
    may use; None for its default. `offload_bytes`: weights of each card that stay in the host's memory. `beams` of each
    sequence; `source_tokens` of an encoder's output; `llama_cpp`: how that is started, in its view.
    """

    card: str = "h100-sxm"
    count: int = 1
    tokens: int = 8192
    sequences: int | None = None
    dtype: str = "bfloat16"
    weights: str = "bfloat16"
    view: str = "vllm"
    tensor: int | None = None
    pipeline: int = 1
    data: int = 1
    experts: bool = False
    attention: str = "sdpa"
    chunk: int | None = None
    utilization: float | None = None
    offload_bytes: int = 0
    whole_head: bool = False
    beams: int = 1
    source_tokens: int | None = None
    llama_cpp: LlamaCpp | None = None

    @property
    def computed_in(self) -> str:
        """The dtype of activations: the cache's if that is a float, else bfloat16."""
        return self.dtype if precision(self.dtype).name in ("float32", "float16") else "bfloat16"

    @property
    def together(self) -> bool:
        """Whether the prompts of all sequences are computed at once, as transformers does it, not one after another."""
        return self.view not in (*ENGINES, "llama.cpp")

    @property
    def sharing(self) -> Sharing:
        """How the cards share the model. Raises ConfigError if they can't all be used."""
        for name in ("count", "pipeline", "data"):
            checked(name, getattr(self, name))
        free = max(1, self.count // (self.pipeline * self.data))
        by_layers = self.view == "llama.cpp" and self.tensor is None  # as llama.cpp shares a model out (-sm layer)
        tensor = checked("tensor", self.tensor or (1 if by_layers else free))
        pipeline = self.pipeline * free if by_layers else self.pipeline
        found = Sharing(tensor, pipeline, self.data, self.experts)
        if found.cards != self.count:
            raise ConfigError(
                f"{tensor} (tensor) x {pipeline} (pipeline) x {self.data} (data) are {found.cards} cards, and "
                f"there are {self.count}"
            )
        return found


@dataclass(frozen=True)
class Part:
    """Bytes of one part of a card's memory, between the least and the most; `says` names the formula or the source."""

    name: str
    least: int
    most: int
    says: str


@dataclass(frozen=True)
class Change:
    """A change that makes a deployment fit, in a sentence, and what is asked then."""

    sentence: str
    asked: Asked
    sequences: int


@dataclass(frozen=True)
class Plan:
    """The answer. `parts` are those of the fullest card, for `sequences` sequences of `asked.tokens` tokens.

    `fits` is True if the parts fit even at their most, None if only at their least, False if not at all.
    `sequences`: as asked, else as many as fit for certain, at least 1. `most_sequences`: between certain and possible.
    `context`: the longest for that many sequences, None if not one token fits; `trained`: tokens that the model was
    made for, None if the config does not say. `changes` are single ones that would make it fit, best first.
    """

    model: str
    asked: Asked
    card: Accelerator
    sharing: Sharing
    budget_bytes: int
    parts: tuple[Part, ...]
    fits: bool | None
    sequences: int
    most_sequences: tuple[int, int]
    context: int | None
    trained: int | None
    step_activation_bytes: int
    widest: str
    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def least(self) -> int:
        """Bytes on the fullest card with every part at its least."""
        return sum(part.least for part in self.parts)

    @property
    def most(self) -> int:
        """Bytes on the fullest card with every part at its most."""
        return sum(part.most for part in self.parts)

    @property
    def beyond(self) -> bool:
        """Whether the longest context that fits is longer than the model was made for."""
        return bool(self.trained and self.context and self.context > self.trained)

    @property
    def sentence(self) -> str:
        """The plan in a line: 2 x NVIDIA L40S, fp8 KV, 32k context, 14 sequences."""
        asked = self.asked
        words = [f"{asked.count} x {self.card.title}", f"{asked.weights} weights", f"{asked.dtype} KV"]
        words += [self.sharing.words] if self.sharing.words else []
        words += [f"{human(asked.offload_bytes)} of weights in host memory"] if asked.offload_bytes else []
        words += [f"{short(asked.tokens)} context", f"{self.sequences:,} sequence{'s' if self.sequences > 1 else ''}"]
        return ", ".join(words)

    def to_dict(self) -> dict[str, Any]:
        """The document of `kvviz plan --json`."""
        totals = {"least_bytes": self.least, "most_bytes": self.most, "beyond": self.beyond}
        return {"sentence": self.sentence, **asdict(self), **totals}


def short(tokens: int) -> str:
    """A number of tokens as people write it: 32k for 32,768, else all digits."""
    return f"{tokens // 1024}k" if tokens >= 1024 and not tokens % 1024 else f"{tokens:,}"


def reach(context: int, trained: int | None) -> str:
    """A longest context in words, which say so if the model was made for less."""
    if trained and context > trained:
        return f"{trained:,} tokens, for which the model was made (there is room for {context:,})"
    return f"{context:,} tokens"


@dataclass(frozen=True)
class _Model:
    """What is read from a config once, whatever is asked of it."""

    name: str
    spec: ModelSpec
    widths: Widths
    weights: Weights

    @cached_property
    def kept(self) -> Callable[[Asked, int, int], int]:
        """Bytes of the cache on the fullest card, for so many sequences of so many tokens; they differ by no card."""

        @cache
        def nbytes(asked: Asked, sequences: int, tokens: int) -> int:
            names = {name: getattr(asked, name) for name in ("dtype", "view", "beams", "source_tokens", "llama_cpp")}
            share, stages = asked.sharing.tensor, self.stages(asked.sharing.pipeline)
            each = (kv_memory(s, tokens, batch=sequences, tensor_parallel=share, **names) for s in stages)
            return max(memory.reserved_bytes for memory in each)

        return nbytes

    @cached_property
    def windows(self) -> tuple[bool, frozenset[int]]:
        """Whether any layer has a window or a chunk, and the lengths of the chunks."""
        windowed = [layer for layer in self.spec.layers if layer.window]
        return bool(windowed), frozenset(layer.window or 0 for layer in windowed if layer.kind == "chunked")

    @cached_property
    def stages(self) -> Callable[[int], tuple[ModelSpec, ...]]:
        """The layers of each pipeline stage, as specs."""

        @cache
        def cut(count: int) -> tuple[ModelSpec, ...]:
            layers = self.spec.layers
            if count == 1:
                return (self.spec,)
            if self.spec.crossing:
                raise ConfigError("an encoder-decoder is not cut into pipeline stages here; pipeline has to be 1")
            if count > len(layers):
                raise ConfigError(f"pipeline is {count}, and there are {len(layers)} layers to be shared out")
            each = -(-len(layers) // count)
            return tuple(replace(self.spec, layers=layers[i : i + each]) for i in range(0, len(layers), each))

        return cut


def _read(config: Mapping[str, object], asked: Asked, name: str, params: int | None) -> _Model:
    spec = ModelSpec.from_config(config, name=name)
    return _Model(spec.name, spec, read_widths(config), read_weights(config, params, asked.weights))


@dataclass(frozen=True)
class _Case:
    """One model in one deployment: bytes by part for any number of sequences and tokens."""

    model: _Model
    asked: Asked
    card: Accelerator

    def cache(self, sequences: int, tokens: int) -> int:
        """Bytes of the cache on the fullest card."""
        own = -(-sequences // self.asked.sharing.data)
        return self.model.kept(replace(self.asked, card="", sequences=None), own, tokens)

    def peak(self, sequences: int, tokens: int) -> int:
        """The most bytes of the cache on the way to that many tokens.

        An engine that frees blocks behind a window needs a little less after a block's end, and much less after a
        chunk's, than just before: Llama 4, in chunks of 8,192 tokens, needs less for 16,385 tokens than for 16,384.
        """
        windowed, chunks = self.model.windows
        ends = [tokens // chunk * chunk for chunk in chunks] + ([tokens - 1] if windowed else [])
        return max(self.cache(sequences, n) for n in (tokens, *ends) if n >= 1)

    def chunk(self, tokens: int) -> int:
        """Tokens of a prefill that go through at once."""
        usual: int | None = None
        if self.asked.view == "vllm":
            row = _OVERHEADS["vllm"]
            large = self.card.memory_bytes >= row["large_bytes"] and row["never_large"] not in self.card.id
            usual = row["large_chunk" if large else "chunk"]
        elif self.asked.view == "llama.cpp":
            usual = _OVERHEADS["llama_cpp"]["chunk"]
        return min(tokens, self.asked.chunk or usual or tokens)

    def activations(self, sequences: int, tokens: int) -> tuple[Activations, Activations]:
        """Those of a prefill's last chunk and of a decode step, on one card."""
        asked, sharing = self.asked, self.asked.sharing
        own, new = -(-sequences // sharing.data), self.chunk(tokens)
        usual: dict[str, Any] = {"dtype": asked.computed_in, "attention": asked.attention}
        usual["tensor_parallel"] = sharing.tensor
        batch = own if asked.together else 1
        prefill = activations(
            self.model.widths, new, held=tokens - new, batch=batch, whole_head=asked.whole_head, **usual
        )
        return prefill, activations(self.model.widths, 1, held=max(0, tokens - 1), batch=own, **usual)

    def parts(self, sequences: int, tokens: int) -> tuple[Part, ...]:
        """The parts of the fullest card; the cache's bytes are the most on the way to that many tokens."""
        asked, sharing, weights = self.asked, self.asked.sharing, self.model.weights
        layers = self.model.spec.decoder_layers
        on_card = max(0, sharing.of_one_card(weights, layers) - asked.offload_bytes)
        how = "as the file states them" if weights.exact else f"{weights.params:,} parameters in {weights.dtype}"
        kept, own = self.peak(sequences, tokens), -(-sequences // sharing.data)
        when = ", at its largest on the way there" if kept > self.cache(sequences, tokens) else ""
        prefill, step = self.activations(sequences, tokens)
        paged = asked.view in ENGINES
        most = max(prefill.nbytes, 0 if paged else step.nbytes)
        return (
            Part("weights", on_card, on_card, how),
            Part("KV cache", kept, kept, f"{own:,} x {tokens:,} tokens in {asked.dtype}, view {asked.view}{when}"),
            Part("activations", most, most, f"a prefill of {self.chunk(tokens):,} tokens, at its {prefill.widest}"),
            *_overhead(self.card, asked, sharing),
        )

    def total(self, sequences: int, tokens: int, *, most: bool) -> int:
        """The most bytes on the fullest card on the way to that many tokens."""
        return sum(part.most if most else part.least for part in self.parts(sequences, tokens))

    def fits(self, sequences: int, tokens: int) -> bool | None:
        """Whether they fit even at the most (True), only at the least (None), or not at all (False)."""
        most, least = (self.total(sequences, tokens, most=most) for most in (True, False))
        return True if most <= self.budget else None if least <= self.budget else False

    @property
    def budget(self) -> int:
        """Bytes of each card that may be used."""
        usual = VLLM_UTILIZATION if self.asked.view == "vllm" else 1.0
        return int(self.card.memory_bytes * (self.asked.utilization or usual))

    def sequences(self, tokens: int, *, most: bool) -> int:
        """How many sequences of that many tokens fit."""
        needed = range(1, MOST_SEQUENCES + 1)
        return bisect_right(needed, self.budget, key=lambda count: self.total(count, tokens, most=most))

    def context(self, sequences: int) -> int | None:
        """The longest context of that many sequences that fits for certain; None if not one token does."""
        needed = range(1, MOST_TOKENS + 1)
        return bisect_right(needed, self.budget, key=lambda tokens: self.total(sequences, tokens, most=True)) or None

    def tried(self, words: str, other: Asked) -> Iterator[Change]:
        """The change, if the deployment fits with it, and with how many sequences."""
        with suppress(ConfigError):
            weights = self.model.weights.stored_as(other.weights)
            case = _Case(replace(self.model, weights=weights), other, card_named(other.card))
            if case.fits(other.sequences or 1, other.tokens):
                count = other.sequences or case.sequences(other.tokens, most=True)
                fit = f"{count:,} sequence{'s' if count > 1 else ''} of {short(other.tokens)} tokens"
                yield Change(f"{words}: {fit} then {'fit' if count > 1 else 'fits'}.", other, count)


def _overhead(card: Accelerator, asked: Asked, sharing: Sharing) -> Iterator[Part]:
    names = ("context_of_several" if sharing.cards > 1 else "context", "graphs", "metal")
    for row in (_OVERHEADS[name] for name in names):
        if card.vendor in row["vendors"] and asked.view in row.get("views", (asked.view,)):
            least, most = (
                row[f"{end}_bytes"] if f"{end}_bytes" in row else int(card.memory_bytes * row[f"{end}_share"])
                for end in ("least", "most")
            )
            yield Part(row["title"], least, most, row["source"])


def plan(config: Mapping[str, object], asked: Asked, *, name: str = "", params: int | None = None) -> Plan:
    """Work out a deployment of a config's model. Raises ConfigError with one sentence for what can't be.

    `params`: its parameters, if a catalog or a file's header states them; else they are counted from the config.
    """
    _check(asked)
    case = _Case(_read(config, asked, name, params), asked, card_named(asked.card))
    model, card = case.model, case.card
    certain, possible = (case.sequences(asked.tokens, most=most) for most in (True, False))
    sequences = asked.sequences or max(1, certain)
    fits = case.fits(sequences, asked.tokens)
    prefill, step = case.activations(sequences, asked.tokens)
    found = Plan(
        model=model.name,
        asked=asked,
        card=card,
        sharing=asked.sharing,
        budget_bytes=case.budget,
        parts=case.parts(sequences, asked.tokens),
        fits=fits,
        sequences=sequences,
        most_sequences=(certain, possible),
        context=case.context(sequences),
        trained=model.spec.context,
        step_activation_bytes=step.nbytes,
        widest=prefill.widest,
        notes=_notes(model, asked, card),
    )
    if fits is True:
        return found
    return replace(found, changes=tuple(_changes(case, found)))


def _check(asked: Asked) -> None:
    checked("tokens", asked.tokens)
    checked("offload", asked.offload_bytes, least=0)
    for name in ("sequences", "chunk"):
        if getattr(asked, name) is not None:
            checked(name, getattr(asked, name))
    if asked.utilization is not None and not 0 < asked.utilization <= 1:
        raise ConfigError(f"utilization is {asked.utilization}; it is a share above 0 and up to 1")
    view_named(asked.view)
    if asked.view not in ENGINES and asked.view not in ("hf-dynamic", "hf-static", "architecture", "llama.cpp", "mlx"):
        raise ConfigError(f"what the view {asked.view} computes at once is not known here")
    _ = asked.sharing


def _notes(model: _Model, asked: Asked, card: Accelerator) -> tuple[str, ...]:
    notes = [*model.spec.notes]
    context = model.spec.context
    if context is None:
        notes.append("The config does not say how long a context the model was made for.")
    elif asked.tokens > context:
        notes.append(f"The model was made for {context:,} tokens; beyond them the figures are arithmetic only.")
    if model.weights.counted:
        notes.append("The parameters are counted from the config's matrices, without norms and biases.")
    if WEIGHT_BITS.get(asked.weights, 16) < 16 and not model.weights.exact:
        notes.append(f"The scales of {asked.weights} weights are not counted; they differ by format.")
    if model.widths.own_attention:
        notes.append(
            "This family's attention is computed in a way of its own; its activations may be off by a fifth either way."
        )
    if model.widths.unlike_heads:
        notes.append(
            "The head dims of keys and values differ. On a CPU such a model's activations are not those given here; "
            "they were not measured on a GPU."
        )
    if asked.view in ENGINES and asked.view != "vllm" and asked.utilization is None:
        notes.append("What share of a card this engine takes is not known here; all of it is counted.")
    if asked.view in ENGINES:
        notes.append(_OVERHEADS["activations"]["note"])
    if card.vendor not in ("NVIDIA", "Apple"):
        notes.append("What this card's driver takes is not known here, so nothing is counted for it.")
    return tuple(notes)


def _changes(case: "_Case", found: Plan) -> Iterator[Change]:
    """The single changes after which the deployment fits for certain, or at least one sequence does."""
    asked, card = case.asked, case.card
    wanted, context = asked.sequences or 1, found.context or 0
    if asked.sequences and (fewer := found.most_sequences[0]):
        yield from case.tried("Decode fewer sequences at once", replace(asked, sequences=fewer))
    if 0 < context < asked.tokens:
        room = context if context < 1024 else context // 1024 * 1024
        yield from case.tried(f"Take a context of {short(room)} tokens", replace(asked, tokens=room))
    for dtype in ("fp8", "q8_0", "q4_0"):
        if dtype in view_named(asked.view).dtypes and precision(asked.dtype).block_bytes > 1:
            yield from case.tried(f"Keep keys and values in {dtype}", replace(asked, dtype=dtype))
    for weights in ("fp8", "int4"):
        if WEIGHT_BITS[weights] < WEIGHT_BITS.get(asked.weights, 0):
            yield from case.tried(f"Take weights in {weights}", replace(asked, weights=weights))
    if case.chunk(asked.tokens) > _SMALL_CHUNK:
        yield from case.tried(
            f"Put the prompt through in chunks of {_SMALL_CHUNK} tokens", replace(asked, chunk=_SMALL_CHUNK)
        )
    if card.vendor != "Apple":  # its memory is the host's, and nobody adds a second chip
        grown = (replace(asked, count=count, tensor=None) for count in _COUNTS if count > asked.count)
        yield from islice((change for more in grown for change in case.tried(f"Take {more.count} cards", more)), 1)
        lacking = -(-(case.total(wanted, asked.tokens, most=True) - case.budget) // 2**30) * 2**30
        if lacking < found.parts[0].most:
            yield from case.tried(
                f"Leave {human(lacking)} of each card's weights in the host's memory, which slows every step",
                replace(asked, offload_bytes=asked.offload_bytes + lacking),
            )
    larger = (row for row in accelerators().values() if row.memory_bytes > card.memory_bytes)
    same = sorted((row for row in larger if row.vendor == card.vendor), key=lambda row: row.memory_bytes)
    others = (replace(asked, card=row.id) for row in same)
    yield from islice((change for one in others for change in case.tried(f"Take {card_named(one.card).title}", one)), 1)


@dataclass(frozen=True)
class Filled:
    """The parts of the fullest card for a number of sequences, and whether they fit, as a `Plan` says it."""

    sequences: int
    parts: tuple[Part, ...]
    fits: bool | None


def by_sequences(config: Mapping[str, object], asked: Asked, *, params: int | None = None) -> tuple[Filled, ...]:
    """What fills a card with more and more sequences of `asked.tokens` tokens, among them as many as are asked.

    The others end with the most that fit for certain, one more, and the first number that does not fit.
    """
    _check(asked)
    case = _Case(_read(config, asked, "", params), asked, card_named(asked.card))
    certain, possible = (case.sequences(asked.tokens, most=most) for most in (True, False))
    powers = {2**i for i in range(0, certain.bit_length(), -(-certain.bit_length() // 7) or 1)}
    counts = powers | {max(1, certain), certain + 1, possible + 1, asked.sequences or 1}
    return tuple(
        Filled(count, case.parts(count, asked.tokens), case.fits(count, asked.tokens)) for count in sorted(counts)
    )


@dataclass(frozen=True)
class Option:
    """What a card holds of a model in one pair of precisions: the longest context of one sequence, and how many.

    `context` None: not one token fits. `beyond`: the context is longer than the model was made for.
    """

    weights: str
    dtype: str
    weights_bytes: int
    context: int | None
    beyond: bool
    sequences: int


def options(
    config: Mapping[str, object], asked: Asked, *, name: str = "", params: int | None = None
) -> tuple[Option, ...]:
    """What the asked cards hold of the model: a row for each precision of weights and of the cache, widest first.

    `sequences` are those of `asked.tokens` tokens that fit for certain. The weights of a GGUF file are what they are.
    """
    _check(asked)
    model, card = _read(config, asked, name, params), card_named(asked.card)
    trained, rows = model.spec.context, []
    for weights in (asked.weights,) if model.weights.exact else ("bfloat16", "fp8", "int4"):
        stored = replace(model, weights=model.weights.stored_as(weights))
        for dtype in ("bfloat16", "fp8", "q8_0"):
            if dtype not in view_named(asked.view).dtypes:
                continue
            with suppress(ConfigError):
                case = _Case(stored, replace(asked, weights=weights, dtype=dtype), card)
                context, count = case.context(1), case.sequences(asked.tokens, most=True)
                beyond = bool(trained and context and context > trained)
                rows.append(Option(weights, dtype, case.parts(1, 1)[0].most, context, beyond, count))
    return tuple(rows)


@dataclass(frozen=True)
class OnCard:
    """What is asked, on another kind of card: whether it fits, how many sequences do, and their longest context.

    `fits`, `sequences` (for certain) and `context` (of the asked sequences) are those of a `Plan`.
    """

    card: Accelerator
    fits: bool | None
    sequences: int
    context: int | None


def on_every_card(config: Mapping[str, object], asked: Asked, *, params: int | None = None) -> tuple[OnCard, ...]:
    """Work out the same deployment on each card of the catalog, in its order."""
    _check(asked)
    model, rows = _read(config, asked, "", params), []
    for card in accelerators().values():
        case, wanted = _Case(model, replace(asked, card=card.id), card), asked.sequences or 1
        fits = case.fits(wanted, asked.tokens)
        rows.append(OnCard(card, fits, case.sequences(asked.tokens, most=True), case.context(wanted)))
    return tuple(rows)
