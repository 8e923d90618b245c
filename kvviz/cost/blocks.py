"""The blocks of a decoder layer that cost FLOPs: matrices, attention, convolutions, scans.

Each block computes its FLOPs in one forward over `new` tokens with `held` tokens cached before them (0 for a prefill),
and the number of its weights. A product of (m, k) and (k, n) counts 2 m k n FLOPs. As in torch's flop counter,
elementwise work (norms, softmax, activations, gates, rotary positions, sampling) does not count.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

TERMS = ("projections", "attention", "indexer", "mixing", "mlp", "router", "extra", "cross", "head")


@dataclass(frozen=True)
class Forward:
    """One forward: `new` tokens of each of `batch` sequences after `held` cached ones; `source` tokens of an encoder.

    Forward(1, 1023) is the decode step that makes the context 1,024 tokens long; Forward(1024) is a prefill of that
    length.
    """

    new: int
    held: int = 0
    batch: int = 1
    source: int = 0

    @property
    def seen(self) -> int:
        """Tokens of the sequence after the forward."""
        return self.held + self.new

    def reached(self, window: int | None) -> int:
        """Tokens whose keys a query can reach: the new ones, and the cached ones inside its window."""
        return self.new + (self.held if window is None else min(self.held, window - 1))


@dataclass(frozen=True)
class Matrix:
    """`copies` matrices of (inputs, outputs), of which each row uses `used`: one plain matrix, or experts.

    `over` says which rows go through the matrix: those of the `new` tokens, of the `last` one, of the whole context
    (`seen`) or of an encoder's output (`source`, only in the prefill). `weightless`: the forward computes the matrix
    itself. `window`: maximum number of context tokens that the cache holds.
    """

    term: str
    inputs: int
    outputs: int
    copies: int = 1
    used: int = 1
    over: str = "new"
    weightless: bool = False
    window: int | None = None

    def rows(self, forward: Forward) -> int:
        """Rows that go through the matrix in a forward."""
        if self.over == "source":
            return 0 if forward.held else forward.batch * forward.source
        return forward.batch * {"new": forward.new, "last": 1, "seen": forward.reached(self.window)}[self.over]

    def flops(self, forward: Forward) -> int:
        """2 x rows x inputs x outputs x used."""
        return 2 * self.rows(forward) * self.inputs * self.outputs * self.used

    @property
    def weights(self) -> int:
        """Number of weights in all copies, without biases."""
        return 0 if self.weightless else self.inputs * self.outputs * self.copies

    def weights_read(self, forward: Forward) -> float:
        """Weights that a forward reads: all of a plain matrix; of experts, those that at least one row chooses.

        Each row chooses `used` of `copies` at random, so the expected number of experts read is
        copies x (1 - (1 - used / copies)^rows). With 2 of 8 experts, one row reads 2 and two rows read 3.5.
        """
        rows = self.rows(forward)
        if not rows or self.used >= self.copies:
            return self.weights if rows else 0
        return self.weights * (1 - (1 - self.used / self.copies) ** rows)

    def activations(self, forward: Forward) -> int:
        """Elements of inputs and outputs: rows x (inputs + outputs) x used."""
        return self.rows(forward) * (self.inputs + self.outputs) * self.used


def matrices(term: str, *sizes: tuple[int, int]) -> list["Block"]:
    """Return a plain matrix for each (inputs, outputs)."""
    return [Matrix(term, inputs, outputs) for inputs, outputs in sizes]


@dataclass(frozen=True)
class Attention:
    """Scores and weighted sum of `heads` query heads; keys have `key_dim` elements, values `value_dim`.

    A decode step reaches at most `window` tokens. A forward over many tokens computes the whole square, including the
    half above the diagonal, and masks what lies outside the window. `across`: keys and values come from an encoder.
    """

    heads: int
    key_dim: int
    value_dim: int
    window: int | None = None
    across: bool = False
    term: str = "attention"

    def weights_read(self, forward: Forward) -> int:
        """Return 0: keys and values belong to the cache, not to the weights."""
        return 0

    def pairs(self, forward: Forward) -> int:
        """Pairs of a query and a key, over all heads: each query meets all new keys, and those inside its window."""
        keys = forward.source if self.across else forward.reached(self.window)
        return forward.batch * self.heads * forward.new * keys

    def flops(self, forward: Forward) -> int:
        """2 x pairs x (key_dim + value_dim)."""
        return 2 * self.pairs(forward) * (self.key_dim + self.value_dim)

    def activations(self, forward: Forward) -> int:
        """Elements of the scores (written, then read), of the queries and of the outputs."""
        ends = forward.batch * forward.new * self.heads * (self.key_dim + self.value_dim)
        return self.score_elements(forward) + ends

    def score_elements(self, forward: Forward) -> int:
        """Elements of the scores, each written once and read once; a fused kernel keeps them on the chip."""
        return 2 * self.pairs(forward)


@dataclass(frozen=True)
class Convolution:
    """A causal convolution of each of `channels` over `kernel` tokens.

    In a prefill, transformers pads the new tokens on both sides and drops the surplus at the end. In a step it
    convolves the cached columns and the new one, one position more than needed. With `stepped` False, a step is
    elementwise.
    """

    channels: int
    kernel: int
    stepped: bool = True
    term: str = "mixing"

    def weights_read(self, forward: Forward) -> int:
        """Return all weights: channels x kernel."""
        return self.channels * self.kernel

    def flops(self, forward: Forward) -> int:
        """2 x batch x channels x kernel x the positions at which the convolution is computed."""
        step = forward.new + 1 if self.stepped else 0
        places = step if forward.held else forward.new + self.kernel - 1
        return 2 * forward.batch * self.channels * self.kernel * places

    def activations(self, forward: Forward) -> int:
        """Elements of inputs and outputs."""
        return 2 * forward.batch * self.channels * forward.new


@dataclass(frozen=True)
class Scan:
    """The recurrence of a linear layer: `heads` states of (key_dim, value_dim), computed in chunks of `chunk` tokens.

    `rule` gives the multiply-adds of one sequence, as transformers computes it.
    """

    rule: Callable[["Scan", Forward], int]
    heads: int
    key_dim: int
    value_dim: int
    chunk: int = 1
    term: str = "mixing"

    @property
    def state(self) -> int:
        """Elements of one sequence's state."""
        return self.heads * self.key_dim * self.value_dim

    def weights_read(self, forward: Forward) -> int:
        """Return 0: a recurrence has no weights of its own."""
        return 0

    def flops(self, forward: Forward) -> int:
        """2 x batch x multiply-adds of one sequence by the rule."""
        return 2 * forward.batch * self.rule(self, forward)

    def activations(self, forward: Forward) -> int:
        """Elements of inputs and outputs."""
        return 2 * forward.batch * forward.new * self.heads * (self.key_dim + self.value_dim)


def selective(scan: Scan, forward: Forward) -> int:
    """Mamba: multiply-adds of reading the state with C once per token, new x state."""
    return forward.new * scan.state


def state_space_dual(scan: Scan, forward: Forward) -> int:
    """Mamba-2 in chunks of l: heads x (l l (N + P) + 2 l N P) per chunk, plus (chunks + 1)^2 states passed on.

    A step reads the state once. https://arxiv.org/abs/2405.21060
    """
    if forward.held:
        return forward.new * scan.state
    chunks, square = math.ceil(forward.new / scan.chunk), scan.chunk**2 * (scan.key_dim + scan.value_dim)
    return chunks * (scan.heads * square + 2 * scan.chunk * scan.state) + (chunks + 1) ** 2 * scan.state


def gated_delta(scan: Scan, forward: Forward) -> int:
    """Gated delta rule in chunks of l: heads x (l l (2 K + V) + 3 l K V) per chunk; a step is elementwise.

    Solving each chunk's triangular system does not count. https://arxiv.org/abs/2412.06464
    """
    if forward.held:
        return 0
    chunks, square = math.ceil(forward.new / scan.chunk), scan.chunk**2 * (2 * scan.key_dim + scan.value_dim)
    return chunks * (scan.heads * square + 3 * scan.chunk * scan.state)


def lightning(scan: Scan, forward: Forward) -> int:
    """Lightning attention in blocks of l: heads x (l l (K + V) + 2 l K V) per block; the last block may be shorter.

    A step costs 2 K V per head. https://arxiv.org/abs/2501.08313
    """
    if forward.held:
        return 2 * forward.new * scan.state
    full, rest = divmod(forward.new, scan.chunk)
    squares = full * scan.chunk**2 + rest**2
    return scan.heads * squares * (scan.key_dim + scan.value_dim) + 2 * forward.new * scan.state


Block = Matrix | Attention | Convolution | Scan
