"""The recordings that come with kvviz, beside one another: the compare page's picture until runs are picked."""

import gzip
import json
from functools import cache
from typing import Any

import streamlit as st

from kvviz.charts import palette
from kvviz.charts.claims import of_curves, of_trust
from kvviz.charts.curves import CLIMBED, Curve, curve_of, flat_to, overlay, with_ends
from kvviz.charts.layout import on_one_scale
from kvviz.charts.passes import Timed, passes_figure
from kvviz.decoding.modes import title_of
from kvviz.experiments.comparison.figures import figures
from kvviz.store.files.schema import by_mode
from kvviz.ui.folders import ASSETS
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.plots import plot

KINDS = {"cpu": "Processor", "cuda": "GPU"}
FILES = ("recording", "h100-gpt2")


@cache
def _records(file: str) -> list[Any]:
    found: list[Any] = json.loads(gzip.decompress((ASSETS / "live" / f"{file}.json.gz").read_bytes()))["records"]
    return found


@cache
def recorded(file: str) -> tuple[dict[str, Any], list[Curve], bool]:
    """The record that a recording begins with, a curve for each mode (its passes' medians), and whether their
    disturbance is on record.
    """
    records = _records(file)
    started, curves, modes = records[0], [], by_mode(records)
    for mode, found in modes.items():
        run = {**figures(found.kept), "mode": mode, "step_s_q1": (), "step_s_q3": ()}  # lines alone
        passes = tuple(map(tuple, found.kept))
        curves.append(curve_of(run, started["prompt"]["tokens"], title_of(mode), passes))
    return started, curves, all(found.clean for found in modes.values())


def _timed(file: str) -> tuple[str, list[Timed]]:
    """What a recording is of and where it was made, and its runs with their passes, in seconds of a new token."""
    started, curves, told = recorded(file)
    model, here, tokens = started["model"], started["environment"], started["spec"]["new_tokens"]
    weights = ", random weights" if model["weights"] == "random" else ""
    figured = {run["mode"]: run for record in _records(file) if record["t"] == "figures" for run in record["runs"]}
    whole = {curve.mode: curve.so_far[-1] for curve in curves}
    runs = [
        Timed(
            name=curve.name,
            colour=palette.LIGHT[curve.mode],
            typical=whole[curve.mode] / tokens,
            passes=tuple(sum(seconds) / tokens for seconds in curve.repeats),
            ratio=whole["uncached"] / whole[curve.mode] if curve.mode != "uncached" else None,
            interval=figured.get(curve.mode, {}).get("speedup_interval"),
            about="" if told else "≈ ",
        )
        for curve in curves
    ]
    return f"{KINDS[here['device']]}: {here['device_name']}\n{model['title']}{weights}, {tokens} new tokens", runs


def recordings() -> None:
    """Draw the passes of all recordings on one scale under what they show, then their curves, on one scale as well."""
    found = dict(map(_timed, FILES))
    cached = [next(run for run in runs if run.colour == palette.LIGHT["cached"]) for runs in found.values()]
    told = []
    for words, file, run in zip(("recorded_claim", "recorded_next"), FILES, cached, strict=True):
        of = recorded(file)[0]
        named = {"model": of["model"]["title"].split(" (")[0], "tokens": of["spec"]["new_tokens"]}
        told.append(TEXTS["compare"][words].format(gain=f"{run.about}{run.ratio:.3g}", **named))
    st.header("; ".join(told), anchor=False)
    plot(passes_figure(found, TEXTS["compare"]["per_token"]), key="c_recorded")
    trust = [
        f"**{kind}**: {of_trust(runs[0], [run])}."
        for kind, runs, run in zip(KINDS.values(), found.values(), cached, strict=True)
    ]
    untold = [] if all(recorded(file)[2] for file in FILES) else [TEXTS["compare"]["untold"]]
    st.markdown("  \n".join([*trust, *untold]))
    st.caption(TEXTS["compare"]["bars"])
    drawn = [recorded(file) for file in FILES]
    uncached = next(curve for curve in drawn[-1][1] if curve.mode == "uncached")
    last = flat_to(uncached.step_s)
    climbs = [TEXTS["compare"]["flat_to"].format(100 * (CLIMBED - 1), last)] if last else []
    st.markdown(" ".join([TEXTS["compare"]["recorded"], *climbs]))
    figures = [overlay(with_ends(curves, "step", "" if told else "≈ ")) for _, curves, told in drawn]
    on_one_scale(figures)
    places = st.columns(len(FILES), gap="large")
    for file, place, figure, (started, curves, _) in zip(FILES, places, figures, drawn, strict=True):
        claim = f"{KINDS[started['environment']['device']]}. {of_curves(curves)}"
        plot(figure.update_layout(height=340), place, claim=claim, key=f"c_{file}")
