"""One prompt through several cache designs: tokens, quality, memory, time."""
