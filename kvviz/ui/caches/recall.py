"""The caches page's tab on recall: names and numbers that a text states early, asked for at its end."""

from collections.abc import Sequence

import streamlit as st

from kvviz.caches.designs import RESIDUAL
from kvviz.charts.recall import KEY, bars_figure, recall_figure
from kvviz.experiments.kind import Record
from kvviz.experiments.recall.spec import FORGETFUL, TEXTS_BEFORE, RecallSpec
from kvviz.experiments.recall.words import (
    MORE,
    QUARTER,
    before_claim,
    budgets_of,
    claim,
    comparable,
    how_sure,
    lettered,
    of_interval,
    of_rotation,
    rows,
    seen_before,
    sentences,
    steadiness,
)
from kvviz.models.sources import weights_in_words
from kvviz.server.scheduler import Scheduler
from kvviz.ui.caches.designs_said import as_named_here, each_design, say_codes
from kvviz.ui.caches.form import offered_designs
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.experiment import Document, measured, run_bar
from kvviz.ui.shared.fold import fold
from kvviz.ui.shared.form import Field, Form
from kvviz.ui.shared.model_choice import accepted, choose_size
from kvviz.ui.shared.plain import errors_said, plain
from kvviz.ui.shared.plots import colour_key, drawn_once, plot, shades
from kvviz.ui.shared.tables import draw_table

TOKENS = (250, 500, RecallSpec.tokens)
SEEDS = (1, 2, RecallSpec.seeds)


def section(scheduler: Scheduler, form: Form) -> None:
    """Draw the form, and the measurement or what is kept of one."""
    bar = run_bar("recall")
    with bar:
        most = scheduler.limits.prompt_tokens
        tokens = choose_size(st.container(width=130), "Tokens of a text", form, "text", TOKENS, most=most)
        most = scheduler.limits.repeats
        seeds = choose_size(st.container(width=130), "Sets of texts", form, "seeds", SEEDS, most=most)
    with errors_said():
        offered = offered_designs(scheduler)
        spec = RecallSpec(designs=tuple(name for name in FORGETFUL if name in offered), tokens=tokens, seeds=seeds)
        accepted(scheduler, spec.work())
        asked = spec.seeds * spec.texts * spec.facts
        words = f"{asked} facts in {spec.seeds * spec.texts} texts, at each budget"
        words += "; the model was trained for such questions."
        measured(scheduler, spec, _draw, place=bar, key="kq", words=words, progress=_progress, press="Ask")


def _progress(last: Record) -> tuple[float, str]:
    """How far the measurement is: a share, and how many caches have been asked."""
    if last.get("t") != "part":
        return 0.0, "Loading the model …"
    return last["done"] / last["of"], f"{last['done']} of {last['of']} caches have been asked"


def _draw(found: Document) -> None:
    found = as_named_here(found, "rows")
    budgets = budgets_of(found)
    st.fragment(_bars)(found, budgets)
    each_design(rows(found))

    def curves() -> None:
        plot(drawn_once(recall_figure, found), key="kq_recall")
        draw_table(_order(found), key="kq_order")
        ran = any(row["mode"] == "rotated2" for row in found["rows"])
        rotated = [TEXTS["caches"]["rotated"], of_rotation(found)] if ran else []
        st.caption(" ".join(filter(None, [TEXTS["caches"]["recall_chart"], *rotated])))

    fold("Every budget: the curves, and the counts", "kq_curves", curves)

    def sure() -> None:
        st.markdown("\n".join(f"- {sentence}" for sentence in sentences(found)))
        if budgets:
            told = {"more": MORE, "exact": RESIDUAL, "interval": of_interval(found)}
            st.markdown(TEXTS["caches"]["recall_rules"].format(**told))
            st.markdown(TEXTS["caches"]["recall"])
            st.markdown(how_sure(found))
            draw_table(_order(found, sure=True), key="kq_sure")
            st.caption(f"{steadiness(found)[0]} In brackets: what each set of texts recalls.")

    fold("What was found, how sure the order is, and why a small KL promises no recall", "kq_found", sure)
    if pairs := seen_before(found):

        def before() -> None:
            draw_table([_both_ways(*pair) for pair in pairs], key="kq_before")
            first, _, _ = pairs[0]
            sizes = {"percent": first["percent"], "asked": first["asked"], "texts": TEXTS_BEFORE}
            st.caption(TEXTS["caches"]["asked_before"].format(**sizes))

        fold(f"If the question comes first: {before_claim(found)}", "kq_first", before)

    def answers() -> None:
        st.fragment(_answers)(found)
        st.markdown(_with_facts(found))

    fold("One question, what every cache answers, and the text that was read", "kq_read", answers)
    env = found["environment"]
    asked, texts = len(found["questions"]), len(found["questions"]) // found["spec"]["facts"]
    st.caption(
        f"{found['title']}, {weights_in_words(found['weights'])}, {env['dtype']}; {asked} "
        f"facts in {texts} texts of about {found['tokens']:,.0f} tokens; on {plain(env['device_name'])}, "
        f"torch {env['torch']}, transformers {env['transformers']}. {plain(found['note'])}"
    )


def _bars(found: Document, budgets: Sequence[int]) -> None:
    """Draw what each design recalls within the budget that the reader chooses."""
    title, percent = st.container(), QUARTER
    if budgets:
        own = Form("recall", "kq_", percent=Field(QUARTER))
        own["percent"] = own["percent"] if own["percent"] in budgets else budgets[0]
        percent = st.segmented_control(
            "Tokens kept by designs that evict",
            required=True,
            format_func="{}%".format,
            **own.choices("percent", budgets),
        )
    title.header(claim(found, percent), anchor="recall")
    colour_key(shades(*KEY))
    plot(drawn_once(bars_figure, found, percent), key="kq_bars")
    st.markdown(TEXTS["caches"]["recall_bars"])
    shares = {row["mode"]: row["share"] for row in comparable(found, percent)}
    say_codes(shares, found["tokens"], found["environment"]["dtype"])


def _order(found: Document, *, sure: bool = False) -> list[dict[str, object]]:
    """Return a line for each design: at each budget what it recalls; if `sure`, also its letters and seeds."""
    columns = {percent: (comparable(found, percent), lettered(found, percent)) for percent in budgets_of(found)}
    titles = dict.fromkeys(row["title"] for held, _ in columns.values() for row in held)
    lines = {title: {"Design": title} | {f"{percent}%": "" for percent in columns} for title in titles}
    for percent, (held, named) in columns.items():
        for row in held:
            if not sure and row["percent"] is None and any(list(lines[row["title"]].values())[1:]):
                continue  # the same cache under a larger budget
            more = f" {named[row['mode']]} ({' + '.join(map(str, row['by_seed']))})" if sure else ""
            lines[row["title"]][f"{percent}%"] = f"{row['recalled']}{more}"
    return list(lines.values())


def _both_ways(after: Record, before: Record, apart: bool) -> dict[str, object]:
    return {
        "Design": after["title"],
        "Asked after": f"{after['recalled']} of {after['asked']}",
        "Asked before": f"{before['recalled']} of {before['asked']}",
        "Asking it before": ("helps" if before["recalled"] > after["recalled"] else "harms") if apart else "unsure",
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
    st.markdown(f"The text said: *{plain(questions[i]['statement'].strip())}* {_known(found, i)}")
    budgets = budgets_of(found)
    table: dict[str, dict[str, str]] = {}
    for row in found["rows"]:
        line = table.setdefault(
            row["title"], {"Design": row["title"], **dict.fromkeys(map(_column, (*budgets, None)), "")}
        )
        line[_column(row["percent"])] = f"{row['said'][i]} {'✓' if row['right'][i] else '✗'}"
    draw_table(list(table.values()), key="kq_answers")


def _known(found: Document, i: int) -> str:
    right = sum(row["right"][i] for row in found["rows"][1:])
    return f"Of {len(found['rows']) - 1} caches {right} still know it:"


def _column(percent: int | None) -> str:
    return "All tokens" if percent is None else f"{percent}%"
