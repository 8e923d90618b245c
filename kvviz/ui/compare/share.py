"""Sharing or saving a comparison as a file, and opening one: the compare page's last part."""

from collections.abc import Sequence
from functools import partial

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.server.jobs import mark_of
from kvviz.server.persister import library
from kvviz.store.db.stored import Run
from kvviz.store.files import exchange
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.form import Form, uploaded
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.session import owner


def share(form: Form, runs: Sequence[Run]) -> None:
    """Offer the comparisons on the page as files, and a place to open others'."""
    left, right = st.columns(2, gap="large")
    with left, st.expander("Share or save"):
        _save(runs)
    with right, st.expander("Open a file"):
        _open(form)


FORMATS = {
    "HTML, opens from disk without a network": ("html", "text/html"),
    "JSON, opens here again": ("json", "application/json"),
    "CSV, a row per step": ("csv", "text/csv"),
    "Parquet": ("parquet", "application/vnd.apache.parquet"),
}


def _save(runs: Sequence[Run]) -> None:
    ids = list(dict.fromkeys(run.comparison.id for run in runs))
    if not ids:
        st.caption("Pick runs first; each belongs to a comparison, which is what a file holds.")
        return
    titles = {run.comparison.id: run.comparison.title or run.comparison.model for run in runs}
    chosen = st.selectbox("Comparison", ids, format_func=lambda name: f"{titles[name]} ({name})", key="c_share")
    for label, (suffix, mime) in FORMATS.items():
        write, name = partial(written, chosen, suffix), f"kvviz-{chosen}.{suffix}"
        # a rerun would take the file away before the browser has it
        st.download_button(label, write, name, mime, key=f"c_{suffix}", on_click="ignore")


def written(comparison_id: str, form: str) -> str | bytes:
    """A kept comparison as a file's content."""
    return exchange.written(exchange.kept(library(), comparison_id), form)


def _open(form: Form) -> None:
    """Take a file of kvviz, from this machine or another: checked strictly, then kept like a run of one's own."""
    st.markdown(TEXTS["compare"]["take_in"])
    file = st.file_uploader("A comparison", type="json", key="c_file", label_visibility="collapsed")
    if file is None or st.session_state.get("c_taken") == file.file_id:
        return
    try:
        form["runs"] = take(uploaded(file), file.name, owner())
        st.session_state.c_taken = file.file_id
        st.rerun()
    except KvvizError as error:
        st.error(plain(error))


def take(content: bytes, title: str, owner: str = "") -> list[str]:
    """Keep an imported comparison as `owner`'s; returns the ids of its runs. Raises KvvizError for what holds none."""
    work_id = exchange.take_in(library(), content, title=title.removesuffix(".json"), made_by=mark_of(owner))
    document = library().document(work_id)
    if document is None:
        raise KvvizError(
            f"this recording has no timed runs to lay over others; it is kept, and /live?comparison={work_id} shows it"
        )
    return [run["id"] for run in document["runs"]]
