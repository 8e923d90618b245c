"""Sourced rows of models, accelerators and published figures; the bundled models lie beside them."""
