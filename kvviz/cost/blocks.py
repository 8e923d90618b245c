"""What a decoder's layer is built of, as far as it costs: matrices, attention, convolutions, scans. Standard library.

Each block tells the FLOPs of its products in one forward over `new` tokens with `held` tokens cached before them (0:
a prefill), and the elements of its weights. A product of (m, k) and (k, n) is 2 m k n FLOPs. Elementwise work (norms,
softmax, activations, gates, rotary positions, sampling) is left out, as torch's flop counter leaves it out.
"""

import math
from dataclasses import dataclass

TERMS = ("projections", "attention", "indexer", "mixing", "mlp", "router", "extra", "cross", "head")


@dataclass(frozen=True)
class Forward:
    """One forward: `new` tokens of each of `batch` sequences after `held` cached ones; an encoder's `source` tokens."""

    new: int
    held: int = 0
    batch: int = 1
    source: int = 0

    @property
    def seen(self) -> int:
        """Tokens of the sequence after it."""
        return self.held + self.new

    def reached(self, window: int | None) -> int:
        """Tokens that its keys are there for: the new ones, and the held ones that a window leaves."""
        return self.new + (self.held if window is None else min(self.held, window - 1))


@dataclass(frozen=True)
class Matrix:
    """`copies` matrices of (inputs, outputs), of which each row passes `used`: experts, or one plain matrix.

    `over` says which rows: the `new` tokens, the `last` one, the whole context's (`seen`), or those of an encoder
    (`source`, at the prefill alone). `weightless`: it is no weight but made by the forward itself.
    """

    term: str
    inputs: int
    outputs: int
    copies: int = 1
    used: int = 1
    over: str = "new"
    weightless: bool = False
    window: int | None = None  # of the context, no more than this is held

    def rows(self, forward: Forward) -> int:
        """Rows that pass it in a forward."""
        if self.over == "source":
            return 0 if forward.held else forward.batch * forward.source
        return forward.batch * {"new": forward.new, "last": 1, "seen": forward.reached(self.window)}[self.over]

    def flops(self, forward: Forward) -> int:
        """2 x rows x inputs x outputs x used."""
        return 2 * self.rows(forward) * self.inputs * self.outputs * self.used

    @property
    def weights(self) -> int:
        """Elements of all copies; biases are left out."""
        return 0 if self.weightless else self.inputs * self.outputs * self.copies

    def weights_read(self, forward: Forward) -> float:
        """Elements that a forward reads: of experts those that some row is expected to choose.

        With every row choosing `used` of `copies` at random: copies x (1 - (1 - used / copies)^rows).
        """
        rows = self.rows(forward)
        if not rows or self.used >= self.copies:
            return self.weights if rows else 0
        return self.weights * (1 - (1 - self.used / self.copies) ** rows)

    def activations(self, forward: Forward) -> int:
        """Elements read and written around it: rows x (inputs + outputs) x used."""
        return self.rows(forward) * (self.inputs + self.outputs) * self.used


@dataclass(frozen=True)
class Attention:
    """Scores and weighted sum of `heads` query heads; keys of `key_dim`, values of `value_dim` elements.

    With a `window` a step reaches no more than that many tokens; a forward over many masks what lies outside and
    computes the whole square, causal half included. `across`: keys and values are an encoder's.
    """

    heads: int
    key_dim: int
    value_dim: int
    window: int | None = None
    across: bool = False
    term: str = "attention"

    weights = 0

    def keys(self, forward: Forward) -> int:
        """Keys that each query is multiplied with: all new ones, and the held ones that its window reaches."""
        if self.across:
            return forward.source
        return forward.reached(self.window)

    def flops(self, forward: Forward) -> int:
        """2 x batch x heads x new x keys x (key_dim + value_dim)."""
        pairs = forward.batch * self.heads * forward.new * self.keys(forward)
        return 2 * pairs * (self.key_dim + self.value_dim)

    def weights_read(self, forward: Forward) -> int:
        """None: keys and values are the cache's."""
        return 0

    def activations(self, forward: Forward) -> int:
        """Scores, written and read again (a fused kernel keeps them on the chip), and what goes in and out."""
        scores = forward.batch * self.heads * forward.new * self.keys(forward)
        return 2 * scores + forward.batch * forward.new * self.heads * (self.key_dim + self.value_dim)


@dataclass(frozen=True)
class Convolution:
    """A causal convolution of each of `channels` over `kernel` tokens, `groups` of channels apart.

    transformers pads the new tokens on both sides at a prefill and cuts the end off again; at a step it convolves the
    kept columns and the new one, one place more than needed. With `stepped` False a step is elementwise.
    """

    channels: int
    kernel: int
    kept: int
    stepped: bool = True
    group: int = 1  # channels that see one another
    term: str = "mixing"

    @property
    def weights(self) -> int:
        """channels x group x kernel."""
        return self.channels * self.group * self.kernel

    def places(self, forward: Forward) -> int:
        """Places that it is computed at."""
        if forward.held:
            return (self.kept + forward.new - self.kernel + 1) if self.stepped else 0
        return forward.new + self.kernel - 1

    def flops(self, forward: Forward) -> int:
        """2 x batch x channels x group x kernel x places."""
        return 2 * forward.batch * self.weights * self.places(forward)

    def weights_read(self, forward: Forward) -> int:
        """All of them."""
        return self.weights

    def activations(self, forward: Forward) -> int:
        """What goes in and out."""
        return 2 * forward.batch * self.channels * forward.new


@dataclass(frozen=True)
class Scan:
    """The recurrence of a linear layer, `heads` states of (key_dim, value_dim), in chunks of `chunk` tokens.

    `rule` is how transformers computes it: a row of RULES, each a function of (scan, forward).
    """

    rule: str
    heads: int
    key_dim: int
    value_dim: int
    chunk: int = 1
    term: str = "mixing"

    weights = 0

    @property
    def state(self) -> int:
        """Elements of its state for one sequence."""
        return self.heads * self.key_dim * self.value_dim

    def flops(self, forward: Forward) -> int:
        """By its rule."""
        return 2 * forward.batch * RULES[self.rule](self, forward)

    def weights_read(self, forward: Forward) -> int:
        """None."""
        return 0

    def activations(self, forward: Forward) -> int:
        """What goes in and out."""
        return 2 * forward.batch * forward.new * self.heads * (self.key_dim + self.value_dim)


def _chunks(scan: Scan, forward: Forward) -> int:
    return math.ceil(forward.new / scan.chunk)


def _selective(scan: Scan, forward: Forward) -> int:
    """Mamba: the state read out with C once a token: new x state."""
    return forward.new * scan.state


def _state_space_dual(scan: Scan, forward: Forward) -> int:
    """Mamba-2 in chunks of l: heads x (l l (N + P) + 2 l N P) a chunk, and (chunks + 1)^2 states passed on.

    At a step the state is read out once. https://arxiv.org/abs/2405.21060
    """
    if forward.held:
        return forward.new * scan.state
    c, square = _chunks(scan, forward), scan.chunk * scan.chunk * (scan.key_dim + scan.value_dim)
    return c * (scan.heads * square + 2 * scan.chunk * scan.state) + (c + 1) ** 2 * scan.state


def _gated_delta(scan: Scan, forward: Forward) -> int:
    """Gated delta rule in chunks of l: heads x (l l (2 K + V) + 3 l K V) a chunk; a step is elementwise.

    The triangular system of each chunk is left out. https://arxiv.org/abs/2412.06464
    """
    if forward.held:
        return 0
    square = scan.chunk * scan.chunk * (2 * scan.key_dim + scan.value_dim)
    return _chunks(scan, forward) * (scan.heads * square + 3 * scan.chunk * scan.state)


def _lightning(scan: Scan, forward: Forward) -> int:
    """Lightning attention in blocks of l, the last one as short as it is: heads x (l l (K + V) + 2 l K V).

    A step: 2 K V for each head. https://arxiv.org/abs/2501.08313
    """
    if forward.held:
        return 2 * forward.new * scan.state
    full, rest = divmod(forward.new, scan.chunk)
    squares = full * scan.chunk**2 + rest**2
    return scan.heads * squares * (scan.key_dim + scan.value_dim) + 2 * forward.new * scan.state


RULES = {
    "selective": _selective,
    "state space dual": _state_space_dual,
    "gated delta": _gated_delta,
    "lightning": _lightning,
}

Block = Matrix | Attention | Convolution | Scan
