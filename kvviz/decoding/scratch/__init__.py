"""A transformer written to be read, and the steps that lead to it. `design` and `listing` need no torch.

Python's line tracing watches the attention (`observe.py`): the code that is read aloud contains nothing for whoever
watches, and costs nothing when nobody does. Which line is which stage, and which shapes it makes, stands in its
comments; tests hold those to the real tensors.
"""
