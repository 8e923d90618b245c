"""kvviz: see the KV cache work."""

__version__ = "0.1.0"
