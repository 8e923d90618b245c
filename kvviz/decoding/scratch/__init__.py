"""A transformer written to be read, and the steps that lead to it. `design` and `listing` need no torch."""
