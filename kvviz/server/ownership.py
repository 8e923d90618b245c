"""Who owns a run: a mark of the browser's name that tells owners apart and names nobody. Standard library only."""

import hashlib

NOBODY = ""


def mark_of(name: str) -> str:
    """The mark that is stored in place of a browser's secret name; "" for no name. A random name can't be guessed."""
    return hashlib.sha256(f"kvviz owner {name}".encode()).hexdigest()[:32] if name else NOBODY


def may_change(made_by: str, owner: str, *, trusted: bool) -> bool:
    """Whether a browser may stop, rename or delete what `made_by` marks.

    It may always change its own. What belongs to nobody (made on the command line, or before runs had owners) it may
    change if everyone who reaches the server is `trusted`.
    """
    return trusted if made_by == NOBODY else made_by == mark_of(owner)
