"""Inspections of one decode: an attention layer, a mistake made on purpose, the first steps."""
