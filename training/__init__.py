"""Trains the two small models that are shipped with kvviz, from a seeded grammar of short stories."""
