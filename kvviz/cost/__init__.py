"""The cost model: FLOPs, bytes moved, a device's roofs, and the latency curve that follows. No module imports torch."""
