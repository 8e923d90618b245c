"""Kept runs: the database, runs as files, and runs held against one another."""
