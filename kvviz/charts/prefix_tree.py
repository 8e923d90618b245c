"""Draws a radix tree of prefixes as HTML: each box is a block with its text in its state's colour."""

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
_BOXES = "".join(f'<span class="kvt-{state}">{words}</span>' for state, (words, *_) in STATES.items())
KEY = f'<div class="kvt-key">{_BOXES}</div>'
HIGH = 5.2  # rem, of the longest prompt's bar
COSTS = ("again", "computed", "hit")  # what becomes of a prompt's tokens, from the top of a bar down
_SHADES = "".join(f".kvt-{state} {{ --kvt: light-dark({row[1]}, {row[2]}); }}\n" for state, row in STATES.items())
STYLE = f"<style>\n{Path(__file__).with_suffix('.css').read_text(encoding='utf-8')}{_SHADES}</style>"


def costs(rows: Sequence[Mapping[str, Any]], names: Sequence[str], chosen: int) -> str:
    """Draw what each request found, and computed for the first time and again, under each order of a document's rows.

    For a page with STYLE, over the same axis; the `chosen` request is marked. The sums behind are those of the claim.
    """
    most = max(one["prompt_tokens"] for row in rows for one in row["requests"])
    return f'<div class="kvt-costs">{"".join(_costs(row, names, chosen, most) for row in rows)}</div>'


def _costs(row: Mapping[str, Any], names: Sequence[str], chosen: int, most: int) -> str:
    bars = ""
    for number, (one, name) in enumerate(zip(row["requests"], names, strict=True)):
        again = one["recomputed_tokens"]
        tokens = {"again": again, "computed": one["computed_tokens"] - again, "hit": one["hit_tokens"]}
        parts = "".join(
            f'<i class="kvt-{state}" style="height:{HIGH * tokens[state] / most:.2f}rem"></i>' for state in COSTS
        )
        said = f"{name}: {tokens['hit']} tokens hit, {tokens['computed']} computed, {again} computed again"
        label = f"<b>{again}</b>" if again else ""
        marked = ' data-chosen="true"' if number == chosen else ""
        bars += f'<div{marked} title="{html.escape(said)}">{label}{parts}<span>{html.escape(name)}</span></div>'
    total = f"<p><b>= {row['recomputed_tokens']:,}</b> tokens computed again</p>"
    return f'<section><h3>{html.escape(row["title"])}</h3><div class="kvt-bars">{bars}{total}</div></section>'


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
