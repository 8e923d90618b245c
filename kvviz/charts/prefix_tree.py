"""Draws a radix tree of prefixes as HTML: each node is a run of blocks with their text, coloured by their states."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kvviz.charts import palette

STATES = {  # of a block: in words, and its colour on a light and on a dark page
    "hit": ("hit by this request", palette.KEPT, "#3F97CF"),
    "computed": ("computed for it", palette.NEW, "#35C79E"),
    "again": ("computed again", palette.AGAIN, "#F28E4B"),
    "kept": ("kept from before", "#C9D6E2", "#3A4A59"),
    "evicted": ("evicted for it", palette.GIVEN_UP, "#E39BC4"),
    "gone": ("evicted before", palette.FREE, palette.FREE),
}
KEY = {words: (light, dark) for words, light, dark in STATES.values()}
_SHADES = "".join(f".kvt-{state} {{ --kvt: light-dark({row[1]}, {row[2]}); }}\n" for state, row in STATES.items())
STYLE = f"<style>\n{Path(__file__).with_suffix('.css').read_text(encoding='utf-8')}{_SHADES}</style>"


def prefix_tree(tree: Sequence[Mapping[str, Any]], names: Sequence[str], block: int) -> str:
    """Draw the runs of a tree (docs/json.md), for a page with STYLE; request i is called `names[i]`."""
    return f'<div class="kvt">{"".join(_run(run, names, block) for run in tree)}</div>'


def _run(run: Mapping[str, Any], names: Sequence[str], block: int) -> str:
    whose = [names[number] for number in run["requests"]]
    several = f"shared by {len(whose)}: " if len(whose) > 1 else ""
    head = f"<b>{block * len(run['states'])} tokens</b>, {several}{html.escape(' '.join(whose))}"
    blocks = "".join(
        f'<span class="kvt-{state}" title="{STATES[state][0]}">{html.escape(text)}</span>'
        for state, text in zip(run["states"], run["texts"], strict=True)
    )
    below = "".join(_run(child, names, block) for child in run["children"])
    lit = " kvt-lit" if "hit" in run["states"] else ""
    node = f'<div class="kvt-node{lit}"><p>{head}</p><div class="kvt-text">{blocks}</div></div>'
    after = f'<div class="kvt-next">{below}</div>' if below else ""
    return f'<div class="kvt-run">{node}{after}</div>'
