"""The caches page's section on recall: names that a text states early, asked for at its end."""

import streamlit as st

from kvviz.charts.recall import recall_figure
from kvviz.experiments.kind import Record
from kvviz.experiments.recall.spec import FORGETFUL, RecallSpec
from kvviz.experiments.recall.words import claim, seen_before, sentences
from kvviz.server.scheduler import Scheduler
from kvviz.ui.caches.form import offered_designs
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.experiment import Document, measured, run_bar
from kvviz.ui.shared.form import Form
from kvviz.ui.shared.model_choice import accepted, choose_size
from kvviz.ui.shared.plain import errors_said, plain
from kvviz.ui.shared.plots import plot
from kvviz.ui.shared.tables import draw_table

TOKENS = (250, 500, RecallSpec.tokens)
SEEDS = (1, 2, RecallSpec.seeds)


def section(scheduler: Scheduler, form: Form) -> None:
    """Draw the form, the measurement or what is kept of one, and what it shows."""
    st.divider()
    shown, bar = st.container(), run_bar()
    with bar:
        most = scheduler.limits.prompt_tokens
        tokens = choose_size(st.container(width=130), "Tokens of a text", form, "text", TOKENS, most=most)
        most = scheduler.limits.repeats
        seeds = choose_size(st.container(width=130), "Seeds", form, "seeds", SEEDS, most=most)
    with errors_said():
        offered = offered_designs(scheduler)
        spec = RecallSpec(designs=tuple(name for name in FORGETFUL if name in offered), tokens=tokens, seeds=seeds)
        accepted(scheduler, spec.work())
        asked = spec.seeds * spec.texts * spec.facts
        words = f"{asked} names in {spec.seeds * spec.texts} texts, each asked of every design at each budget."
        documents: list[Document] = []
        measured(scheduler, spec, documents.append, place=bar, key="kq", words=words, progress=_progress, press="Ask")
        with shown:
            st.header(claim(documents[0]) if documents else "What a lossy cache has forgotten", anchor="recall")
            st.markdown(TEXTS["caches"]["recall"])
        for found in documents:
            _draw(found)


def _progress(last: Record) -> tuple[float, str]:
    """How far the measurement is: a share, and how many caches have been asked."""
    if last.get("t") != "part":
        return 0.0, "Loading the model …"
    return last["done"] / last["of"], f"{last['done']} of {last['of']} caches have been asked"


def _draw(found: Document) -> None:
    left, right = st.columns([3, 2], gap="large")
    plot(recall_figure(found), left, key="kq_recall")
    left.caption(TEXTS["caches"]["recall_chart"])
    if pairs := seen_before(found):
        with left:
            st.markdown(TEXTS["caches"]["asked_before"].format(percent=pairs[0][0]["percent"]))
            draw_table([_both_ways(*pair) for pair in pairs], key="kq_before")
    with right:
        st.fragment(_answers)(found)
    with st.expander("What was found, in sentences"):
        st.markdown("\n".join(f"- {sentence}" for sentence in sentences(found)))
    with st.expander("The text that was read"):
        st.markdown(_with_facts(found))
    env, asked = found["environment"], len(found["questions"])
    st.caption(
        f"{found['title']}, {found['weights']} weights, {env['dtype']}; {asked} names, texts of about "
        f"{found['tokens']:,.0f} tokens; on {plain(env['device_name'])}, torch {env['torch']}, transformers "
        f"{env['transformers']}. {plain(found['note'])}"
    )


def _both_ways(after: Record, before: Record, apart: bool) -> dict[str, object]:
    return {
        "Design": after["title"],
        "Asked after": f"{after['recalled']} of {after['asked']}",
        "Asked before": f"{before['recalled']} of {before['asked']}",
        "The question": ("helps" if before["recalled"] > after["recalled"] else "harms") if apart else "not told apart",
    }


def _of_the_text(found: Document) -> list[Record]:
    """The questions about the text that is shown, which is the first."""
    return found["questions"][: found["spec"]["facts"]]


def _with_facts(found: Document) -> str:
    """The text as Markdown, its facts in bold."""
    told = plain(found["text"], 20_000)
    for question in _of_the_text(found):
        statement = plain(question["statement"].strip())
        told = told.replace(statement, f"**{statement}**")
    return told


def _answers(found: Document) -> None:
    """Draw one question, which the reader chooses, and what each design answered at each budget."""
    questions = _of_the_text(found)
    wrong = [sum(not row["right"][i] for row in found["rows"]) for i in range(len(questions))]
    telling = min(range(len(questions)), key=lambda i: abs(wrong[i] - len(found["rows"]) / 2))
    i = st.selectbox(
        "A question",
        range(len(questions)),
        index=telling,
        format_func=lambda i: (
            f"{questions[i]['question'].strip()} … (stated {questions[i]['distance']:,} tokens before)"
        ),
        key="kq_question",
    )
    st.markdown(f"The text said: *{plain(questions[i]['statement'].strip())}* What each cache made of the question:")
    budgets = sorted({row["percent"] for row in found["rows"]} - {None})
    table: dict[str, dict[str, str]] = {}
    for row in found["rows"]:
        line = table.setdefault(
            row["title"], {"Design": row["title"], **dict.fromkeys(map(_column, (*budgets, None)), "")}
        )
        line[_column(row["percent"])] = f"{row['said'][i]} {'✓' if row['right'][i] else '✗'}"
    draw_table(list(table.values()), key="kq_answers")


def _column(percent: int | None) -> str:
    return "All tokens" if percent is None else f"{percent} %"
