"""Matrix products by oneDNN in place of torch's usual library, where they are faster.

Torch's usual library on a processor, often MKL, is not the fastest on each. oneDNN comes with torch as well. On a
processor of AMD with AVX-512, products of four rows and more take it less than half the time that they take MKL, on the
weights as they lie. It starts more slowly, and takes time again for each new number of rows, so small weights are left
to the usual library. https://uxlfoundation.github.io/oneDNN/
"""

import copy
import time
from collections.abc import Callable
from functools import cache
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

LEAST_ROWS = 4  # below that a product waits for its weights, and both libraries read them equally fast
LEAST_WEIGHT = 2**18  # elements of a weight below which oneDNN's start takes longer than what it saves
GAIN = 1.2  # how many times as fast oneDNN has to be on this machine to be used
TRIED = (32, 768, 768)  # rows, inputs and outputs of the product that tells


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute x (..., in) times `weight` (out, in), plus a bias: linear's result but for its rounding, in float32."""
    if x.numel() < LEAST_ROWS * x.shape[-1] or weight.numel() < LEAST_WEIGHT:
        return linear(x, weight, bias)
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return found


class _Linear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return product(x, self.weight, self.bias)


class _Conv1D(Conv1D):  # GPT-2's: its weight is (in, out)
    def forward(self, x: Tensor) -> Tensor:
        return product(x, self.weight.t(), self.bias)


OURS: dict[type[nn.Module], type[nn.Module]] = {nn.Linear: _Linear, Conv1D: _Conv1D}


def with_faster_products(model: PreTrainedModel) -> PreTrainedModel:
    """Return a model with these products on the same tensors; the model itself where they would not be faster."""
    wide = any(type(part) in OURS and part.weight.numel() >= LEAST_WEIGHT for part in model.modules())
    if not wide or model.device.type != "cpu" or model.dtype != torch.float32 or not faster(torch.get_num_threads()):
        return model
    twin = copy.deepcopy(model, {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())})
    for part in twin.modules():
        part.__class__ = OURS.get(type(part), type(part))
    return twin


@cache
def faster(threads: int) -> bool:
    """Whether oneDNN computes a product faster than torch's usual library on this machine; measured once, in 10 ms."""
    rows, inputs, outputs = TRIED
    x, weight = torch.ones(1, rows, inputs), torch.ones(outputs, inputs)

    def seconds(way: Callable[[Tensor, Tensor], Tensor]) -> float:
        began = time.perf_counter()
        way(x, weight)
        return time.perf_counter() - began

    try:
        with torch.inference_mode():
            product(x, weight)
            pairs = [(seconds(linear), seconds(product)) for _ in range(7)]
    except (AttributeError, RuntimeError):  # this build of torch has no oneDNN
        return False
    usual, ours = (min(times) for times in zip(*pairs, strict=True))
    return usual > GAIN * ours
