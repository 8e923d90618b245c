"""The recordings that come with kvviz, beside one another: the compare page's picture until runs are picked."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import streamlit as st

from kvviz.base.words import aligned_millis, brief, ratio
from kvviz.charts import palette
from kvviz.charts.claims import of_trust
from kvviz.charts.curves import (
    CLIMBED,
    Curve,
    at_the_end,
    at_the_start,
    curve_of,
    flat_to,
    mark_apart,
    mark_flat,
    on_one_scale,
    widest,
)
from kvviz.charts.passes import Timed, passes_figure
from kvviz.decoding.modes import title_of
from kvviz.experiments.comparison.figures import figures
from kvviz.experiments.questions import WAITS
from kvviz.store.files.schema import by_mode
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.experiment import live_recording, say_recorded
from kvviz.ui.shared.plots import all_drawn_once, drawn_once, plot

PLACES = {"cpu": "a CPU", "cuda": "a GPU"}
FILES = ("recording", "h100-gpt2")
ALIKE = 1.1  # times: first tokens whose times differ by less are alike
EARLY = 5  # a line climbs at once if it does so in the first fifth of its tokens, of which half are the measure
MADE = {"mqTLiTxK": "2026-11-23"}  # by its comparison's id, the day of a recording whose file has none


@cache
def recorded(file: str) -> tuple[dict[str, Any], list[Curve], bool]:
    """The record that a recording begins with, a curve for each mode (its passes' medians), and whether their
    disturbance is on record.
    """
    records = live_recording(file)["records"]
    started, curves, modes = records[0], [], by_mode(records)
    for mode, found in modes.items():
        run = {**figures(found.kept), "mode": mode}
        passes = tuple(map(tuple, found.kept))
        title = "KV cache, compiled" if mode == "compiled" else title_of(mode)
        curves.append(curve_of(run, started["prompt"]["tokens"], title, passes))
    return started, curves, all(found.clean for found in modes.values())


def _timed(file: str) -> tuple[str, list[Timed]]:
    """What a recording is of and where it was made, and its runs with their passes, in seconds of a new token."""
    started, curves, told = recorded(file)
    model, here, tokens = started["model"], started["environment"], started["spec"]["new_tokens"]
    weights = ", random weights" if model["weights"] == "random" else ""
    figured = [run for record in live_recording(file)["records"] if record["t"] == "figures" for run in record["runs"]]
    intervals = {run["mode"]: run.get("speedup_interval") for run in figured}
    whole = _whole(curves)
    runs = [
        Timed(
            name=curve.name,
            colour=palette.LIGHT[curve.mode],
            typical=whole[curve.mode] / tokens,
            passes=tuple(sum(seconds) / tokens for seconds in curve.repeats),
            ratio=whole["uncached"] / whole[curve.mode] if curve.mode != "uncached" else None,
            interval=intervals.get(curve.mode),
            about="" if told else "≈ ",
        )
        for curve in curves
    ]
    return f"{here['device_name']}\n{model['title']}{weights}, {tokens} new tokens", runs


def recordings() -> None:
    """Draw each recording: what it shows, its curves, all on one scale of time, and its passes, folded up."""
    said = TEXTS["compare"]
    say_recorded(said["apart"], "compare")
    frame = st.container(key="compare_recordings")
    with frame:
        places = st.columns(len(FILES), gap="large")
        with st.expander(said["noise"]):
            passes = st.columns(len(FILES), gap="large")
            st.caption(said["bars"])
    found = [recorded(file) for file in FILES]
    groups = tuple((curves, told, PLACES[started["environment"]["device"]]) for started, curves, told in found)
    pictures = all_drawn_once(_pictures, groups)
    for file, (started, curves, told), figure, place, noise in zip(FILES, found, pictures, places, passes, strict=True):
        heading, runs = _timed(file)
        cached = next(run for run in runs if run.colour == palette.LIGHT["cached"])
        compiled = next((run for run in runs if "compiled" in run.name), None)
        device, without = started["environment"]["device"], _without(curves)
        claim = said["recorded_claim"].format(
            model=started["model"]["title"], place=PLACES[device], shape=_shape(without)
        )
        made = live_recording(file).get("made") or MADE.get(started["id"], "")
        made = made.replace("-", "\u2011")  # a date is not broken
        told_of = "; ".join(_interval(run, run.interval) for run in runs if run.interval)
        gained = f" {said['gained'].format(gain=told_of)}." if told_of else ""
        with place:
            st.header(claim, anchor=False)
            prompt, dtype = started["prompt"]["tokens"], started["environment"]["dtype"]
            work = f" after a prompt of {prompt}, {dtype}, {len(runs[0].passes)} passes"
            st.caption(f"{heading.replace(chr(10), ': ')}{work}{f', recorded on {made}' if made else ''}.")
            plot(figure, key=f"c_{file}")
            if device == "cpu":
                st.markdown(_on_a_cpu(curves) + _unmeasured(curves))
                st.markdown(said["area"])
            else:
                st.markdown(_on_a_gpu(without) + _unmeasured(curves, climbs=bool(flat_to(without.step_s))))
            if compiled:
                st.markdown(said["compiled"].format(*_at_the_end(curves)))
        unknown = [*_climbs(without), *([said["alone"]] if compiled else [])]
        if device != "cpu" and unknown:
            with frame.expander(said["unknown"].format(model=started["model"]["title"])):
                st.markdown("\n".join(f"- {each}" for each in unknown))
        with noise:
            rough = "" if told else f"  \n{said['untold']}"
            st.markdown(f"{of_trust(runs[0], [cached])}. {_whole_words(curves)}{gained}{rough}")
            plot(drawn_once(passes_figure, {heading: runs}, said["per_token"]), key=f"c_recorded_{file}")


def _pictures(groups: Sequence[tuple[Sequence[Curve], bool, str]]) -> Sequence[object]:
    """Draw the curves of each recording, all on one scale; with each comes whether its disturbance is on record, and
    on what it was measured.
    """
    figures = on_one_scale([(curves, "" if told else "≈ ", f"on {place}") for curves, told, place in groups])
    for figure, (curves, *_) in zip(figures, groups, strict=True):
        if last := _flat_until(_without(curves)):
            mark_flat(figure, last)
        if at := widest(_without(curves)):
            mark_apart(figure, at)
    return figures


def _without(curves: Sequence[Curve]) -> Curve:
    return next(each for each in curves if each.mode == "uncached")


def _shape(curve: Curve) -> str:
    """Say from where on the line without the cache climbs, as a title does."""
    said = TEXTS["compare"]
    if flat_to(curve.step_s) is None:
        return said["hardly"]
    last = _flat_until(curve)
    return said["climbs_at_once"] if last is None else said["flat_until"].format(last)


def _flat_until(curve: Curve) -> int | None:
    """The last token to which a line is flat; None if it climbs at once or hardly at all."""
    last = flat_to(curve.step_s)
    return None if last is None or last <= len(curve.step_s) / EARLY else last


def _whole(curves: Sequence[Curve]) -> dict[str, float]:
    """The seconds of a whole pass, by mode."""
    return {curve.mode: curve.total_s for curve in curves}


def _whole_words(curves: Sequence[Curve]) -> str:
    """Say how long whole passes take."""
    took = ", ".join(f"{brief(curve.total_s)} ({curve.name})" for curve in curves)
    return TEXTS["compare"]["passes"].format(took)


def _gain(run: Timed) -> str:
    """How many times as fast as the one without the cache a run is."""
    return f"{run.about}{run.ratio:.2g}"


def _interval(run: Timed, interval: tuple[float, float]) -> str:
    """A run's speed-up as the page says it, and its interval."""
    gain = f"{_gain(run)}{', cached and compiled' if 'compiled' in run.name else ''}"
    return TEXTS["compare"]["interval"].format(gain=gain, low=interval[0], high=interval[1])


def _at_the_end(curves: Sequence[Curve]) -> tuple[str, str]:
    """The last tenth's median step with the cache, compiled and not."""
    steps = {curve.mode: aligned_millis(at_the_end(curve.step_s), 2) for curve in curves}
    return steps["compiled"], steps["cached"]


def _unmeasured(curves: Sequence[Curve], *, climbs: bool = False) -> str:
    """Say of what is seen in the picture that no cause was measured: that it `climbs`, first tokens that differ."""
    said, firsts = TEXTS["compare"], [curve.step_s[0] for curve in curves]
    causes = [said["then"]] if climbs else []
    if max(firsts) > ALIKE * min(firsts):
        *others, last = (aligned_millis(seconds, 2).removesuffix(" ms") for seconds in firsts)
        causes.append(said["firsts"].format(f"{', '.join(others)} and {last}"))
    return said["unmeasured"].format(", and ".join(causes)) if causes else ""


def _on_a_cpu(curves: Sequence[Curve]) -> str:
    """Say how far the lines climb without the cache and with it, and why."""
    rises = {curve.mode: ratio(at_the_end(curve.step_s) / at_the_start(curve.step_s)) for curve in curves}
    return TEXTS["compare"]["recorded_cpu"].format(without=rises["uncached"], within=rises["cached"])


def _on_a_gpu(curve: Curve) -> str:
    """Say until which token the line without the cache is flat, and why."""
    said, last = TEXTS["compare"], flat_to(curve.step_s)
    flat = said["flat_to"].format(100 * (CLIMBED - 1), last) if last else said["flat"]
    return said["recorded_cuda"].format(flat=flat, waits=WAITS)


def _climbs(curve: Curve) -> list[str]:
    """What was not measured of how the line without the cache climbs; nothing if it hardly does."""
    said, step_s = TEXTS["compare"], curve.step_s
    if not flat_to(step_s):
        return []
    rises, apart = 100 * (at_the_end(step_s) / at_the_start(step_s) - 1), widest(curve)
    return [said["climbs"].format(rises), *([said["differs"].format(apart)] if apart else [])]
