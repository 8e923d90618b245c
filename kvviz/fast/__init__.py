"""The fast path: the transformer from scratch once more, its decode step with as little between two sums as possible."""
