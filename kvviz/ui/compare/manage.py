"""Naming, tagging and deleting a kept comparison."""

from collections.abc import Mapping, Sequence
from functools import partial

import streamlit as st

from kvviz.server.persister import library
from kvviz.store.db.stored import Run, Stored
from kvviz.ui.shared.fold import fold
from kvviz.ui.shared.form import Form
from kvviz.ui.shared.plain import errors_said, plain
from kvviz.ui.shared.session import may_change


def undo(form: Form) -> None:
    """Offer to take back a comparison that was just deleted."""
    deleted = st.session_state.get("c_deleted")
    if deleted:
        words, button = st.columns([5, 1], vertical_alignment="center")
        words.info(f"{plain(deleted['title'])} was deleted.")
        if button.button("Undo", key="c_undo") and may_change(library().get(deleted["id"])):
            st.session_state.c_deleted = None
            with errors_said():
                library().restore(deleted["id"])
                form["runs"] = deleted["runs"]
                st.rerun()


def manage(form: Form, runs: Sequence[Run]) -> None:
    """Rename, tag, delete."""
    stored = {run.comparison.id: run.comparison for run in runs if may_change(run.comparison)}
    if not stored:
        if runs:
            st.caption("These runs are other browsers', which alone may name or delete them.")
        return
    fold("Name, tag, delete", "c_manage", partial(_choose, form, stored))


def _choose(form: Form, stored: Mapping[str, Stored]) -> None:
    titles = {name: title_of(comparison) for name, comparison in stored.items()}
    chosen = st.selectbox("Comparison", list(titles), format_func=titles.__getitem__, key="c_which")
    _edit(form, stored[chosen])


def title_of(stored: Stored) -> str:
    """What a list calls a kept comparison: its title, else its model and when it was measured."""
    return stored.title or f"{stored.model}, {stored.created:%Y-%m-%d %H:%M}"


def _edit(form: Form, stored: Stored) -> None:
    one, two, three, four = st.columns([3, 3, 1, 1], vertical_alignment="bottom")
    title = one.text_input("Title", stored.title, key=f"c_title_{stored.id}", max_chars=200)
    tags = two.text_input("Tags, separated by commas", ", ".join(stored.tags), key=f"c_tags_{stored.id}", max_chars=200)
    if three.button("Save", key="c_save") and may_change(stored):
        library().rename(stored.id, title)
        library().tag(stored.id, [tag.strip() for tag in tags.split(",") if tag.strip()])
        st.rerun()
    if four.button("Delete", key="c_delete") and may_change(stored):
        library().delete(stored.id)
        st.session_state.c_deleted = {"id": stored.id, "title": title_of(stored), "runs": form["runs"]}
        form["runs"] = [name for name in form["runs"] if not name.startswith(f"{stored.id}-")]
        st.rerun()
