"""What every tab of the caches page says of its designs: what each is, and why codes save more in a longer text."""

from collections.abc import Iterable, Mapping
from typing import Any

import streamlit as st

from kvviz.caches.designs import DESIGNS, RESIDUAL
from kvviz.experiments.cache_designs.words import at_16_bits
from kvviz.memory.formula import DTYPE_BYTES
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.fold import fold

OWN = {"cached": "transformers' own"}  # its title elsewhere, "KV cache", holds of every design on this page
OWN_GLOSS = "Hugging Face's default"
CODES = "int4"  # the design whose share is told wherever its size is seen
CODE_BYTES = 0.5  # of one of its codes
EVICTING = "**Constant memory**, because tokens are evicted:"


def as_named_here(found: Mapping[str, Any], part: str = "runs") -> dict[str, Any]:
    """Return the document with the designs in `part` named as on this page, each with its gloss."""
    return {
        **found,
        part: [{**run, "title": _title(run), "gloss": gloss(run["mode"])} for run in found[part]],
    }


def _title(run: Mapping[str, Any]) -> str:
    """Return the name that a run's design has today, which is not always that of an older document."""
    mode = run["mode"]
    return OWN.get(mode) or (DESIGNS[mode].title if mode in DESIGNS else run["title"])


def gloss(mode: str) -> str:
    """Return what a design is in two to five words; '' of a run that is none and of a visitor's own."""
    return OWN_GLOSS if mode in OWN else DESIGNS[mode].gloss if mode in DESIGNS else ""


def each_design(runs: Iterable[Mapping[str, Any]]) -> None:
    """Say in a sentence each what these designs are and why one would choose them, in two columns.

    Those that evict come last, under a line that says so once; many of them have the second column to themselves.
    """
    titles = {run["mode"]: run["title"] for run in runs if why(run["mode"])}
    evicting = [mode for mode in titles if mode in DESIGNS and DESIGNS[mode].budget]
    others = [mode for mode in titles if mode not in evicting]
    said = {mode: f"- **{titles[mode]}**: {why(mode)}" for mode in (*others, *evicting)}

    if evicting and others:
        said[evicting[0]] = f"\n{EVICTING}\n\n{said[evicting[0]]}"
    lines = list(said.values())

    def sentences() -> None:
        if evicting and not others:
            st.markdown(EVICTING)
        first = len(others) if others and len(evicting) > 1 else -(-len(lines) // 2)
        for place, some in zip(st.columns(2, gap="small"), (lines[:first], lines[first:]), strict=True):
            place.markdown("\n".join(some))

    fold("What each design is, and why one would choose it", "k_each_design", sentences)


def why(mode: str) -> str:
    """Return why one would choose a design; '' of a run that is none."""
    return TEXTS["caches"]["why"].get(mode) or (DESIGNS[mode].summary if mode in DESIGNS else "")


def say_codes(shares: Mapping[str, float], tokens: float, dtype: str) -> None:
    """Say, where codes of 4 bits are shown, what share of the full cache's bytes they hold of so many tokens."""
    if CODES in shares:
        said = TEXTS["caches"]["codes"].format(
            exact=RESIDUAL,
            tokens=f"{tokens:,.0f}",
            share=f"{shares[CODES]:.0%}",
            dtype=dtype,
            half=at_16_bits(shares[CODES], dtype),
            alone=f"{100 * CODE_BYTES / DTYPE_BYTES[dtype]:.3g}%",
        )
        st.markdown(said)
