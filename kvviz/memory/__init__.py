"""Bytes of a cache: the formula, whose view of it, its explanation, what fits on a device. No torch."""
