"""What a forward costs, from a model's size and a device's measured rates. Standard library only."""

from dataclasses import dataclass

OPERATIONS_PER_LAYER = 100  # eager PyTorch: kernels, and the Python around them, of one layer; order of magnitude


@dataclass(frozen=True)
class Rates:
    """What this device was measured to reach: a one-row product's read rate (bytes/s), a matrix product's

    rate (FLOP/s), and the least time that any operation takes (s).
    """

    read: float
    flops: float
    launch: float


def forward_seconds(params: int, layers: int, tokens: int, element_bytes: int, rates: Rates) -> float:
    """Estimate of a forward over `tokens` tokens: the weights have to be read once, and 2 x params FLOP done per

    token, whichever takes longer, plus the launches. The attention's own products are left out.
    """
    work = max(params * element_bytes / rates.read, 2 * params * tokens / rates.flops)
    return work + layers * OPERATIONS_PER_LAYER * rates.launch


def pass_seconds(
    params: int,
    layers: int,
    prompt_tokens: int,
    new_tokens: int,
    element_bytes: int,
    rates: Rates,
    *,
    caches: bool,
) -> float:
    """Estimate of one full pass: a prefill and new_tokens - 1 decode steps, of 1 token or of all so far."""
    lengths = [prompt_tokens] + [1 if caches else prompt_tokens + i for i in range(1, new_tokens)]
    if len(lengths) > 64:  # the climb is a straight line: its mean is the middle
        step = forward_seconds(params, layers, lengths[len(lengths) // 2], element_bytes, rates)
        return forward_seconds(params, layers, prompt_tokens, element_bytes, rates) + step * (new_tokens - 1)
    return sum(forward_seconds(params, layers, n, element_bytes, rates) for n in lengths)
