"""Sharing or saving a comparison as a file, and opening files: the compare page's last part."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePath

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.server.jobs import mark_of
from kvviz.server.persister import library
from kvviz.store.db.stored import Run
from kvviz.store.files import exchange
from kvviz.ui.compare.form import MOST_RUNS
from kvviz.ui.folders import PAGES
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.fold import fold
from kvviz.ui.shared.form import Form, uploaded
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.session import owner


@dataclass(frozen=True)
class Taken:
    """What became of a file: the runs that it holds, or the page that shows it, or why it was refused."""

    runs: Sequence[str] = ()
    page: str = ""
    link: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


def share(form: Form, runs: Sequence[Run]) -> None:
    """Offer the comparisons on the page as files, and a place to open others'."""
    if runs:
        fold("Share or save", "c_save_as", partial(_save, runs))
    fold("Open a file", "c_open", partial(_open, form))


FORMATS = {
    "HTML, opens from disk without a network": ("html", "text/html"),
    "JSON, opens here again": ("json", "application/json"),
    "CSV, a row per step": ("csv", "text/csv"),
    "Parquet": ("parquet", "application/vnd.apache.parquet"),
}


def _save(runs: Sequence[Run]) -> None:
    ids = list(dict.fromkeys(run.comparison.id for run in runs))
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
    """Take in files of kvviz, from this machine or another: each is checked strictly, then kept like one's own."""
    st.markdown(TEXTS["compare"]["take_in"])
    files = st.file_uploader(
        "Files", type=["json", "jsonl"], accept_multiple_files=True, key="c_file", label_visibility="collapsed"
    )
    seen, fresh = st.session_state.setdefault("c_taken", {}), list[str]()
    for file in files:
        if file.file_id not in seen:
            try:
                seen[file.file_id] = taken = take(uploaded(file), file.name, owner())
                fresh += taken.runs
            except KvvizError as error:
                seen[file.file_id] = Taken(problem=f"{file.name}: {error}")
    if fresh:
        form["runs"] = fresh[:MOST_RUNS]
        st.rerun()
    for file in files:
        _say(file.name, seen[file.file_id])


def _say(name: str, taken: Taken) -> None:
    """Say what became of a file that has no runs to lay over others."""
    if taken.problem:
        st.error(plain(taken.problem))
    elif not taken.runs:
        st.page_link(PAGES / f"{taken.page}.py", label=f"{plain(name)} is kept: look at it", query_params=taken.link)


def take(content: bytes, title: str, owner: str = "") -> Taken:
    """Keep an imported file as `owner`'s. Raises KvvizError."""
    work_id = exchange.take_in(library(), content, title=PurePath(title).stem, made_by=mark_of(owner))
    document = library().document(work_id) or {}
    if "runs" in document:
        return Taken([run["id"] for run in document["runs"]])
    page, name = ("sweep", "sweep") if "rows" in document else ("live", "comparison")
    return Taken(page=page, link={name: work_id})
