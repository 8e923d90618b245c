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


def parts(params: int, layers: int, tokens: int, element_bytes: int, rates: Rates) -> dict[str, float]:
    """What a forward over `tokens` tokens is made of, by estimate (seconds): weights read once, 2 x params FLOP done

    per token, operations launched. Reading and computing overlap; the attention's own products are left out.
    """
    return {
        "reading the weights": params * element_bytes / rates.read,
        "computing": 2 * params * tokens / rates.flops,
        "starting operations": layers * OPERATIONS_PER_LAYER * rates.launch,
    }


def forward_seconds(params: int, layers: int, tokens: int, element_bytes: int, rates: Rates) -> float:
    """Estimate of a forward over `tokens` tokens: reading or computing, whichever takes longer, plus the launches."""
    reading, computing, starting = parts(params, layers, tokens, element_bytes, rates).values()
    return max(reading, computing) + starting


def pass_seconds(
    params: int,
    layers: int,
    prompt_tokens: int,
    new_tokens: int,
    element_bytes: int,
    rates: Rates,
    *,
    caches: bool,
    batch: int = 1,
) -> float:
    """Estimate of one full pass: a prefill and new_tokens - 1 decode steps, of 1 token or of all so far."""
    lengths = [prompt_tokens] + [1 if caches else prompt_tokens + i for i in range(1, new_tokens)]
    lengths = [batch * length for length in lengths]
    if len(lengths) > 64:  # the climb is a straight line: its mean is the middle
        step = forward_seconds(params, layers, lengths[len(lengths) // 2], element_bytes, rates)
        return forward_seconds(params, layers, lengths[0], element_bytes, rates) + step * (new_tokens - 1)
    return sum(forward_seconds(params, layers, n, element_bytes, rates) for n in lengths)
