"""The fast path: the transformer from scratch once more, its decode step with nothing between the sums."""
