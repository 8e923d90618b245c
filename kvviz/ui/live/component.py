"""The live component: a socket to the feed and everything that moves on the page, in the browser."""

import gzip
from collections.abc import Mapping

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.charts import palette
from kvviz.decoding.modes import MODES
from kvviz.experiments.kind import Record
from kvviz.server.scheduler import Scheduler
from kvviz.store.files import reading
from kvviz.ui.folders import ASSETS, ASSETS_URL
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.component import component
from kvviz.ui.shared.form import Address, uploaded
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.session import owner

GUESSED = ("uncached", "cached")  # the curves that a viewer draws beforehand, in this order

_component = component("kvviz_live", "live/live.js", "kv-live")


def known_over(scheduler: Scheduler, comparison: str | None) -> str | None:
    """The id of the comparison that `live_view` will draw, if it is over: asked before the page's first button."""
    job = scheduler.shown(comparison)
    return job.id if job is not None and not job.active else None


def live_view(
    comparison: str | None,
    *,
    over: str | None,
    takes: str,
    new_tokens: int | None,
    everyone: Record,
    predicts: bool = False,
    order: Record | None = None,
) -> str | None:
    """Draw the comparison with this id as it happens; None follows whatever the device measures.

    The page is drawn again when it ends, unless this drawing knew that (`over`, see `known_over`). `takes` says how
    long the form's run would take. `new_tokens` is how many it asks for: the width of the chart on which a viewer
    draws what to expect, at once if the page `predicts`. `everyone` is what a class may be asked for. With an `order`
    (`kvviz.ui.live.browser`) the browser measures that instead; returns what it sends at the end, JSON.
    """
    guess = {"new_tokens": new_tokens, "modes": [[name, MODES[name].title] for name in GUESSED]}
    about = {
        "comparison": comparison,
        "over": over,
        "takes": takes,
        "guess": guess,
        "predicts": predicts,
        "browser": order,
        "everyone": everyone,
    }
    return _mount("live", about)


def recorded_view() -> None:
    """Draw the kept recording, replaying, whatever the device measures."""
    _mount("recorded", {"kept": True, "opening": True, "takes": ""})


def _mount(key: str, data: Mapping[str, object]) -> str | None:
    dark = {name: palette.ON_DARK[colour] for name, colour in palette.MEANINGS.items()}
    look = {
        "colours": {"light": palette.LIGHT, "dark": palette.DARK},
        "meanings": {"light": palette.MEANINGS, "dark": dark},
        "dash": palette.DASH,
        "marker": palette.MARKER,
    }
    lying = {"assets": ASSETS_URL, "recording": f"{ASSETS_URL}/live/recording.json.gz"}
    told = _component(key=key, data={**lying, **look, **data}, on_ended_change=_hear, on_measured_change=_hear)
    return getattr(told, "measured", None)


def _hear() -> None:
    """Do nothing: the script that runs next reads what was told."""


def open_recording(scheduler: Scheduler, address: Address) -> None:
    """Offer to open a recording: that of a GPU, a comparison saved elsewhere, or a run that `kvviz.watch` saw."""
    if st.button("Open a GPU's recording", help=TEXTS["live"]["recorded_gpu"]):
        opened = reading.read(gzip.decompress((ASSETS / "live" / "h100-gpt2.json.gz").read_bytes()))
        address.write({"comparison": scheduler.adopt(opened, owner())})
        st.rerun()
    explained = "`compare(…).save()` and `trace.save()` write one; it is shown here like a run of this device."
    file = st.file_uploader("Open a recording", type="json", key="recording", help=explained)
    if file is None:
        return
    if st.session_state.get("opened") != file.file_id:
        st.session_state.opened, st.session_state.unreadable = file.file_id, ""
        try:
            address.write({"comparison": scheduler.adopt(reading.read(uploaded(file)), owner())})
            st.rerun()
        except KvvizError as error:
            st.session_state.unreadable = str(error)  # it stays for as long as the file does
    if st.session_state.unreadable:
        st.error(plain(st.session_state.unreadable))
