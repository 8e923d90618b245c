"""The store: every comparison and sweep, kept as it goes. SQLite in WAL mode through SQLAlchemy Core.

Three tables. `works` has a row for each experiment with all that a list shows; `parts` its records, a chunk for each
append, one blob once it has ended, and its document; `runs` a row for each mode, its steps as columns of float64 and
int64, never a row for each step. A commit survives the end of any process; `synchronous=NORMAL`
leaves the fsync to checkpoints, so only a loss of power can take the last commits, and even that does not harm the
file. Writers begin with `BEGIN IMMEDIATE`, since a reader that becomes a writer can be refused without waiting. Each
unfinished row names its process and that process's start, so another server does not take it for interrupted. Lists go
by rowid, not by date: a clock may step back. `schema.py` counts versions with `PRAGMA user_version`: a file is migrated
in one transaction, and a newer one is refused untouched.
"""
