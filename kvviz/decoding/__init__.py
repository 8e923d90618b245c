"""Decoding with a loaded model: the modes, the loop that yields steps, and how to read the cache between steps."""
