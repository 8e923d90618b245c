"""Draws one memory that many sequences share, slot by slot, as HTML: who has what, what is filled, what is wasted."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kvviz.charts import palette

Picture = Mapping[str, Any]
WIDE = 256  # slots in a row
LABELLED = 8  # filled slots that have room for a label

STATES = {  # what a slot is: in words, and its colour on a light and on a dark page
    "full": ("tokens of a request", palette.KEPT, "#3F97CF"),
    "empty": ("taken and empty: wasted", palette.WASTED, palette.ON_DARK[palette.WASTED]),
    "free": ("free", "#E6EAEE", "#2A343E"),
    "shared": ("shared (×: by how many)", "#27303D", "#DCE1E8"),
    "kept": ("free, but its prefix is kept", "#B5D9F0", "#1F4E6E"),
}
KEY = {words: (light, dark) for words, light, dark in STATES.values()}
FOLLOWED = palette.GIVEN_UP, palette.ON_DARK[palette.GIVEN_UP]  # the tokens of one request, to be seen among all
_SHADES = "".join(
    f".kvm-{state} {{ background: light-dark({light}, {dark}); }}\n"
    for state, (light, dark) in {**{state: row[1:] for state, row in STATES.items()}, "followed": FOLLOWED}.items()
)
STYLE = f"<style>\n{Path(__file__).with_suffix('.css').read_text(encoding='utf-8')}{_SHADES}</style>"


class Piece(NamedTuple):
    """Slots side by side that belong together: the first, how many, how many of them are filled, and whose they are."""

    start: int
    slots: int
    filled: int
    state: str
    label: str
    says: str


def followed(regions: Picture | None, blocks: Picture | None) -> tuple[int, int] | None:
    """Return the request with most blocks of all that lie in both pictures, and their number; None if none does."""
    if not regions or not blocks:
        return None
    counts = {owner: len(held) for owner, held, _ in blocks["tables"]}
    both = [owner for owner, *_ in regions["regions"] if owner in counts]
    most = max(both, key=counts.__getitem__, default=None)
    return None if most is None else (most, counts[most])


def memory_map(picture: Picture | None, slots: int, follow: int | None = None) -> str:
    """Draw the memory in rows of WIDE slots, for a page with STYLE; `picture` is None once all requests are done.

    The tokens of the request `follow` have a colour of their own.
    """
    given = sorted(pieces(picture)) if picture else []
    given = [one._replace(state="followed") if one.label == str(follow) else one for one in given]
    rows = range(0, slots, WIDE)
    body = "".join(_row(given, start, min(start + WIDE, slots)) for start in rows)
    return f'<div class="kvm" role="img" aria-label="The memory, {len(given)} pieces of it in use">{body}</div>'


def pieces(picture: Picture) -> Iterator[Piece]:
    """What the memory is given out as: a region for each sequence, or blocks; slots that are in none are free."""
    if picture["kind"] == "regions":
        for owner, start, slots, tokens in picture["regions"]:
            yield Piece(start, slots, tokens, "full", str(owner), f"request {owner}: {tokens} of {slots} slots filled")
        return
    size, owned = picture["block"], _owners(picture)
    for number in picture["findable"]:
        yield Piece(
            number * size, size, size, "kept", "", f"block {number}: free, and the same prefix would hit it again"
        )
    for number, (owners, filled) in owned.items():
        several, words = len(owners) > 1, f"block {number}, {filled} of {size} slots filled"
        whose = f"shared by requests {', '.join(map(str, owners))}" if several else f"request {owners[0]}'s"
        label, state = (f"×{len(owners)}", "shared") if several else (str(owners[0]), "full")
        yield Piece(number * size, size, filled, state, label, f"{words}, {whose}")


def _owners(picture: Picture) -> dict[int, tuple[list[int], int]]:
    """Map each block in use to its owners and the number of its filled slots."""
    found: dict[int, tuple[list[int], int]] = {}
    for owner, blocks, tokens in picture["tables"]:
        for place, block in enumerate(blocks):
            names, filled = found.get(block, ([], 0))
            found[block] = [*names, owner], max(filled, min(picture["block"], tokens - place * picture["block"]))
    return found


def _row(given: list[Piece], start: int, end: int) -> str:
    """Draw the slots from `start` to `end`: what reaches into them of each piece, and what is free between."""
    body, at = "", start
    for piece in given:
        first, last = max(start, piece.start), min(end, piece.start + piece.slots)
        if first >= last:
            continue
        full = min(max(piece.start + piece.filled, first), last)
        label = piece.label if first == piece.start else ""
        inside = full - first >= LABELLED
        inner = _slots(full - first, piece.state, label if inside else "")
        inner += _slots(last - full, "empty", "" if inside else label)
        body += _slots(first - at, "free")
        body += f'<span class="kvm-piece" title="{piece.says}" style="flex:{last - first} 0 0">{inner}</span>'
        at = last
    return f'<div class="kvm-row">{body}{_slots(end - at, "free")}{_slots(start + WIDE - end, "none")}</div>'


def _slots(count: int, state: str, label: str = "") -> str:
    return f'<i class="kvm-{state}" style="flex:{count} 0 0">{label}</i>' if count else ""
