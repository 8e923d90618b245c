"""The store: every comparison and sweep, kept as it goes. SQLite through SQLAlchemy Core."""
