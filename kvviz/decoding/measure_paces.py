"""Measure the paces that `kvviz.cost.predict` predicts from, in about a second, on synthetic tensors.

No step of the model is timed. The caller must hold the device lock (`kvviz.device.lock`). Each pace is the median of a
few calls, because the figures of a model's steps are medians too.
"""

import copy
import itertools
import logging
import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import linear
from transformers import AutoModelForCausalLM, LlamaConfig
from transformers.pytorch_utils import Conv1D

from kvviz.cost.blocks import Attention, Matrix
from kvviz.cost.flops import estimated
from kvviz.cost.predict import Paces
from kvviz.cost.shape import Shape
from kvviz.decoding.elementwise import Operation, elementwise_seconds, operations_of
from kvviz.decoding.loading import Loaded
from kvviz.decoding.loop import decode
from kvviz.decoding.meta_model import on_meta
from kvviz.decoding.modes import mode_named
from kvviz.device.clock import Sync, may_end_here, median_call, synchroniser, timed
from kvviz.device.measure_ceilings import read_figure
from kvviz.device.memory import device_memory, last_level_cache
from kvviz.device.multiply_adds import MultiplyAdds
from kvviz.device.remembered import Remembered, figures_due_in, hold_figures_against_read, remembered
from kvviz.memory.formula import DTYPE_BYTES

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

SmallPaces = tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]  # resident, evicting, head
Model = tuple[str, str, str, str, int]  # device, dtype, config, attention, threads
Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]  # of queries, keys, values: (B, H, T, D)

log = logging.getLogger("kvviz.decoding.measure_paces")

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # rows and a weight (out, in) to x W

NO_TOKENS = {"vocab_size": 32, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
NARROW = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "head_dim": 8, **NO_TOKENS}
ROWS = (1, 2, 4, 8, 16, 33, 67, 131, 263, 521)
FEW = 64  # from this many rows on, computing takes longer than reading, so two matrices are enough
SEVERAL = 4  # sequences of the steps whose launches are held against those of one
MOVED = (0, 2**17, 2**19, 2**21, 2**22, 3 * 2**22)  # bytes moved for each product while launches are measured
POOL = 2**28  # bytes of the memory that is read then
LONGEST = 0.5  # seconds; after a product this slow, no larger number of rows is tried
STREAMED = 2**27  # bytes of weights to read at least, so that they come from memory and not from a cache
ROUNDS = 3  # of measuring launches, over a second: a slow moment spoils one of them
MANY = 25  # calls of less than a millisecond, of which the first are slower
QUICK = 0.05  # seconds; after an attention this slow, no longer text is tried


@dataclass(frozen=True)
class Heads:
    """Query heads of some layers, the KV heads that they share, and the elements of a key and of a value in each."""

    queries: int = 8
    shared: int = 8
    key_dim: int = 64
    value_dim: int = 64
    layers: int = 12


@dataclass(frozen=True)
class AttentionPaces:
    """The paces of `Paces` that depend on a model's heads."""

    queries: tuple[int, ...]
    attending: tuple[float, ...]
    cached: tuple[int, ...]
    looking: tuple[float, ...]
    joining: tuple[float, ...]


@dataclass(frozen=True)
class Starts:
    """The paces of launches (`Paces`), and how many operations a step launches."""

    moved: tuple[int, ...]
    starting: tuple[float, ...]
    again: float
    several: float
    operations: int


@dataclass(frozen=True)
class Sizes:
    """The sizes of the tensors whose work is timed: the matrix (`inner`, `columns`), the texts of `queries` tokens that
    attend to themselves, the `cached` tokens of each layer, `most` bytes of all layers, the `rows` of elementwise work.
    """

    inner: int
    columns: int
    queries: tuple[int, ...]
    cached: tuple[int, ...]
    most: int
    rows: tuple[int, ...]


# Texts are rarely as long as a power of two, where products and attention are fastest.
ON_CPU = Sizes(
    inner=1024,
    columns=3072,
    queries=(33, 49, 67, 81, 97, 131, 197, 263, 391, 521, 1031),
    cached=(64, 256, 1024, 4096),
    most=2**28,
    rows=(1, 33, 131, 521, 2053),
)
# On a GPU each call has to take much longer than its launch and the synchronisation around it, some tens of µs.
ON_GPU = Sizes(inner=4096, columns=12288, queries=(2048,), cached=(2**15,), most=2**30, rows=(1, 2053, 8209))


def sizes_on(device: str) -> Sizes:
    """Return the sizes that tell a device's pace rather than its launch overhead."""
    return ON_CPU if device == "cpu" else ON_GPU


def knows_paces(loaded: Loaded) -> bool:
    """Whether all paces of this model were measured in this process, and none is to be measured again now."""
    return (_key(loaded), linear) in _complete and figures_due_in() != 0


def _key(loaded: Loaded) -> Model:
    """What a model's paces are kept by."""
    config = loaded.model.config
    named, attn = config.to_json_string(), str(config._attn_implementation)
    return loaded.device, loaded.dtype, named, attn, torch.get_num_threads()


def paces_of(loaded: Loaded, product: Product = linear) -> tuple[Paces, int]:
    """Return the paces for a model's dtype, attention and elementwise work, and the number of operations of its step.

    `product` is how its products are computed. Each pace is measured before the work that needs it, and again when it
    is in doubt. Of the model itself, only the config and the sizes and layout of the weights are read.
    """
    config = loaded.model.config
    hold_figures_against_read(loaded.device, partial(read_figure, loaded.device))
    model = _key(loaded)
    device, dtype, named, attn, threads = model
    place = device, dtype
    turned = loaded.device == "cpu" and any(isinstance(part, Conv1D) for part in loaded.model.modules())
    how = (*place, threads, product, turned)
    paces = _paces.get(how, lambda: measure_paces(*place, product, turned))
    shape = estimated(loaded.source.config)
    heads = heads_of(shape)
    small = () if shape is None else _as_they_lie(loaded.model, resident_sizes(shape, paces))
    head, of_head = head_size(shape) if loaded.device == "cpu" else None, tuple[float, ...]()
    if small:
        found = _small.get((*how, named), lambda: small_paces(config, *place, small, head, product, turned))
        (resident, evicting), of_head = found[:2], found[2]
        paces = replace(paces, resident=resident[: len(paces.rows)], evicting=evicting)
    elif head:
        of_head = _head.get((*place, threads, product, head), lambda: head_paces(*place, head, product))
    paces = replace(paces, head=of_head, head_rows=ROWS[: len(of_head)])
    attention = _attention.get((*place, attn, heads, threads), lambda: attention_paces(*place, attn, heads))
    rows, elementwise = _elementwise.get(model, lambda: elementwise_paces(config, *place))
    starts = _starts.get(model, lambda: _starts_of(config, *place))
    _complete.add((model, product))
    known = replace(paces, **vars(attention), elementwise_rows=rows, elementwise_s=elementwise)
    known = replace(known, moved=starts.moved, starting=starts.starting, again=starts.again, several=starts.several)
    matrices = [tensor.nbytes for tensor in loaded.model.parameters() if tensor.dim() > 1]
    return replace(known, start=known.launch(sum(matrices) / max(1, len(matrices)))), starts.operations


_complete: set[tuple[Model, Product]] = set()  # whose paces have all been measured
_paces: Remembered[Paces] = remembered(lambda paces: paces.streamed[0])
# The second pace is a small difference, mostly noise, so it is compared together with the first.
_small: Remembered[SmallPaces] = remembered(lambda found: found[0][0] + found[1][-1])
_head: Remembered[tuple[float, ...]] = remembered(lambda paces: paces[0])
_attention: Remembered[AttentionPaces] = remembered(lambda found: found.attending[-1])
_elementwise: Remembered[tuple[tuple[int, ...], tuple[float, ...]]] = remembered(lambda found: found[1][-1])
_starts: Remembered[Starts] = remembered(lambda found: found.starting[-1])


def heads_of(shape: Shape | None) -> Heads:
    """Return the heads of the attention that most layers of a model have."""
    blocks = [block for layer in shape.layers for block in layer if isinstance(block, Attention)] if shape else []
    if not shape or not blocks:
        return Heads()
    most = Counter(block for block in blocks if block.term == "attention").most_common(1)[0][0]
    shared = Counter(layer.kv_heads for layer in shape.spec.layers if layer.kv_heads and not layer.latent).most_common(
        1
    )
    groups = shared[0][0] if shared and most.heads % shared[0][0] == 0 else most.heads
    return Heads(most.heads, groups, most.key_dim, most.value_dim, len(blocks))


@torch.inference_mode()
def measure_paces(device: str, dtype: str, product: Product = linear, turned: bool = False) -> Paces:
    """Measure the paces of products with weights that come from memory; all others are 0 here.

    `turned`: the weights lie as (inputs, outputs), like GPT-2's, and another kernel reads them.
    """
    kind, sync = getattr(torch, dtype), synchroniser(device)
    cache_bytes = last_level_cache() if device == "cpu" else 0
    sizes = sizes_on(device)
    weight = sizes.inner * sizes.columns * kind.itemsize
    free = device_memory(device)[0] // 8
    copies = max(2, min(-(-max(STREAMED, 3 * cache_bytes) // weight), 2**29 // weight, free // weight))
    pool = [_matrix(sizes.inner, sizes.columns, device, kind, turned) for _ in range(copies)]
    streamed = tuple(_ladder(pool, sync, product))
    return Paces(
        dtype=dtype,
        rows=ROWS[: len(streamed)],
        streamed=streamed,
        resident=streamed,
        cache_bytes=cache_bytes,
        start=0.0,
    )


def resident_sizes(shape: Shape, paces: Paces) -> tuple[tuple[int, int], ...]:
    """Return the (inputs, outputs) of a step's matrices in their order, if all of them stay in the processor's cache.

    The head is left out: it has paces of its own.
    """
    blocks = [block for layer in (*shape.layers, shape.outside) for block in layer if isinstance(block, Matrix)]
    weights = DTYPE_BYTES[paces.dtype] * sum(block.weights for block in blocks)
    if weights > paces.cache_bytes:
        return ()
    layers = [block for block in blocks if block.term != "head" and not block.weightless]
    return tuple((block.inputs, block.outputs) for block in layers for _ in range(block.copies))


def _as_they_lie(model: "PreTrainedModel", sizes: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Return the sizes as the model's modules hold them: GPT-2 computes queries, keys and values in one product.

    Where they are not these weights, as with experts, `sizes` stay.
    """
    head = model.get_output_embeddings()
    lying = [
        part.get_parameter("weight").shape[:: 1 if isinstance(part, Conv1D) else -1]
        for part in _products_of(model)
        if part is not head
    ]
    same = sum(map(math.prod, lying)) == sum(map(math.prod, sizes))
    return tuple((inputs, outputs) for inputs, outputs in lying) if same else sizes


def _products_of(model: "PreTrainedModel") -> list[torch.nn.Module]:
    """Return the modules that multiply by a matrix, in their order; an embedding only looks rows up."""
    matrices = [part for part in model.modules() if getattr(getattr(part, "weight", None), "ndim", 0) == 2]
    return [part for part in matrices if not isinstance(part, torch.nn.Embedding)]


def head_size(shape: Shape | None) -> tuple[int, int] | None:
    """Return the (inputs, outputs) of a model's head: the widest of its matrices that count as the head."""
    blocks = [block for block in shape.outside if isinstance(block, Matrix) and block.term == "head"] if shape else []
    widest = max(blocks, key=lambda block: block.outputs, default=None)
    return (widest.inputs, widest.outputs) if widest else None


def _matrix(inputs: int, outputs: int, device: str, kind: torch.dtype, turned: bool = False) -> torch.Tensor:
    """Make a weight (outputs, inputs) of ones; a `turned` one lies in memory as (inputs, outputs)."""
    if turned:
        return torch.ones(inputs, outputs, device=device, dtype=kind).t()
    return torch.ones(outputs, inputs, device=device, dtype=kind)


def small_paces(
    config: "PreTrainedConfig",
    device: str,
    dtype: str,
    sizes: Sequence[tuple[int, int]],
    head: tuple[int, int] | None,
    product: Product = linear,
    turned: bool = False,
) -> SmallPaces:
    """Measure the paces of a small model's products: those from the cache, and what other memory adds to them."""
    resident, of_head = resident_paces(config, device, dtype, sizes, head, product, turned)
    return resident, evicting_paces(device, dtype, sizes, product, turned), of_head


@torch.inference_mode()
def resident_paces(
    config: "PreTrainedConfig",
    device: str,
    dtype: str,
    sizes: Sequence[tuple[int, int]],
    head: tuple[int, int] | None = None,
    product: Product = linear,
    turned: bool = False,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Measure the products of a small model's layers and of its head by number of rows, beyond their launch.

    Between two products a step does other things, which push a product's code and weights away from the core. So each
    product is timed between the operations of a narrow model of this config, about as often as the step comes to it.
    """
    kind = getattr(torch, dtype)
    layers = [_matrix(*size, device, kind, turned) for size in sizes]
    last = [_matrix(*head, device, kind)] if head else []
    between = _Between(_narrow(config).to(device, kind).eval(), device)
    row, tiny = torch.ones(1, 16).to(layers[0]), torch.ones(16, 16).to(layers[0])
    launch = statistics.median(between.seconds([partial(product, row, tiny)] * len(layers)))
    of_layers, of_head = list[float](), list[float]()
    for rows in ROWS:
        pool = [*layers, *last] if rows < FEW else layers
        inputs = {weight.shape[1]: torch.ones(rows, weight.shape[1]).to(weight) for weight in pool}
        calls = [partial(product, inputs[weight.shape[1]], weight) for weight in pool]
        took = [max(0.0, one - launch) for one in between.seconds(calls, MANY if rows < FEW else 5)]
        of_layers.append(sum(took[: len(layers)]) / sum(weight.numel() for weight in layers))
        of_head += [seconds / weight.numel() for seconds, weight in zip(took[len(layers) :], last, strict=False)]
        if took[0] > LONGEST:
            break
    return tuple(of_layers), tuple(of_head)


@torch.inference_mode()
def evicting_paces(
    device: str, dtype: str, sizes: Sequence[tuple[int, int]], product: Product = linear, turned: bool = False
) -> tuple[float, ...]:
    """Measure what an element of a small model's weights takes longer to fetch beside other memory.

    Before each product, off the clock, so many bytes are read (MOVED), as a step reads its cache: they push the weights
    further away from the core, or out of the processor's cache. If an eighth of the free memory does not hold so many
    for each product, some are read several times.
    """
    kind = getattr(torch, dtype)
    pool = [_matrix(*size, device, kind, turned) for size in sizes]
    rows = {inputs: torch.ones(1, inputs, device=device, dtype=kind) for inputs, _ in sizes}

    def step(others: torch.Tensor) -> float:
        taken = 0.0
        for weight, other in zip(pool, itertools.cycle(others), strict=False):
            other.sum()
            began = time.perf_counter()
            product(rows[weight.shape[1]], weight)
            taken += time.perf_counter() - began
        return taken

    def seconds(size: int) -> float:
        slices = max(1, min(len(pool), device_memory(device)[0] // 8 // max(1, size)))
        others = torch.ones(slices, size // 4)
        return statistics.median([step(others) for _ in range(MANY)])

    found = _rising([seconds(size) for size in MOVED])
    elements = sum(weight.numel() for weight in pool)
    return tuple((one - found[0]) / elements for one in found)


def _rising(values: Sequence[float]) -> tuple[float, ...]:
    """Return the rising values that lie nearest: neighbours that fall are replaced by their mean.

    More bytes never make anything faster; what looks so is noise. https://en.wikipedia.org/wiki/Isotonic_regression
    """
    pooled: list[tuple[float, int]] = []
    for value in values:
        pooled.append((value, 1))
        while len(pooled) > 1 and pooled[-2][0] > pooled[-1][0]:
            (one, few), (other, more) = pooled[-2:]
            pooled[-2:] = [((one * few + other * more) / (few + more), few + more)]
    return tuple(value for value, count in pooled for _ in range(count))


@torch.inference_mode()
def head_paces(device: str, dtype: str, size: tuple[int, int], product: Product = linear) -> tuple[float, ...]:
    """Measure the product of a head that comes from memory by number of rows, those of a batch.

    `size` is its (inputs, outputs). Of a very wide head a part is measured.
    """
    kind, sync = getattr(torch, dtype), synchroniser(device)
    inputs, outputs = size
    widest = max(1, min(STREAMED, device_memory(device)[0] // 8) // (inputs * kind.itemsize))
    nbytes = min(outputs, widest) * inputs * kind.itemsize
    copies = max(1, STREAMED // nbytes)
    pool = [_matrix(inputs, min(outputs, widest), device, kind) for _ in range(copies)]
    few = [rows for rows in ROWS if rows < FEW]
    return _beyond_launch(_ladder(pool, sync, product, copies, 3, few), pool, device, product)


def _beyond_launch(
    paces: Sequence[float], pool: Sequence[torch.Tensor], device: str, product: Product
) -> tuple[float, ...]:
    """Take the launch of each product off the seconds per element of a pool, because launches are counted apart."""
    row, tiny = torch.ones(1, 16).to(pool[0]), torch.ones(16, 16).to(pool[0])

    def launches() -> None:
        for _ in pool:
            product(row, tiny)

    launch = median_call(launches, synchroniser(device)) / sum(weight.numel() for weight in pool)
    return tuple(max(0.0, pace - launch) for pace in paces)


@torch.inference_mode()
def attention_paces(device: str, dtype: str, attn: str, heads: Heads) -> AttentionPaces:
    """Measure attention of a text to itself, one query's look at cached tokens, and growing a cache by a token.

    With `attn` "eager", attention's scores and softmax are separate operations; with any other value, one kernel. The
    FLOPs of a text's attention are those of the whole square.
    """
    kind, sync, sizes = getattr(torch, dtype), synchroniser(device), sizes_on(device)
    attend = _eager if attn == "eager" else _fused
    dims = ((heads.queries, heads.key_dim), (heads.shared, heads.key_dim), (heads.shared, heads.value_dim))
    flops = 2 * heads.queries * (heads.key_dim + heads.value_dim)  # of a query and a key

    def text(tokens: int) -> list[torch.Tensor]:
        return [torch.ones(1, tokens, *size, device=device, dtype=kind).transpose(1, 2) for size in dims]

    one, attending = text(1), list[float]()
    launch = median_call(lambda: attend(*one), sync)
    for tokens in sizes.queries:
        whole = text(tokens)
        took = median_call(partial(attend, *whole), sync, 3)
        attending.append(max(0.0, took - launch) / (flops * tokens**2))
        if took > QUICK:
            break
    looking, joining = list[float](), list[float]()
    for tokens in sizes.cached:
        layers = max(2, min(heads.layers, sizes.most // sum(tensor.nbytes for tensor in text(tokens)[1:])))
        caches = [[tensor.contiguous() for tensor in text(tokens)[1:]] for _ in range(layers)]
        moved = 2 * sum(tensor.nbytes for layer in caches for tensor in layer)

        def grow(look: bool, caches: list[list[torch.Tensor]] = caches) -> None:
            for number, layer in enumerate(caches):
                caches[number] = [torch.cat([old, new], -2) for old, new in zip(layer, one[1:], strict=True)]
                if look:
                    attend(one[0], *caches[number])

        alone, both = (median_call(partial(grow, look), sync) for look in (False, True))
        looking.append(max(0.0, (both - alone) / layers - launch) / (flops * tokens))
        joining.append(alone / moved)
    return AttentionPaces(
        sizes.queries[: len(attending)], tuple(attending), sizes.cached, tuple(looking), tuple(joining)
    )


def elementwise_paces(config: "PreTrainedConfig", device: str, dtype: str) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Measure the elementwise operations of a forward of this config's model at each number of rows.

    If one of them can't be timed alone, those of a Llama as large are measured.
    """
    kind, sync, rows = getattr(torch, dtype), synchroniser(device), sizes_on(device).rows
    with torch.inference_mode():
        try:
            return elementwise_seconds(_elementwise_operations(config, kind), device, sync, rows)
        except ValueError as error:
            log.warning("%s: elementwise work is a Llama's, because %s", config.model_type, error)
            return elementwise_seconds(_operations_of_a_llama(config, kind), device, sync, rows)


def _elementwise_operations(config: "PreTrainedConfig", kind: torch.dtype) -> list[Operation]:
    """Count the operations in a model without memory; if its family can't be traced, in a Llama as large."""
    attn = config._attn_implementation
    try:
        with on_meta():
            model = AutoModelForCausalLM.from_config(copy.deepcopy(config), attn_implementation=attn).to(kind).eval()
        return operations_of(model)
    except Exception as error:  # a family's own code can raise anything where values can't be read
        log.info("no trace of %s (%s): elementwise work is a Llama's", config.model_type, type(error).__name__)
    return _operations_of_a_llama(config, kind)


def _operations_of_a_llama(config: "PreTrainedConfig", kind: torch.dtype) -> list[Operation]:
    """Count the operations of a Llama with this config's sizes."""
    attn, text = config._attn_implementation, config.get_text_config()
    sizes = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    same = {name: value for name in sizes if isinstance(value := getattr(text, name, None), int) and value > 0}
    with on_meta():
        llama = AutoModelForCausalLM.from_config(LlamaConfig(**NO_TOKENS, **same), attn_implementation=attn).to(kind)
    return operations_of(llama.eval())


@torch.inference_mode()
def count_operations(model: "PreTrainedModel") -> int:
    """Count the operations of a decode step of one token."""
    forward = mode_named("cached").open(model, 2)
    ids = torch.zeros(1, 2, dtype=torch.long, device=model.device)
    forward(ids[:, :1], ids[:, :1])
    with MultiplyAdds() as counter:
        forward(ids, ids[:, 1:])
    return counter.operations


def _starts_of(config: "PreTrainedConfig", device: str, dtype: str) -> Starts:
    """Measure the launch overhead of an operation (s) by the bytes moved for each product; count a step's operations.

    The measured decoder has the model's layers, but so narrow that their arithmetic costs nothing. The time of Python,
    the modules and the loop around an operation therefore counts as its launch overhead. On a CPU, other memory is read
    before each product, off the clock: what a step moves evicts the interpreter's code and data from the processor's
    caches, so that launching takes longer. A forward over a whole text does more in Python, and with several sequences
    operations take other ways, as new keys and values do that no longer lie in one piece: both are timed as well. A
    module with a hook is called more slowly: what that adds is measured on a decoder without hooks, and taken off.
    """
    bare = _narrow(config).to(device, getattr(torch, dtype)).eval()
    operations, sync, twin = count_operations(bare), synchroniser(device), copy.deepcopy(bare)
    reads = _Reads(twin)
    moved = MOVED if device == "cpu" else MOVED[:1]

    def launch(size: int, mode: str = "cached", batch: int = 1, decoder: "PreTrainedModel" = twin) -> float:
        may_end_here()
        ids = torch.zeros(batch, 8, dtype=torch.long, device=device)
        reads.read_for_each_product(size)
        steps = timed(decode(decoder, ids, mode=mode, new_tokens=10), sync)
        return statistics.median([step.seconds - reads.taken() for step in steps][3:]) / operations

    sizes = [(size, "cached", 1, twin) for size in moved]
    asked = [*sizes, (0, "uncached", 1, twin), (0, "cached", SEVERAL, twin), (0, "cached", 1, bare)]
    launch(0)  # the first steps of a process launch more slowly than all later ones
    rounds = [[launch(*each) for each in asked] for _ in range(ROUNDS)]
    *starts, text, sequences, plain = map(statistics.median, zip(*rounds, strict=True))
    again, several = (max(0.0, seconds - starts[0]) for seconds in (text, sequences))
    hooks = max(0.0, starts[0] - plain)
    launches = _rising([max(plain, seconds - hooks) for seconds in starts])  # moved bytes make none quicker
    return Starts(moved, launches, again, several, operations)


def _before_each_product(twin: "PreTrainedModel", call: Callable[[], None]) -> int:
    """Have `call` called before each product of a narrow model; return how many products a forward has."""
    products = _products_of(twin)
    for part in products:
        part.register_forward_pre_hook(lambda *_: call())
    return len(products)


class _Reads:
    """Reads memory before each product of a narrow model, and adds up the seconds that it took.

    One product reads what lies behind the last one's, as the weights of a step do, so that nothing comes from a cache
    that would not be there in the step.
    """

    def __init__(self, twin: "PreTrainedModel") -> None:
        self.pool = torch.ones(0)
        self.seconds, self._next = 0.0, 0
        self._products = _before_each_product(twin, self._read)

    def read_for_each_product(self, size: int) -> None:
        """Have so many bytes read before each product."""
        slices = min(self._products, POOL // max(1, size))
        self.pool, self._next = torch.ones(slices, size // 4), 0

    def _read(self) -> None:
        if not self.pool.numel():
            return
        began = time.perf_counter()
        self.pool[self._next].sum()
        self._next = (self._next + 1) % len(self.pool)
        self.seconds += time.perf_counter() - began

    def taken(self) -> float:
        """Return the seconds of reading since the last call."""
        taken, self.seconds = self.seconds, 0.0
        return taken


class _Between:
    """Times calls between the operations of a narrow model's decode steps: one before each of its products."""

    def __init__(self, twin: "PreTrainedModel", device: str) -> None:
        self._twin, self._ids = twin, torch.zeros(1, 8, dtype=torch.long, device=device)
        self._sync = synchroniser(device)
        self._calls: Sequence[Callable[[], object]] = ()
        self._taken: list[list[float]] = []
        self._next = 0
        _before_each_product(twin, self._call)

    def seconds(self, calls: Sequence[Callable[[], object]], times: int = MANY) -> list[float]:
        """Median seconds of each of the calls, which take turns; half as many times before warm up."""
        self._calls, self._taken, self._next = calls, [[] for _ in calls], 0
        warm = -(-times // 2)
        while len(self._taken[-1]) < warm + times:
            may_end_here()
            for _ in decode(self._twin, self._ids, mode="cached", new_tokens=8):
                pass
            if not self._taken[0]:  # a family's own code that multiplies without its modules
                return [median_call(call, self._sync) for call in calls]
        return [statistics.median(taken[warm:]) for taken in self._taken]

    def _call(self) -> None:
        began = time.perf_counter()
        self._calls[self._next]()
        self._taken[self._next].append(time.perf_counter() - began)
        self._next = (self._next + 1) % len(self._calls)


def _narrow(config: "PreTrainedConfig") -> "PreTrainedModel":
    """Build a model of this config with a minimal width; if its family refuses such sizes, a narrow Llama."""
    attn = config._attn_implementation
    narrow = copy.deepcopy(config)
    inner = narrow.get_text_config()
    grouped = getattr(inner, "num_key_value_heads", None) != getattr(inner, "num_attention_heads", None)
    for name, value in {**NARROW, "num_key_value_heads": 1 if grouped else 2}.items():
        if isinstance(getattr(inner, name, None), int):
            setattr(inner, name, value)
    if inner.model_type == "mamba2":  # whose heads fill the inner width
        inner.num_heads = int(inner.expand * inner.hidden_size) // inner.head_dim
    try:
        twin = AutoModelForCausalLM.from_config(narrow, attn_implementation=attn)
        with torch.inference_mode():
            twin(torch.zeros(1, 1, dtype=torch.long))
        return twin
    except Exception as error:  # a family's own code can raise anything for such sizes, in its forward too
        log.info("no narrow %s (%s): starts are those of a narrow Llama", config.model_type, type(error).__name__)
        layers = {"num_hidden_layers": inner.num_hidden_layers, "num_key_value_heads": 2}
        return AutoModelForCausalLM.from_config(LlamaConfig(**NARROW, **layers), attn_implementation=attn)


def _ladder(
    pool: Sequence[torch.Tensor],
    sync: Sync,
    product: Product,
    few: int = 2,
    calls: int = 5,
    numbers: Sequence[int] = ROWS,
) -> list[float]:
    """Measure seconds per element of weights by number of rows; each (outputs, inputs) of the pool is multiplied."""
    found: list[float] = []
    for rows in numbers:
        weights = pool if rows < FEW else pool[:few]
        inputs = {weight.shape[1]: torch.ones(rows, weight.shape[1]).to(weight) for weight in weights}

        def products(weights: Sequence[torch.Tensor], inputs: dict[int, torch.Tensor] = inputs) -> None:
            for weight in weights:
                product(inputs[weight.shape[1]], weight)

        took = median_call(partial(products, weights), sync, calls)
        found.append(took / sum(weight.numel() for weight in weights))
        if took / len(weights) > LONGEST:
            break
    return found


def _repeated(tensor: torch.Tensor, times: int) -> torch.Tensor:
    return tensor.repeat_interleave(times, 1) if times > 1 else tensor


def _eager(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Attention in separate operations, with a mask, after each KV head was repeated for the heads that share it."""
    keys, values = (_repeated(cached, queries.shape[1] // cached.shape[1]) for cached in (keys, values))
    scores = queries @ keys.transpose(2, 3)
    return torch.softmax(scores + torch.zeros_like(scores[:1, :1]), -1) @ values


def _fused(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(
        queries, keys, values, is_causal=queries.shape[2] > 1, enable_gqa=queries.shape[1] != keys.shape[1]
    )
