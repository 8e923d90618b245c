"""Draws prompts that were served cold and warm as HTML: what of each was kept, and how long its first token took."""

import html
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from kvviz.base.words import aligned_millis
from kvviz.charts import palette

Row = Mapping[str, Any]  # a request of a document (docs/json.md)
COLOURS = {  # on a light and on a dark page
    "kept": (palette.KEPT, "#3F97CF"),
    "computed": (palette.NEW, palette.ON_DARK[palette.NEW]),
    "cold": (palette.AGAIN, palette.ON_DARK[palette.AGAIN]),
}
_COLOURS = "".join(f"--kvf-{name}: light-dark({light}, {dark}); " for name, (light, dark) in COLOURS.items())
HEADS = (
    '<section class="kvf-heads"><b></b><b>The prompt:<i class="kept"></i>kept in the cache<i class="computed"></i>'
    'computed</b><b>First token after:<i class="cold"></i>all computed<i class="warm"></i>with a cache hit</b>'
    "</section>"
)
STYLE = f"<style>\n{Path(__file__).with_suffix('.css').read_text(encoding='utf-8')}.kvf {{ {_COLOURS}}}</style>"


def first_tokens(rows: Sequence[Row], heads: Sequence[tuple[str, str]]) -> str:
    """Draw a row for each prompt, all over the same axes, for a page with STYLE; `heads` are a title and a sentence."""
    longest = max(row["prompt_tokens"] for row in rows)
    slowest = max(row[name]["ttft_s_q3"] for row in rows for name in ("cold", "warm"))
    drawn = [_row(row, *head, longest, slowest) for row, head in zip(rows, heads, strict=True)]
    return f'<div class="kvf">{HEADS}{"".join(drawn)}</div>'


def _row(row: Row, title: str, sentence: str, longest: int, slowest: float) -> str:
    kept, computed = (row["warm"][f"{part}_tokens"] for part in ("found", "computed"))
    parts = [(count, part) for count, part in ((kept, "kept"), (computed, "computed")) if count]
    bars = (f'<i class="{part}" style="width:{100 * count / longest:.2f}%"></i>' for count, part in parts)
    prompt = f'<div class="kvf-tokens">{"".join(bars)}</div>'
    told = " + ".join(f'<b class="kvf-{part}">{count:,} {part}</b>' for count, part in parts)
    said = f"<b>{html.escape(title)}</b>{told}<p>{html.escape(sentence)}</p>"
    looks = {"cold": "cold", "warm": "warm" if kept else "cold"}
    times = "".join(_time(row[name], name, look, slowest) for name, look in looks.items())
    times += "" if kept else f"<p>Warm found nothing: {_difference(row['cold'], row['warm'])}.</p>"
    return (
        f'<section><div class="kvf-head">{said}</div><div class="kvf-prompt">{prompt}</div>'
        f'<div class="kvf-times">{times}</div></section>'
    )


def _difference(cold: Row, warm: Row) -> str:
    """Say that the times of the same work do not differ if a median is within the other's quartiles; else that it is
    not the cache.
    """
    if any(other["ttft_s_q1"] <= row["ttft_s"] <= other["ttft_s_q3"] for row, other in ((cold, warm), (warm, cold))):
        return f"no difference beyond the spread (quartiles {_quartiles(cold)} and {_quartiles(warm)})"
    return "so the cache does not make this difference; what does was not measured"


def _quartiles(found: Row) -> str:
    low, high = (aligned_millis(found[f"ttft_s_{quartile}"]) for quartile in ("q1", "q3"))
    return f"{low.removesuffix(' ms')} to {high}"


def _time(found: Row, name: str, look: str, slowest: float) -> str:
    """Draw the median as a bar that looks like a cold or a warm one, the quartiles on it, and its figure behind."""
    middle, low, high = (100 * found[f"ttft_s{part}"] / slowest for part in ("", "_q1", "_q3"))
    bar = f'<i class="{look}" style="width:{middle:.2f}%"></i>'
    spread = f'<i class="kvf-spread" style="left:{low:.2f}%;width:{high - low:.2f}%"></i>'
    return f"<span>{name}</span><div>{bar}{spread}</div><b>{aligned_millis(found['ttft_s'])}</b>"


def strip(pieces: Sequence[str], kept: int, before: Sequence[str] | None = None) -> str:
    """Draw the text of a prompt, for a page with STYLE: the tokens that were kept, then those that were computed.

    Where `before`, the tokens that it has been made from, are known, each edit is marked, and what it took away struck.
    """
    old = before or pieces
    parts = []
    for what, gone, until, start, end in SequenceMatcher(None, old, pieces, autojunk=False).get_opcodes():
        if what in ("replace", "delete"):
            parts.append(_apart("".join(old[gone:until]), "del"))
        for state, text in (
            ("kept", pieces[start : min(end, kept)]),
            ("computed", pieces[max(start, kept) : end]),
        ):
            if text:
                of = f'class="{state}" data-tokens="{len(text)}"'
                parts.append(_apart("".join(text), "span", of if what == "equal" else f"{of} data-new"))
    return f'<div class="kvf kvf-strip">{"".join(parts)}</div>'


def _apart(text: str, element: str, more: str = "") -> str:
    """Put a text into an element, and the space that it begins with before that, where it parts two words."""
    words = text.lstrip(" ")
    return f"{' ' * (len(text) - len(words))}<{element}{' ' if more else ''}{more}>{html.escape(words)}</{element}>"
