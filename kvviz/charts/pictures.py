"""Draws a cache's memory layout: turns the plain values of `picture()` into HTML that wraps on a narrow screen."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from kvviz.base.words import human
from kvviz.charts.layout import as_text

Picture = Mapping[str, Any]

STYLE = f"<style>\n{Path(__file__).with_suffix('.css').read_text(encoding='utf-8')}</style>"


def picture_html(picture: Picture, title: str) -> str:
    """Draw the memory of one layer as HTML under a title. Raises KeyError for a kind that has no drawing."""
    head = f"<p><b>{as_text(title)}</b></p>"
    return f'<div class="kvp">{head}{_DRAWN[picture["kind"]](picture)}{_sizes(picture)}</div>'


def strips_html(pictures: Mapping[str, Picture], glosses: Mapping[str, str]) -> str:
    """Draw the first sequence's slots of each design as a strip, with the number of tokens that this step writes.

    Under its title stands its gloss, if it has one.
    """
    rows, seen, most = [], set(), max(len(slots_of(picture)) for picture in pictures.values())
    for title, picture in pictures.items():
        slots = slots_of(picture)
        written = slots.count("new")
        said = f"writes {written:,} token{'s' * (written != 1)}"
        label = as_text(f"{title}: {said}; {len(slots):,} slots")
        bits = f' style="--kvp-bits:{picture["bits"]}"' if picture["kind"] == "codes" else ""
        strip = f'<div class="kvp-row" role="img" aria-label="{label}"{bits}>{_cells(map(_class, slots))}</div>'
        small = f"<small>{as_text(glosses[title])}</small>" if glosses.get(title) else ""
        rows.append(f"<b>{as_text(title)}{small}</b>{strip}<span>{said}</span>")
        seen |= set(slots)
    words = {
        "new": "written by this step",
        "old": "written before",
        "none": "taken and empty: wasted",
        "code": "rounded to codes: the fewer bits, the lower",
        "sink": "shared with another sequence",
    }
    key = _key(**{name: said for name, said in words.items() if name in seen})
    body = "".join(f"<div>{row}</div>" for row in rows)
    return f'<div class="kvp kvp-strips" style="--kvp-most:{most}">{key}{body}</div>'


def slots_of(picture: Picture) -> list[str]:
    """Return the state of each slot of the first sequence: new, old, sink (shared), none (empty) or code.

    A gap parts two blocks. An evicting design's tokens are in the order of the text, and those that moved within its
    memory are drawn as the newest.
    """
    match picture["kind"]:
        case "blocks":
            by_id = {block["id"]: block for block in picture["blocks"]}
            table = picture["tables"][0]
            last = (table["tokens"] - 1) % picture["block"]
            blocks = [
                ["sink" if block["refs"] > 1 else "old"] * block["filled"]
                + ["none"] * (picture["block"] - block["filled"])
                for block in map(by_id.__getitem__, table["blocks"])
            ]
            if blocks:
                blocks[-1][last] = "new"
            slots = [slot for block in blocks for slot in (*block, "gap")][:-1]
        case "ring":
            newest = max((p for p in picture["positions"] if p is not None), default=None)
            slots = ["none" if p is None else "new" if p == newest else "old" for p in picture["positions"]]
        case "codes":
            anew = picture["copied"] >= picture["residual_bytes"]  # joining the newest token has written all of them
            codes = picture["residual_bytes"] + picture["codes_bytes"] + picture["scale_bytes"]
            joined = picture["copied"] >= codes  # a new group is joined to those before it, which copies them
            rounded = ["new" if joined else "code"] * (picture["groups"] * picture["group"])
            slots = rounded + ["new" if anew else "old"] * picture["residual"]
        case "evicting":
            kept = len(picture["positions"])
            written = min(kept, picture.get("copied_tokens", 1))  # runs that were kept earlier have no such figure
            slots = ["old"] * (kept - written) + ["new"] * written
        case _:
            slots = _buffer_slots(picture)
    return ["new" if slot == "old" else slot for slot in slots] if picture["step"] == 0 else slots  # the prompt's


def _class(slot: str) -> str:
    return f"kvp-{slot}"


def _sizes(picture: Picture) -> str:
    wasted = picture["allocated"] - picture["nbytes"]
    moved = f"this step wrote {human(picture['copied'])}"
    moved += f" and gathered {human(picture['gathered'])} for attention" if picture["gathered"] else ""
    return (
        f"<p>Holds {human(picture['nbytes'])}, allocated {human(picture['allocated'])}, wasted {human(wasted)}; "
        f"{moved}.</p>"
    )


def _cells(classes: Iterable[str]) -> str:
    return "".join(f'<span class="kvp-s {name}"></span>' for name in classes)


def _key(**names: str) -> str:
    """Explain the colours; each colour stays on one line with its words."""
    parts = (f'<span class="kvp-word"><span class="kvp-key kvp-{n}"></span>{said}</span>' for n, said in names.items())
    return f"<p>{' '.join(parts)}</p>"


def _row(body: str) -> str:
    return f'<div class="kvp-row">{body}</div>'


def _buffer(picture: Picture) -> str:
    """Draw a buffer's slots: written by the last step, written earlier, and reserved."""
    slots, used = picture["slots"], picture["used"]
    states = _buffer_slots(picture)
    before, copied = _before(picture), states.count("new")
    key = {"new": "written by this step"} | ({"old": "there before"} if used > copied else {})
    if slots > used:
        key["none"] = "left behind by the window" if before else "taken and empty: wasted"
    where = " in the host's memory" if picture.get("host") else ""
    grown = " No maximum is known, so it doubles when it is full." if picture.get("doubles") else ""
    words = f"<p>One buffer{where} of {slots:,} slots for each sequence, {used:,} of them filled.{grown}</p>"
    return words + _row(_cells(f"kvp-{state}" for state in states)) + _key(**key)


def _before(picture: Picture) -> int:
    """Count the slots before a sliding window's view."""
    return max(0, picture["slots"] - picture["used"]) if picture["first_position"] else 0


def _buffer_slots(picture: Picture) -> list[str]:
    slots, used, before = picture["slots"], picture["used"], _before(picture)
    copied = min(picture["copied_tokens"], used)
    return ["none"] * before + ["old"] * (used - copied) + ["new"] * copied + ["none"] * (slots - before - used)


def _blocks(picture: Picture) -> str:
    """Draw the blocks with their reference counts, the block table of each sequence and the free list."""
    size, blocks = picture["block"], picture["blocks"]
    ends = {table["blocks"][-1]: (table["tokens"] - 1) % size for table in picture["tables"] if table["blocks"]}
    shared = {block["id"] for block in blocks if block["refs"] > 1}
    used = sum(block["refs"] > 0 for block in blocks)
    words = f"<p>{used:,} blocks of {size} slots in use, {len(shared):,} of them by more than one sequence.</p>"
    body = words + _row("".join(_block(block, size, ends.get(block["id"])) for block in blocks))
    several = {"sink": "shared: its count of owners is above 1"} if shared else {}
    empty = {"none": "taken and empty: wasted"} if any(0 < block["filled"] < size for block in blocks) else {}
    body += _key(new="newest token", old="filled", **several, **empty)
    body += "<p>Block tables, a row for each sequence: where its tokens lie, in order.</p>"
    for number, table in enumerate(picture["tables"], 1):
        chips = "".join(_chip(block, "kvp-shared" if block in shared else "") for block in table["blocks"])
        gone = f"<span>({table['left_behind']} left behind)</span>" if table["left_behind"] else ""
        body += _named_row(f"Sequence {number}", gone + chips)
    findable = set(picture.get("findable", ()))
    free = "".join(_chip(block, "kvp-gone", "*" if block in findable else "") for block in picture["free"])
    body += _named_row("Free list", free or "empty")
    return body + ("<p>* would be found again by a like beginning.</p>" if findable else "")


def _named_row(name: str, body: str) -> str:
    return f'<div class="kvp-line"><span class="kvp-name">{name}</span>{_row(body)}</div>'


def _block(block: Picture, size: int, end: int | None) -> str:
    state = "kvp-free" if not block["refs"] else "kvp-shared" if block["refs"] > 1 else ""
    bits = "".join(
        f'<i class="{"kvp-new" if slot == end else "kvp-old" if slot < block["filled"] else ""}"></i>'
        for slot in range(size)
    )
    owners = "free" if not block["refs"] else f"× {block['refs']}"
    return f'<div class="kvp-box {state}"><b><span>{block["id"]}</span><span>{owners}</span></b>' + (
        f'<div class="kvp-bits">{bits}</div></div>'
    )


def _chip(block: int, state: str, mark: str = "") -> str:
    return f'<span class="kvp-chip {state}">{block}{mark}</span>'


def _ring(picture: Picture) -> str:
    """Draw a ring buffer's slots with their token positions; an outline marks the slot for the next token."""
    sinks, positions, following = picture["sinks"], picture["positions"], picture["next_slot"]
    newest = max((p for p in positions if p is not None), default=None)
    cells = []
    for slot, position in enumerate(positions):
        state = "none" if position is None else "new" if position == newest else "sink" if slot < sinks else "old"
        mark = " kvp-next" if slot == following else ""
        cells.append(f'<span class="kvp-n kvp-{state}{mark}">{"" if position is None else position}</span>')
    filled = sum(p is not None for p in positions)
    lost = 0 if newest is None else newest + 1 - filled
    words = f"<p>{len(positions):,} slots with the positions of their tokens; {lost:,} tokens were let go."
    words += " The next token goes into the outlined slot.</p>"
    key = {"sink": f"the first {sinks}, kept for good"} if sinks else {}
    return words + _row("".join(cells)) + _key(**key, old="the window", new="newest token")


def _evicting(picture: Picture) -> str:
    """Draw a slot for each token so far: kept or evicted."""
    kept, seen = set(picture["positions"]), picture["seen"]
    states = ("new" if p == seen - 1 else "old" if p in kept else "gone" for p in range(seen))
    words = f"<p>{len(kept):,} of {seen:,} tokens are kept, by the first KV head of the first sequence.</p>"
    return (
        words + _row(_cells(f"kvp-{state}" for state in states)) + _key(old="kept", new="newest token", gone="evicted")
    )


def _codes(picture: Picture) -> str:
    """Draw the quantized groups, the tokens not quantized yet, and the bytes of each part."""
    groups, group = picture["groups"], picture["group"]
    boxes = "".join(
        f'<div class="kvp-box"><b><span>{group} tokens</span></b><div class="kvp-bar kvp-code" style="height:12px;'
        f'margin:0"></div></div>'
        for _ in range(groups)
    )
    anew = picture["copied"] >= picture["residual_bytes"]  # joining the newest token has written all of them
    state, said = ("new", "as they came, all written by this step:") if anew else ("old", "as they came")
    residual = _cells([f"kvp-{state}"] * picture["residual"])
    gone = f", {picture['left_behind']:,} groups left behind" if picture["left_behind"] else ""
    words = (
        f"<p>{groups:,} group{'s' * (groups != 1)} of {group} tokens as {picture['bits']}-bit codes{gone}; the newest "
        f"{picture['residual']:,} tokens are still as they came.</p>"
    )
    parts = {
        "code": ("codes", picture["codes_bytes"]),
        "scale": ("scales and zeros", picture["scale_bytes"]),
        state: (said, picture["residual_bytes"]),
    }
    bar = "".join(
        f'<div class="kvp-{name}" style="flex:{size} 0 0"></div>' for name, (_, size) in parts.items() if size
    )
    key = {name: f"{words_} {human(size)}" for name, (words_, size) in parts.items()}
    return words + _row(boxes + residual) + f'<div class="kvp-bar">{bar}</div>' + _key(**key)


_DRAWN: dict[str, Callable[[Picture], str]] = {
    "buffer": _buffer,
    "blocks": _blocks,
    "ring": _ring,
    "codes": _codes,
    "evicting": _evicting,
}
