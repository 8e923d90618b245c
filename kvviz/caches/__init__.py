"""Cache designs, each in a short file of its own, over one small interface (`base.py`).

They know no model: one layer's new keys and values go in, those to attend over come out. `hf_layer.py` puts any of them
under transformers, and the transformer from scratch takes them as they are.

Each layer keeps a block table of its own, so a window's blocks can be evicted while a full layer's stay. Engines keep
one table for a group of layers; here the tables are equal and cost Python's time, which the designs' rows say is ours.
A paged cache allocates its blocks one by one, when they are first used, so that its storages show what the design
allocates and not the size of a pool that somebody chose. Sinks keep the keys as the model rotated them, at the tokens'
own positions: a key arrives here rotated already. The outcome equals a mask over the middle exactly, and a test holds
it to that.
"""
