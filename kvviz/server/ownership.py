"""Whose a run is: the mark of a browser's name, which tells owners apart and names nobody. Standard library only."""

import hashlib

NOBODY = ""


def mark_of(name: str) -> str:
    """What is kept in place of a browser's secret name; "" for no name. Names are random, so none can be guessed."""
    return hashlib.sha256(f"kvviz owner {name}".encode()).hexdigest()[:32] if name else NOBODY


def may_change(made_by: str, owner: str, *, trusted: bool) -> bool:
    """Whether a browser may stop, rename or delete what `made_by` marks.

    Its own always; what belongs to nobody (of the command line, or kept before runs had owners) where everyone who
    reaches the server is trusted.
    """
    return trusted if made_by == NOBODY else made_by == mark_of(owner)
