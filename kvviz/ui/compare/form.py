"""The compare page's form: runs found among what is kept, and picked."""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.decoding.modes import title_of
from kvviz.server.persister import library
from kvviz.server.scheduler import scheduler
from kvviz.store.compare_runs import like_runs
from kvviz.store.db.stored import Run, Stored
from kvviz.ui.shared.fold import fold
from kvviz.ui.shared.form import Field, Form
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.tables import draw_table

MOST_RUNS = 6  # over one another; more can't be told apart
PAGE = 50  # comparisons in a list


def compare_form() -> Form:
    """The page's one field: the ids of the runs that are laid over one another."""
    return Form("compare", "c_", runs=Field([], _read_ids))


def _read_ids(text: str) -> list[str]:
    return [run_id for run_id in text.split(",") if run_id][:MOST_RUNS]


def picked(form: Form) -> list[Run]:
    """Read the runs that are picked; the link in the address bar follows."""
    found = {run_id: _read(run_id) for run_id in form["runs"]}
    runs = [run for run in found.values() if run is not None]
    missing = [run_id for run_id, run in found.items() if run is None]
    unfinished = [run_id for run_id in missing if _is_active(run_id)]
    if unfinished:
        st.info(
            f"{len(unfinished)} of the runs in this link are not finished yet. The live page shows their progress; "
            "load this page again when they are done."
        )
    if gone := len(missing) - len(unfinished):
        st.warning(f"{gone} of the runs in this link are not kept here; they may have been deleted.")
    linked = [run_id for run_id, run in found.items() if run is not None or run_id in unfinished]
    form.address.write({"runs": ",".join(linked)} if linked else {})
    return runs


def _is_active(run_id: str) -> bool:
    """Whether the comparison of this run waits or is being measured."""
    return any(run_id.startswith(f"{job.id}-") for job in scheduler().jobs() if job.active)


def _read(run_id: str) -> Run | None:
    try:
        run = library().run(run_id)
        if run is None:  # it may have ended a moment ago
            scheduler().keep_now()
            run = library().run(run_id)
    except KvvizError as error:
        st.error(plain(error))
        return None
    return run if run is not None and not run.comparison.deleted else None


def search(form: Form) -> None:
    """Draw a search through what is kept; ticked rows are laid over one another."""

    def found_and_picked() -> None:
        text = st.text_input("Search titles, prompts, models and tags", key="c_search", width=480)
        pages = max(1, -(-library().count(text) // PAGE))
        number = min(st.session_state.get(f"c_page_{pages}", 1), pages)
        found = library().find(text, limit=PAGE, offset=(number - 1) * PAGE)
        if found:
            _pick(form, found, pages, key=f"c_table_{text}_{number}")
        else:
            st.caption("Nothing is kept yet: run a comparison on the live page." if not text else "Nothing fits.")

    picked = len(form["runs"])
    fold(f"Pick runs ({picked} picked)" if picked else "Pick runs to compare", "c_pick", found_and_picked)


def _pick(form: Form, found: Sequence[Stored], pages: int, key: str) -> None:
    """Draw a table with a row for each run, and the buttons for those that are ticked."""
    table = [(stored, mode) for stored in found for mode in stored.modes if stored.headline]
    slower = like_runs([(stored, mode, _headline(stored, mode).get("itl_s")) for stored, mode in table])
    rows = [_list_row(stored, mode, times) for (stored, mode), times in zip(table, slower, strict=True)]
    event = draw_table(
        rows, height=min(320, 37 + 35 * len(rows)), on_select="rerun", selection_mode="multi-row", key=key
    )
    ticked = [f"{table[i][0].id}-{table[i][1]}" for i in event["selection"]["rows"] if i < len(table)]
    fresh = [run_id for run_id in ticked if run_id not in form["runs"]]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        if st.button("Compare these", disabled=not fresh, type="primary", key="c_add"):
            form["runs"] = [*form["runs"], *fresh][:MOST_RUNS]
            st.rerun()
        if st.button("Clear", disabled=not form["runs"], key="c_clear"):
            form["runs"] = []
            st.rerun()
        if pages > 1:
            st.number_input(f"Page of {pages}", 1, pages, key=f"c_page_{pages}", width=140)


def _headline(stored: Stored, mode: str) -> dict[str, Any]:
    return next((row for row in stored.headline if row.get("mode") == mode), {})


def _list_row(stored: Stored, mode: str, times: float | None) -> dict[str, object]:
    """Return a run's row. `times`: its ITL over that of an undisturbed run of the same work."""
    figures = _headline(stored, mode)
    return {
        "when": f"{stored.created:%Y-%m-%d %H:%M}",
        "title": stored.title or stored.prompt[:60] or f"{stored.prompt_tokens} random tokens",
        "model": stored.model,
        "mode": title_of(mode),
        "prompt": stored.prompt_tokens,
        "new": stored.new_tokens,
        "ITL, ms": round(figures["itl_s"] * 1000, 3) if figures.get("itl_s") else None,
        "total, s": round(figures["total_s"], 3) if figures.get("total_s") else None,
        "speed-up": round(figures["speedup"], 2) if figures.get("speedup") else None,
        "disturbed": f"{times:.1f}× a like run" if times else "",
        "device": stored.device_name,
        "dtype": stored.dtype,
        "tags": ", ".join(stored.tags),
        "from": {"here": "this device", "run": "command line", "import": "a file"}.get(stored.origin, stored.origin),
    }
