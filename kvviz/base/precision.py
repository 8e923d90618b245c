"""How many bytes a cache's elements take: whole numbers per element, or blocks that share a scale."""

from collections.abc import Mapping
from dataclasses import dataclass

from kvviz.base.errors import ConfigError


@dataclass(frozen=True)
class Precision:
    """`block` elements of a row (a token's keys, or its values) take `block_bytes`; `head_bytes` come on top per head.

    `state_bytes`: of an element of a recurrent state, which keeps the model's dtype when the cache is quantized.
    """

    name: str
    title: str
    block_bytes: int
    block: int = 1
    head_bytes: int = 0
    state_bytes: int = 2
    source: str = ""

    def row(self, heads: int, dim: int) -> int:
        """Bytes of `heads` x `dim` elements. Raises ConfigError if they don't fill whole blocks."""
        count = heads * dim
        if count % self.block:
            raise ConfigError(
                f"{self.name} packs {self.block} values with one scale, and a row of {heads} x {dim} = {count} values "
                "doesn't divide into them"
            )
        return count // self.block * self.block_bytes + (heads * self.head_bytes if dim else 0)


_FLOATS = "https://docs.pytorch.org/docs/stable/tensor_attributes.html"
_VLLM = "https://github.com/vllm-project/vllm/blob/001cabc1/vllm/v1/kv_cache_interface.py"
_GGML = "https://github.com/ggml-org/llama.cpp/blob/master/ggml/src/ggml-common.h"
_HF = "https://huggingface.co/docs/transformers/kv_cache"

_ROWS = (
    Precision("float32", "float32", 4, state_bytes=4, source=_FLOATS),
    Precision("bfloat16", "bfloat16", 2, source=_FLOATS),
    Precision("float16", "float16", 2, source=_FLOATS),
    Precision("fp8", "fp8, one scale a tensor (kept with the weights)", 1, source=_VLLM),
    Precision("int8", "int8, a float32 scale per token and head", 1, head_bytes=4, source=_VLLM),
    Precision("fp8_per_token_head", "fp8, a float32 scale per token and head", 1, head_bytes=4, source=_VLLM),
    Precision("nvfp4", "nvfp4: 4 bits a value, an fp8 scale per 16 values", 9, 16, source=_VLLM),
    Precision("int4", "int4, a 16-bit scale and shift per 64 values", 36, 64, source=_HF),
    Precision("q8_0", "q8_0: 34 bytes per 32 values", 34, 32, source=_GGML),
    Precision("q5_1", "q5_1: 24 bytes per 32 values", 24, 32, source=_GGML),
    Precision("q5_0", "q5_0: 22 bytes per 32 values", 22, 32, source=_GGML),
    Precision("q4_1", "q4_1: 20 bytes per 32 values", 20, 32, source=_GGML),
    Precision("q4_0", "q4_0: 18 bytes per 32 values", 18, 32, source=_GGML),
)

PRECISIONS: Mapping[str, Precision] = {row.name: row for row in _ROWS}

_OTHER_NAMES = {
    **dict.fromkeys(("fp32", "f32"), "float32"),
    **dict.fromkeys(("fp16", "f16", "half"), "float16"),
    **dict.fromkeys(("fp8_e4m3", "fp8_e5m2"), "fp8"),
    "bf16": "bfloat16",
    "int8_per_token_head": "int8",
}


def precision(name: str) -> Precision:
    """The row of a dtype's name. Raises ConfigError, listing the names, for an unknown one."""
    row = PRECISIONS.get(_OTHER_NAMES.get(name, name))
    if row is None:
        raise ConfigError(f"dtype is {name!r}; it is one of {', '.join(PRECISIONS)}")
    return row


# Bits that one weight takes; the scales of a quantized format come on top and differ by format.
WEIGHT_BITS: Mapping[str, int] = {"float32": 32, "bfloat16": 16, "float16": 16, "fp8": 8, "int8": 8, "int4": 4}


def weight_bytes(params: int, dtype: str) -> int:
    """Bytes of the weights: parameters x bits / 8, without the scales of a quantized format.

    Raises ConfigError for an unknown dtype.
    """
    bits = WEIGHT_BITS.get(_OTHER_NAMES.get(dtype, dtype))
    if bits is None:
        raise ConfigError(f"weights dtype is {dtype!r}; it is one of {', '.join(WEIGHT_BITS)}")
    return -(-params * bits // 8)
