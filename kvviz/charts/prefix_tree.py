"""Draws the prefixes in a memory as HTML: a box for each block, under the name of the turn that wrote it."""

import html
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kvviz.charts import palette

Run = Mapping[str, Any]  # of a document's tree (docs/json.md)
Turns = Sequence[tuple[str, str]]  # of each request: whose it is, and its name
STATES = {  # of a block: in words, its sign, and its colour on a light and on a dark page
    "hit": ("found by this request", "✓", palette.KEPT, "#3F97CF"),
    "computed": ("computed for it", "+", palette.NEW, "#35C79E"),
    "again": ("computed for it <b>again</b>", "↻", palette.AGAIN, "#F28E4B"),
    "open": ("its last block, not full: freed at its end", "", palette.NEW, "#35C79E"),
    "kept": ("in the memory", "", "#A9CDE6", "#2F5E80"),
    "evicted": ("evicted now", "✕", palette.GIVEN_UP, "#E39BC4"),
    "gone": ("evicted before", "✕", palette.FREE, palette.FREE),
}
COSTS = ("hit", "again", "computed")  # what becomes of a prompt's tokens, from its start on
SHARED = "the system prompt"
_SHADES = "".join(f".kvt-{state} {{ --kvt: light-dark({row[2]}, {row[3]}); }}\n" for state, row in STATES.items())
STYLE = f"<style>\n{Path(__file__).with_suffix('.css').read_text(encoding='utf-8')}{_SHADES}</style>"


def key(*trees: Sequence[Run]) -> str:
    """Draw what the colours of the blocks in these trees mean, or those of a bar of costs, for a page with STYLE."""
    seen = {state for tree in trees for run in _runs(tree) for state in run["states"]} or COSTS
    boxes = (
        f'<span><i class="kvt-{name}">{row[1]}</i><span>{row[0]}</span></span>'
        for name, row in STATES.items()
        if name in seen
    )
    return f'<div class="kvt-key">{"".join(boxes)}</div>'


def kept_blocks(tree: Sequence[Run]) -> int:
    """Count the blocks that lie in the memory."""
    return sum(state not in ("evicted", "gone") for run in _runs(tree) for state in run["states"])


def tokens_of(request: Mapping[str, Any]) -> dict[str, int]:
    """Return how many of a request's prompt tokens were found, computed again, and computed for the first time."""
    again = request["recomputed_tokens"]
    return {"hit": request["hit_tokens"], "again": again, "computed": request["computed_tokens"] - again}


def cost(request: Mapping[str, Any], most: int) -> str:
    """Draw what a request found and computed as one bar, over an axis of `most` tokens, for a page with STYLE."""
    names = {"hit": "found", "again": "<b>again</b>", "computed": "new"}
    parts = "".join(
        f'<span class="kvt-{state}" style="flex-basis:{100 * count / most:.2f}%">{count:,} {names[state]}</span>'
        for state, count in tokens_of(request).items()
        if count
    )
    return f'<div class="kvt-cost">{parts}</div>'


def again_by_turn(requests: Sequence[Mapping[str, Any]], turns: Turns) -> str:
    """Draw how many tokens each request computed again, and their sum, for a page with STYLE."""
    again = [one["recomputed_tokens"] for one in requests]
    names = "".join(f"<th>{html.escape(name)}</th>" for _, name in turns)
    counts = "".join(f'<td class="kvt-again">{count:,}</td>' if count else "<td>0</td>" for count in again)
    rows = f"<tr>{names}<th>in all</th></tr><tr>{counts}<td><b>{sum(again):,}</b></td></tr>"
    return f'<table class="kvt-turns"><caption>Tokens computed again at each turn</caption>{rows}</table>'


def prefix_tree(tree: Sequence[Run], turns: Turns, block: int) -> str:
    """Draw the runs of a tree, for a page with STYLE; `turns` are the requests.

    A block is as wide as every other, and a run as high as all that goes on from it.
    """
    longest = max((_blocks(run) for run in tree), default=1)
    runs = "".join(_run(run, turns, block) for run in tree)
    region = (
        f'class="kvt" style="--kvt-longest:{longest}" tabindex="0" role="group" aria-label="Prefixes in the memory"'
    )
    return f'<div class="kvt-frame"><div {region}>{runs}</div></div>'


def with_open_block(tree: Sequence[Run], number: int, tokens: int, block: int) -> list[Run]:
    """Return the tree with the block that a request filled only with some `tokens`, at the end of its prefix.

    Nobody can share it, so it is given back at the request's end, and the document's tree lacks it.
    """
    last: dict[str, Any] = {
        "requests": [number],
        "states": ["open"],
        "texts": [f"{tokens} of {block} tokens"],
        "children": [],
        "filled": tokens / block,
    }
    goes_on = next((i for i, run in enumerate(tree) if number in run["requests"]), None)
    if goes_on is None:
        return [*tree, last]
    run = tree[goes_on]
    if run["requests"] == [number] and not run["children"]:
        joined = {name: run[name] + last[name] for name in ("states", "texts")}
        changed = {**run, **joined, "filled": last["filled"]}
    else:
        changed = {**run, "children": with_open_block(run["children"], number, tokens, block)}
    return [*tree[:goes_on], changed, *tree[goes_on + 1 :]]


def evicted_from(tree: Sequence[Run], turns: Turns) -> str:
    """Say which turns the memory has no longer, or only in part."""
    whole, parts = list[str](), list[str]()
    for run in _runs(tree):
        gone = [state in ("evicted", "gone") for state in run["states"]]
        if all(gone):
            whole.append(_name(run, turns))
        elif any(gone):
            parts.append(f"{'the end of' if gone == sorted(gone) else 'a part of'} {_name(run, turns)}")
    said = whole + parts  # a part that came first would seem to be one of the others too
    return " and ".join([", ".join(said[:-1]), *said[-1:]]) if said[1:] else "".join(said)


def _runs(tree: Sequence[Run]) -> Iterator[Run]:
    for run in tree:
        yield run
        yield from _runs(run["children"])


def _name(run: Run, turns: Turns) -> str:
    """Return the name of the first request that had a run's blocks; two conversations share the system prompt."""
    several = len({turns[number][0] for number in run["requests"]}) > 1
    return SHARED if several else turns[run["requests"][0]][1]


def _blocks(run: Run) -> int:
    """Blocks from the start of a run to the end of the longest prompt that goes on from it."""
    return len(run["states"]) + max((_blocks(child) for child in run["children"]), default=0)


def _run(run: Run, turns: Turns, block: int) -> str:
    blocks = "".join(
        f'<span class="kvt-{state}" title="{html.escape(text)}">{STATES[state][1]}</span>'
        for state, text in zip(run["states"], run["texts"], strict=True)
    )
    below = "".join(_run(child, turns, block) for child in run["children"])
    name = _name(run, turns)
    name = html.escape(name[:1].upper() + name[1:])
    head = f'<p title="{block * len(run["states"])} tokens">{name}</p>'
    count = f"--kvt-count:{len(run['states'])}" + (f";--kvt-filled:{run['filled']:.0%}" if "filled" in run else "")
    node = f'<div class="kvt-node" style="{count}">{head}<div class="kvt-text">{blocks}</div></div>'
    after = f'<div class="kvt-next">{below}</div>' if below else ""
    return f'<div class="kvt-run">{node}{after}</div>'
