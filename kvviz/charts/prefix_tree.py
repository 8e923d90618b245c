"""Draws a radix tree of prefixes as HTML: each box is a block with its text, coloured by its state."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kvviz.charts import palette

STATES = {  # of a block: in words, and its colour on a light and on a dark page
    "hit": ("hit by this request", palette.KEPT, "#3F97CF"),
    "computed": ("computed for it", palette.NEW, "#35C79E"),
    "again": ("computed again", palette.AGAIN, "#F28E4B"),
    "kept": ("lies in the memory", "#A9B7C4", "#5A6B7B"),
    "evicted": ("evicted for it", palette.GIVEN_UP, "#E39BC4"),
    "gone": ("evicted before", palette.FREE, palette.FREE),
}
KEY = {words: (light, dark) for words, light, dark in STATES.values()}
_SHADES = "".join(f".kvt-{state} {{ --kvt: light-dark({row[1]}, {row[2]}); }}\n" for state, row in STATES.items())
STYLE = f"<style>\n{Path(__file__).with_suffix('.css').read_text(encoding='utf-8')}{_SHADES}</style>"


def prefix_tree(tree: Sequence[Mapping[str, Any]], names: Sequence[str], block: int) -> str:
    """Draw the runs of a tree (docs/json.md), for a page with STYLE; request i is called `names[i]`.

    A block is as wide as every other, and a run as high as all that goes on from it: at its right stands who shares it.
    """
    longest = max((_blocks(run) for run in tree), default=1)
    runs = "".join(_run(run, names, block) for run in tree)
    region = f'class="kvt" style="--kvt-longest:{longest}" tabindex="0" role="group" aria-label="A tree of prefixes"'
    return f'<div class="kvt-frame"><div {region}>{runs}</div></div>'


def _blocks(run: Mapping[str, Any]) -> int:
    """Blocks from the start of a run to the end of the longest prompt that goes on from it."""
    return len(run["states"]) + max((_blocks(child) for child in run["children"]), default=0)


def _run(run: Mapping[str, Any], names: Sequence[str], block: int) -> str:
    whose = html.escape(" ".join(names[number] for number in run["requests"]))
    blocks = "".join(
        f'<span class="kvt-{state}" title="{STATES[state][0]}">{html.escape(text)}</span>'
        for state, text in zip(run["states"], run["texts"], strict=True)
    )
    below = "".join(_run(child, names, block) for child in run["children"])
    share = "share " if run["requests"][1:] else ""
    head = f"<b>{whose}</b> {share}{block * len(run['states'])} tokens"
    count = f"--kvt-count:{len(run['states'])}"
    node = f'<div class="kvt-node" style="{count}"><p>{head}</p><div class="kvt-text">{blocks}</div></div>'
    after = f'<div class="kvt-next">{below}</div>' if below else ""
    return f'<div class="kvt-run">{node}{after}</div>'
