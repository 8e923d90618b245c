"""What designs that evict tokens forget of a text: which tokens, when, and how much worse they predict for it."""
