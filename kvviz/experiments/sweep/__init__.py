"""A comparison over a grid of models, lengths, batches and precisions."""
