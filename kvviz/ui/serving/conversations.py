"""The serving page's sixth section: two conversations, and the tree of prefixes that they leave."""

from collections.abc import Sequence

import streamlit as st

from kvviz.caches.block_table import BLOCK
from kvviz.charts import claims
from kvviz.charts.prefix_tree import (
    STYLE,
    again_by_turn,
    cost,
    evicted_from,
    kept_blocks,
    key,
    prefix_tree,
    with_open_block,
)
from kvviz.experiments.serving.spec import PrefixesSpec
from kvviz.experiments.serving.words import turns_of
from kvviz.server.scheduler import Scheduler
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.serving.form import PERCENTS, expected, progress, whose
from kvviz.ui.shared.experiment import Document, measured, run_bar
from kvviz.ui.shared.fold import fold
from kvviz.ui.shared.form import Form
from kvviz.ui.shared.plain import errors_said, plain
from kvviz.ui.shared.tables import draw_table, localized


def section(scheduler: Scheduler, form: Form) -> None:
    """Draw the form, the run and what it shows."""
    st.markdown(TEXTS["serving"]["prefixes"])
    bar = run_bar("conversations")
    with bar:
        percent = st.select_slider("Memory, % of what all would take", PERCENTS, width=280, **form.value("percent"))
        room = st.container(width=230)

    def draw(found: Document) -> None:
        said = f"{found['blocks']:,} of {found['needed_blocks']:,} whole blocks"
        room.markdown(f"{found['spec']['percent']}%: {said}")
        _draw(found)

    with errors_said():
        spec = PrefixesSpec(form["model"], percent=percent)
        words = expected(scheduler, spec)
        measured(scheduler, spec, draw, place=bar, key="vp", words=words, progress=progress, press="Serve them")


def _draw(found: Document) -> None:
    rows = found["rows"]
    st.header(claims.of_evictions(rows), anchor="prefix-tree")
    st.markdown(TEXTS["serving"]["prefix_tree"])
    st.fragment(_moment)(found)

    def costs() -> None:
        st.html(STYLE + key())
        turns, most = turns_of(rows[0]["requests"]), _longest(rows)
        for place, row in zip(st.columns(2, gap="large"), rows, strict=True):
            place.markdown(f"**{row['title']}**")
            for (_, name), one in zip(turns, row["requests"], strict=True):
                place.html(f"{name}{cost(one, most)}")
        draw_table([_row(row) for row in rows], key="v_prefixes_table", columns=localized(*_COUNTS))
        st.markdown("\n".join(f"- {sentence}" for sentence in found["sentences"]))

    fold(f"What each of the {len(rows[0]['requests'])} requests costs, and all figures", "v_costs", costs)

    def asks() -> None:
        asked = zip(turns_of(rows[0]["requests"]), rows[0]["requests"], strict=True)
        st.markdown("\n".join(f"- **{name}** asks “{plain(one['ask'])}”" for (_, name), one in asked))
        st.markdown(TEXTS["serving"]["prefix_trees"].format(block=BLOCK))

    fold("What each request asks, and when the other order is right", "v_asks_told", asks)
    same = "the same tokens" if found["identical"] else "not the same tokens"
    room = f"{found['blocks']:,} of the {found['needed_blocks']:,} blocks that all would take"
    st.caption(f"{whose(found)}; the memory has {room}; {same} under both orders. {found['note']}")


def _longest(rows: Sequence[Document]) -> int:
    return max(one["prompt_tokens"] for row in rows for one in row["requests"])


def _moment(found: Document) -> None:
    """Draw the memory after one request under each order of eviction, and what the next request then costs."""
    rows = found["rows"]
    requests = rows[0]["requests"]
    turns = turns_of(requests)
    names = [name for _, name in turns]
    left, right = st.columns([2, 3], gap="large", vertical_alignment="center")
    again = [i for i, one in enumerate(requests) if one["recomputed_tokens"]]
    chosen = left.select_slider("The memory after", names, names[max(0, again[0] - 1) if again else -1], key="v_after")
    number = names.index(chosen)
    right.html(STYLE + key(*(_drawn(row, number, found["block"]) for row in rows)))
    after = names[number + 1] if number + 1 < len(names) else ""
    for place, row in zip(st.columns(2, gap="large"), rows, strict=True):
        tree = row["requests"][number]["tree"]
        gone = evicted_from(tree, turns)
        room = needed(row, number, chosen, found["blocks"], found["block"])
        place.markdown(f"**{row['title']}**")
        place.html(again_by_turn(row["requests"], turns))
        place.markdown(f"After {chosen}, the memory lacks {gone or 'nothing yet'}.")
        place.html(prefix_tree(_drawn(row, number, found["block"]), turns, found["block"]))
        if after:
            place.html(f"What <b>{after}</b> then costs, in tokens{cost(row['requests'][number + 1], _longest(rows))}")
        place.caption(room)


def _fed(one: Document) -> int:
    """Count the tokens that a request fed: its last one never was."""
    return int(one["prompt_tokens"]) + len(one["token_ids"]) - 1


def _drawn(row: Document, number: int, block: int) -> Sequence[Document]:
    """Return the memory after a request, with the block that it did not fill."""
    one = row["requests"][number]
    left = _fed(one) % block
    return with_open_block(one["tree"], number, left, block) if left else one["tree"]


def needed(row: Document, number: int, name: str, blocks: int, block: int) -> str:
    """Say how many blocks a request needed and how many were free, so how many had to go."""
    one = row["requests"][number]
    kept = kept_blocks(row["requests"][number - 1]["tree"]) if number else 0
    need = -(-_fed(one) // block) - one["hit_tokens"] // block
    gone = one["evicted_blocks"]
    went = f"**{gone} had to go**" if gone else "none had to go"
    said = f"{name[:1].upper()}{name[1:]} needed {need} new block{'s' * (need != 1)}"
    return f"{said}; {blocks - kept} of {blocks} were free: {went}."


_COUNTS = {
    "Cache hits": "hit_tokens",
    "Computed": "computed_tokens",
    "Of these again": "recomputed_tokens",
    "Blocks evicted": "evicted_blocks",
}


def _row(row: Document) -> dict[str, object]:
    return {"Goes first": row["title"].removesuffix(" first"), **{head: row[name] for head, name in _COUNTS.items()}}
