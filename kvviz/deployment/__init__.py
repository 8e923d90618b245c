"""The whole memory of a deployment: weights, cache, activations and what the driver takes, on the cards that share it.

`plan.py` has the answers; nothing here imports torch.
"""
