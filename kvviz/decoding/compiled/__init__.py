"""The mode `compiled`: the transformer from scratch with its decode step as one call.

numba compiles the step, not torch: on a processor torch's product of one row reads weights at half the speed of memory,
whatever the layout, and takes no second thread. Plain loops that LLVM compiles read at three quarters of it and share
the work. The whole step is one function, so a small model waits for no operation to start. It takes the addresses of
the model's own tensors: no weight is copied or packed. numba needs no compiler on the machine; it compiles on first
import (some 20 s) and keeps the result beside the bytecode. Without numba, for other precisions and for many sequences,
the same step goes through torch's operations (`reader.py`), which a GPU captures as a CUDA graph (`graph.py`). There it
reads the whole buffer through a mask, since a captured graph's sizes can't change.
"""
