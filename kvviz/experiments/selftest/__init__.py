"""Thirteen checks of a device: `place`, kernels, tokens, memory, the graph, the clock, recovery, classroom figures.

`run.py` holds the checks; `children.py` runs each in a process of its own, so that one that breaks the device costs one
line. It is no kind of experiment: it asks for no place in the queue and has no page.
"""
