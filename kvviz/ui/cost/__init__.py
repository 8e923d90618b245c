"""The cost page."""
