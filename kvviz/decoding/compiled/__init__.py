"""The mode `compiled`: the transformer from scratch with its decode step as one call.

On a processor the whole step is one function (`kernels.c`; ARCHITECTURE.md says why not torch), so a small model waits
for no operation to start; the same function reads its short prompts. LLVM compiles it for this very processor in each
process (`machine_code.py`). It takes the addresses of the model's own tensors (`native.py`): no weight is copied or
packed. Without llvmlite, for other precisions and for many sequences, the same step goes through torch's operations
(`reader.py`), which a GPU captures as a CUDA graph (`graph.py`). There it reads the whole buffer through a mask, since
a captured graph's sizes can't change.
"""
