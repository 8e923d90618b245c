"""Generate the data files that are derived from an installed library, the recordings and the pictures."""
