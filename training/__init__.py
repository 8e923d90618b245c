"""Train the two small models that ship with kvviz on stories from a seeded grammar."""
