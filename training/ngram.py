"""The baseline: an interpolated Kneser-Ney n-gram model over the same tokens."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Level:
    """Counts of one order: sorted n-gram codes, and for each history its total and its number of continuations."""

    codes: np.ndarray
    counts: np.ndarray
    histories: np.ndarray
    totals: np.ndarray
    kinds: np.ndarray
    discount: float


def codes(tokens: np.ndarray, order: int, base: int) -> np.ndarray:
    """Encode each window of ``order`` tokens as one int64; ValueError if ``base ** order`` does not fit."""
    if base**order >= 2**63:
        raise ValueError("too many symbols for this order")
    windows = np.lib.stride_tricks.sliding_window_view(tokens.astype(np.int64), order)
    return windows @ (base ** np.arange(order - 1, -1, -1, dtype=np.int64))


def level(grams: np.ndarray, counts: np.ndarray, base: int) -> Level:
    """Build the counts of one order from its distinct n-grams."""
    histories, first = np.unique(grams // base, return_index=True)
    ones, twos = np.count_nonzero(counts == 1), np.count_nonzero(counts == 2)
    discount = ones / (ones + 2 * twos) if ones else 0.5
    return Level(
        grams,
        counts,
        histories,
        np.add.reduceat(counts, first),
        np.diff(np.append(first, len(grams))),
        discount,
    )


class KneserNey:
    """p(token | the ``order`` - 1 tokens before it), interpolated with all lower orders and uniform."""

    def __init__(self, tokens: np.ndarray, base: int, order: int = 5):
        self.base, self.order = base, order
        grams, counts = np.unique(codes(tokens, order, base), return_counts=True)
        levels = [level(grams, counts, base)]
        for n in range(order - 1, 0, -1):
            grams, counts = np.unique(grams % base**n, return_counts=True)
            levels.append(level(grams, counts, base))
        self._levels = levels[::-1]

    def loss(self, tokens: np.ndarray) -> float:
        """Mean negative log-likelihood (nats) of all tokens with a full history."""
        windows = codes(tokens, self.order, self.base)
        chance = np.full(len(windows), 1.0 / self.base)
        for n, found in enumerate(self._levels, start=1):
            chance = self._interpolate(found, windows % self.base**n, chance)
        return float(-np.log(chance).mean())

    def _interpolate(self, found: Level, windows: np.ndarray, lower: np.ndarray) -> np.ndarray:
        count = _lookup(found.codes, found.counts, windows)
        total = _lookup(found.histories, found.totals, windows // self.base)
        kinds = _lookup(found.histories, found.kinds, windows // self.base)
        seen = np.maximum(total, 1)
        mixed = np.maximum(count - found.discount, 0) / seen + found.discount * kinds / seen * lower
        return np.where(total > 0, mixed, lower)


def _lookup(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], 0)
