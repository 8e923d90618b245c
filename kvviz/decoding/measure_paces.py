"""Measure the paces that `kvviz.cost.predict` predicts from, in about a second, on synthetic tensors.

No step of the model is timed. The caller must hold the device lock (`kvviz.device.lock`). Each pace is the median of a
few calls, because the figures of a model's steps are medians too.
"""

import copy
import logging
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import linear
from transformers import AutoModelForCausalLM, LlamaConfig
from transformers.activations import ACT2FN

from kvviz.cost.predict import Paces
from kvviz.decoding.loading import Loaded
from kvviz.decoding.loop import decode
from kvviz.decoding.modes import mode_named
from kvviz.device.clock import Sync, median_call, synchroniser, timed
from kvviz.device.memory import device_memory, last_level_cache
from kvviz.device.multiply_adds import MultiplyAdds
from kvviz.device.remembered import Remembered, remembered

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

log = logging.getLogger("kvviz.decoding.measure_paces")

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # rows and a weight (out, in) to x W

ACTIVATIONS = ("hidden_activation", "hidden_act", "activation_function", "hidden_act_fn", "activation")
NARROW = {
    **{"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "head_dim": 8, "vocab_size": 32},
    **{"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0},
}
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
FEW = 64  # from this many rows on, computing takes longer than reading, so two matrices are enough
LEAST_READ = 2**21  # bytes that are read before a product of the narrow model, unless the model's own are fewer
LONGEST = 0.5  # seconds; after a product this slow, no larger number of rows is tried
STREAMED = 2**27  # bytes of weights to read at least, so that they come from memory and not from a cache
HEADS, DIM = 8, 64  # heads and head dim of a cached layer that grows by one token


@dataclass(frozen=True)
class Sizes:
    """The sizes of the tensors whose work is timed: the matrix (`inner`, `columns`), `attended` (heads, tokens, head
    dim), `layers` cached layers of `long` tokens, and the `wide` elements of elementwise work.
    """

    inner: int
    columns: int
    attended: tuple[int, int, int]
    layers: int
    long: int
    wide: int


ON_CPU = Sizes(inner=1024, columns=3072, attended=(12, 256, 64), layers=16, long=256, wide=256 * 3072)
# On a GPU each call has to take much longer than its launch and the synchronisation around it, some tens of µs.
ON_GPU = Sizes(inner=4096, columns=12288, attended=(32, 2048, 64), layers=4, long=2**15, wide=2**26)


def sizes_on(device: str) -> Sizes:
    """Return the sizes that tell a device's pace rather than its launch overhead."""
    return ON_CPU if device == "cpu" else ON_GPU


def paces_of(loaded: Loaded, product: Product = linear) -> tuple[Paces, int]:
    """Return the paces for a model's dtype, attention and activation, and the number of operations of its decode step.

    `product` is how its products are computed. All are measured before the first work that needs them, and again when
    they are in doubt. Of the model itself, only the config and the size of the weights are read.
    """
    config = loaded.model.config
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    named = (getattr(text, name, None) for name in ACTIVATIONS)
    activation = next((name for name in named if isinstance(name, str)), None)
    attn, threads = str(config._attn_implementation), torch.get_num_threads()
    place = (loaded.device, loaded.dtype)
    weights = sum(tensor.nbytes for tensor in loaded.model.parameters())
    paces = _paces.get((*place, attn, threads, product), lambda: measure_paces(*place, attn, product))
    active = _activations.get((*place, activation, threads), lambda: activation_pace(*place, activation))
    start, operations = _starts.get(
        (config.to_json_string(), *place, attn, threads), lambda: _start(config, *place, weights)
    )
    return replace(paces, start=start, activation=active), operations


_paces: Remembered[Paces] = remembered(lambda paces: paces.streamed[0])
_activations: Remembered[float] = remembered(lambda pace: pace)
_starts: Remembered[tuple[float, int]] = remembered(lambda start: start[0])


@torch.inference_mode()
def measure_paces(device: str, dtype: str, attn: str, product: Product = linear) -> Paces:
    """Measure all paces but those of a model: `start` and `activation` are 0 here.

    With `attn` "eager", attention's scores and softmax are separate operations; with any other value, one kernel.
    """
    kind, sync = getattr(torch, dtype), synchroniser(device)
    cache_bytes = last_level_cache() if device == "cpu" else 0
    sizes = sizes_on(device)
    weight = sizes.inner * sizes.columns * kind.itemsize
    free = device_memory(device)[0] // 8
    copies = max(2, min(-(-max(STREAMED, 3 * cache_bytes) // weight), 2**29 // weight, free // weight))
    pool = torch.ones(copies, sizes.columns, sizes.inner, device=device, dtype=kind)
    streamed = _ladder(pool, sync, product)
    small = torch.ones(2, sizes.columns // 8, sizes.inner // 4, device=device, dtype=kind)
    resident = _ladder(small, sync, product, len(streamed))
    del pool
    wide = torch.ones(sizes.wide, device=device, dtype=kind)
    return Paces(
        dtype=dtype,
        rows=ROWS[: len(streamed)],
        streamed=tuple(streamed),
        resident=tuple(resident),
        cache_bytes=cache_bytes,
        attention=_attention(device, kind, attn, sync, sizes.attended),
        joined=_joined(device, kind, sync, sizes),
        activation=0.0,
        elementwise=median_call(lambda: wide * 0.5, sync) / wide.numel(),
        start=0.0,
    )


@torch.inference_mode()
def activation_pace(device: str, dtype: str, activation: str | None) -> float:
    """Measure seconds per element of an activation; 0 for one that transformers does not know."""
    if activation is None or activation not in ACT2FN:
        return 0.0
    act, wide = ACT2FN[activation], torch.ones(sizes_on(device).wide, device=device, dtype=getattr(torch, dtype))
    return median_call(lambda: act(wide), synchroniser(device)) / wide.numel()


@torch.inference_mode()
def count_operations(model: "PreTrainedModel") -> int:
    """Count the operations of a decode step of one token."""
    forward = mode_named("cached").open(model, 2)
    ids = torch.zeros(1, 2, dtype=torch.long, device=model.device)
    forward(ids[:, :1], ids[:, :1])
    with MultiplyAdds() as counter:
        forward(ids, ids[:, 1:])
    return counter.operations


def _start(config: "PreTrainedConfig", device: str, dtype: str, weights: int) -> tuple[float, int]:
    """Measure the launch overhead of an operation (s), and count the operations of a step.

    The measured decoder has the model's layers, but so narrow that their arithmetic costs nothing. The time of Python,
    the modules and the loop around an operation therefore counts as its launch overhead. On a CPU, other memory is read
    before each product, off the clock, as the model's `weights` bytes would be: reading evicts the interpreter's code
    and data from the processor's caches, so that launching takes longer.
    """
    twin = _narrow(config).to(device, getattr(torch, dtype)).eval()
    ids, sync = torch.zeros(1, 8, dtype=torch.long, device=device), synchroniser(device)
    operations = count_operations(twin)
    steps = timed(decode(twin, ids, mode="cached", new_tokens=25), sync)
    if device != "cpu":
        return statistics.median([step.seconds for step in steps][9:]) / operations, operations
    reads = _Reads(twin, weights)
    seconds = [step.seconds - reads.taken() for step in steps]
    return statistics.median(seconds[9:]) / operations, operations


class _Reads:
    """Reads memory before each product of a narrow model, and adds up the seconds that it took."""

    def __init__(self, twin: "PreTrainedModel", weights: int) -> None:
        matrices = [part for part in twin.modules() if getattr(getattr(part, "weight", None), "ndim", 0) == 2]
        products = [part for part in matrices if not isinstance(part, torch.nn.Embedding)]
        each = max(LEAST_READ, 2 * last_level_cache() // max(1, len(products)))
        self.pool = torch.ones(max(1, min(each, weights // max(1, len(products))) // 4))
        self.seconds = 0.0
        for part in products:
            part.register_forward_pre_hook(self._read)

    def _read(self, *_: object) -> None:
        began = time.perf_counter()
        self.pool.sum()
        self.seconds += time.perf_counter() - began

    def taken(self) -> float:
        """Return the seconds of reading since the last call."""
        taken, self.seconds = self.seconds, 0.0
        return taken


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


def _ladder(pool: torch.Tensor, sync: Sync, product: Product, most: int = len(ROWS)) -> list[float]:
    """Measure seconds per element of weights by number of rows: (rows, inner) x (inner, columns), over all matrices."""
    found: list[float] = []
    for rows in ROWS[:most]:
        weights = pool if rows < FEW else pool[:2]
        row = torch.ones(rows, pool.shape[2], device=pool.device, dtype=pool.dtype)

        def products(row: torch.Tensor = row, weights: torch.Tensor = weights) -> None:
            for weight in weights:
                product(row, weight)

        took = median_call(products, sync, 3)
        found.append(took / weights.numel())
        if took / len(weights) > LONGEST:
            break
    return found


def _attention(device: str, kind: torch.dtype, attn: str, sync: Sync, attended: tuple[int, int, int]) -> float:
    """Measure seconds per FLOP of causal attention over a prompt; the FLOPs are those of the whole square."""
    heads, tokens, dim = attended
    one = torch.ones(1, heads, tokens, dim, device=device, dtype=kind)
    mask = torch.full((tokens, tokens), float("-inf"), device=device, dtype=kind).triu(1)

    def eager() -> torch.Tensor:
        return torch.softmax(one @ one.transpose(2, 3) + mask, -1) @ one

    def fused() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(one, one, one, is_causal=True)

    return median_call(eager if attn == "eager" else fused, sync) / (4 * heads * tokens * tokens * dim)


def _joined(device: str, kind: torch.dtype, sync: Sync, sizes: Sizes) -> float:
    """Measure seconds per byte read or written when each layer's cache grows by one token by concatenation."""
    layers = [torch.ones(1, HEADS, sizes.long, DIM, device=device, dtype=kind) for _ in range(sizes.layers)]
    new = torch.ones(1, HEADS, 1, DIM, device=device, dtype=kind)

    def join() -> None:
        for layer in layers:
            torch.cat([layer, new], dim=-2)

    return median_call(join, sync) / (2 * sum(layer.nbytes for layer in layers))
