"""The recordings that come with kvviz, beside one another: the compare page's picture until runs are picked."""

import gzip
import json
from functools import cache
from typing import Any

import streamlit as st

from kvviz.charts.claims import of_recording
from kvviz.charts.curves import Curve, curve_of, mark_gain, overlay, with_ends
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


def _told_of_the_gain(file: str) -> str:
    """The passes of a recording and the interval of the speed-up with the cache, as its record of figures has them."""
    runs: list[dict[str, Any]] = next((record["runs"] for record in _records(file) if record["t"] == "figures"), [])
    run = next((run for run in runs if run["mode"] == "cached" and run["speedup_interval"]), None)
    if run is None:
        return ""
    low, high = run["speedup_interval"]
    return f", {run['passes']['clean']} undisturbed passes, 95 % interval of the gain {low:.2f} to {high:.2f} times"


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


def recordings() -> None:
    """Draw the time so far of each token of each recording, under what it shows and where it was made."""
    for column, file in zip(st.columns(len(FILES), gap="large"), FILES, strict=True):
        started, curves, told = recorded(file)
        model, here, spec = started["model"], started["environment"], started["spec"]
        weights, about = ", random weights" if model["weights"] == "random" else "", "" if told else "≈ "
        column.header(of_recording(curves, KINDS[here["device"]], about), anchor=False)
        made = f"{model['title']}{weights}, {spec['new_tokens']} new tokens, recorded on {here['device_name']}"
        column.caption(made + _told_of_the_gain(file))
        figure = overlay(with_ends(curves, "total", about), view="total")
        mark_gain(figure, curves, about)
        plot(figure, column, key=f"c_{file}")
    untold = "" if all(recorded(file)[2] for file in FILES) else f" {TEXTS['compare']['untold']}"
    st.markdown(TEXTS["compare"]["recorded"] + untold)
