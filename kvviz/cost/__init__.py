"""FLOPs, bytes moved, a device's roofs, and the latency curve that follows from them. No torch."""
