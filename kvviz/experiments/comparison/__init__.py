"""One prompt through several modes on the same work: equivalence check, timed passes, verdict."""
