"""What the mistakes page shows of a mistake that was really made: the line at fault and what it does."""

import html
import re
from pathlib import Path

import streamlit as st

from kvviz.base.words import human, ordinal, ratio, small
from kvviz.charts.mistakes import SAME, by_forward, off_by
from kvviz.decoding.scratch.listing import SOURCE, listing
from kvviz.decoding.scratch.pitfalls import PITFALLS, Pitfall
from kvviz.models.sources import find_source, weights_in_words
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.experiment import Document
from kvviz.ui.shared.fold import fold
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.plots import drawn_once, plot
from kvviz.ui.shared.tables import draw_table, localized, shape_text


def show(about: Document, found: Document) -> None:
    """Draw what the mistake did, and the line to mend."""
    pitfall = PITFALLS[found["mistake"]]
    ends = found["t"] != "mistimed" and not found["wrong"]["crash"]
    st.markdown(pitfall.says)
    code, harm = st.columns(2, gap="large")
    with code:
        st.html(Path(__file__).with_suffix(".css"))
        st.html(_marked(pitfall.source, pitfall.wrong, "fault"))
        st.markdown("**The fix**")
        st.html(_marked(pitfall.mend, pitfall.mend, "mend"))
        if ends:
            _texts(found)
    with harm:
        if found["t"] == "mistimed":
            st.markdown(f"A user notices nothing in the text: the mistake lies in the measurement. {found['verdict']}")
            if found["wrong"]:
                plot(drawn_once(by_forward, "clock", found["right"], found["wrong"]), key="b_chart")
        elif ends:
            st.markdown(verdict(found))
            _harm(pitfall, found)
            if pitfall.shows == "logits":
                st.caption(TEXTS["mistakes"]["true_tokens"])
        else:
            _crash(found["wrong"]["crash"], len(found["wrong"]["fed"]))
    title = find_source(about["spec"]["model"], about["spec"]["weights"]).title
    st.caption(
        f"Run by this server: {title}, {weights_in_words(about['weights'])}, {about['dtype']}, on "
        f"{about['device']}. {TEXTS['mistakes']['decoder']} {about['note']}"
    )
    if found["t"] != "mistimed":
        _forwards(found)


def _marked(source: str, marked: str, kind: str) -> str:
    """Code as it runs, without the types of its functions, as HTML, one line of it marked as a `kind`."""
    mark = f' class="kv-{kind}" data-testid="kv-{kind}"'
    lines = (
        f"<span{mark if line.strip() == marked else ''}>{html.escape(_TYPES.sub('', line)) or ' '}</span>"
        for line in source.splitlines()
    )
    return f'<pre class="kv-source" data-testid="kv-source">{"".join(lines)}</pre>'


def _harm(pitfall: Pitfall, found: Document) -> None:
    """Draw what the mistake does at every forward, beside the right loop."""
    field = {"logits": "deltas", "memory": "alive", "work": "multiply_adds"}[pitfall.shows]
    right, wrong = found["right"][field], found["wrong"][field]
    most = max(wrong, default=0), max(right, default=0)
    if pitfall.shows == "logits":
        figure = drawn_once(off_by, right, wrong)
        off, rounding = (small(delta).replace(" ", "\u00a0") for delta in most)
        claim = (
            f"Largest difference from the logits of a loop without a cache: {off} with the mistake, "
            f"{rounding} in the right loop"
        )
    else:
        figure = drawn_once(by_forward, pitfall.shows, right, wrong)
        ends = f"With the mistake {human(most[0])} are alive at most, in the right loop {human(most[1])}"
        work = f"With the mistake the loop does {ratio(sum(wrong) / sum(right))} times the multiply-adds"
        claim = ends if pitfall.shows == "memory" else work
    plot(figure, claim=claim, key="b_chart")


def verdict(found: Document) -> str:
    """Say the first thing that a user would notice."""
    first, right, wrong = found["first_difference"], found["right"], found["wrong"]
    if first is not None:
        off = next(i for i, delta in enumerate(wrong["deltas"]) if delta > SAME or i == first)
        text = f"The text differs from the **{ordinal(first + 1)}** new token on"
        return f"{text}." if off == first else f"{text}, the logits already from the **{ordinal(off + 1)}**."
    unseen = "A user notices nothing in the text: every token is right"
    if _more_work(found):
        times = sum(wrong["multiply_adds"]) / sum(right["multiply_adds"])
        return f"{unseen}, for **{ratio(times)} times** the multiply-adds."
    if wrong["alive"][-1] > 2 * right["alive"][-1]:
        return (
            f"{unseen}. After {len(right['ids'])} tokens **{human(wrong['alive'][-1])}** are kept alive instead of "
            f"**{human(right['alive'][-1])}**."
        )
    return "A user notices nothing this time: every token happens to be right, but the logits are off."


def _more_work(found: Document) -> bool:
    return sum(found["wrong"]["multiply_adds"]) > 1.5 * sum(found["right"]["multiply_adds"])


def _texts(found: Document) -> None:
    """Draw both texts after the prompt; from the first token that differs on, the wrong one is marked."""
    prompt = html.escape("".join(found["prompt"]))
    parted = next((i for i, (a, b) in enumerate(zip(found["truth"], found["alone"], strict=False)) if a != b), None)
    cut = len(found["alone"]) if parted is None else parted
    kept, lost = ("".join(part) for part in (found["alone"][:cut], found["alone"][cut:]))
    mark = f'<mark style="background: rgba(213,94,0,.22); color: inherit">{html.escape(lost)}</mark>' if lost else ""
    texts = {"The right loop": html.escape("".join(found["truth"])), "With the mistake": html.escape(kept) + mark}
    for name, text in texts.items():
        st.html(f'<small style="opacity:.8">{name}</small><br><span style="font-weight:600">{prompt}</span>{text}')


def _crash(crash: Document, forwards: int) -> None:
    where = f"it comes in the {ordinal(crash['forward'] + 1)} forward pass; {forwards} went well before it"
    st.error(plain(f"{crash['type']}: {crash['message']}"), icon=":material/error:")
    st.markdown(f"A user notices this error, not a wrong text: {where}.")
    if crash["line"] is not None:
        stage = listing().stage(crash["stage"])
        lines = SOURCE.read_text(encoding="utf-8").splitlines()[stage.first - 1 : stage.last]
        st.markdown("The line of attention in which it comes:")
        st.code("\n".join(line.strip() for line in lines), language="python")


def _forwards(found: Document) -> None:
    """Draw what was fed and what the cache held, forward by forward; a loop that ends early leaves cells empty."""
    columns = {
        f"{title}, {loop}": [shape_text(each) if name == "shapes" else each for each in found[loop][name]]
        for name, title in _COLUMNS.items()
        for loop in ("right", "wrong")
    }
    count = max(map(len, columns.values()))
    rows = [
        {"forward pass": i + 1, **{title: values[i] if i < len(values) else None for title, values in columns.items()}}
        for i in range(count)
    ]
    counts = localized(*(title for title in columns if title.startswith(("multiply-adds", "bytes"))))
    title = "Each forward pass: what is fed, what the cache holds"
    fold(title, "b_each_forward", lambda: draw_table(rows, columns=counts, key="b_forwards"))


_TYPES = re.compile(r"(?<=\w): [\w.]+(?=[,)].*:$)| -> .*(?=:$)")  # in the line that begins a function
_COLUMNS = {"fed": "fed", "shapes": "keys of layer 0", "multiply_adds": "multiply-adds", "alive": "bytes alive"}
