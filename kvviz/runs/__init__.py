"""The store: every comparison and sweep, kept as it goes and found again. SQLite through SQLAlchemy Core."""

from kvviz.runs.store import Store
from kvviz.runs.stored import Run, Stored

__all__ = ["Run", "Store", "Stored"]
