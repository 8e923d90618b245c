"""The mode `compiled`: the transformer from scratch with its decode step as one call.

On a processor numba compiles plain loops (`kernels.py`; ARCHITECTURE.md says why not torch) into one function, so a
small model waits for no operation to start. It takes the addresses of the model's own tensors: no weight is copied or
packed. numba compiles once on a machine, in a dashboard while nobody waits (`ahead.py`), and keeps the result beside
the bytecode. Without numba, for other precisions and for many sequences, the same step goes through torch's operations
(`reader.py`), which a GPU captures as a CUDA graph (`graph.py`). There it reads the whole buffer through a mask, since
a captured graph's sizes can't change.
"""
