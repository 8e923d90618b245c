"""What kvviz asks of a cache design, tried on small tensors and tiny models: `kvviz check-cache`."""
