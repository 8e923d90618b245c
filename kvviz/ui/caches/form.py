"""The caches page's form, and the words around the measurement that it asks for."""

from dataclasses import replace

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvviz.base.words import lasting
from kvviz.caches.designs import BUDGET
from kvviz.decoding.modes import MODES
from kvviz.experiments.cache_designs import words
from kvviz.experiments.cache_designs.spec import MOST_RACED, RACEABLE, RACED, CachesSpec
from kvviz.experiments.eta import seconds_of
from kvviz.experiments.forgetting.spec import BUDGETS, FORGETTING
from kvviz.experiments.kind import Record
from kvviz.experiments.recall.spec import RecallSpec
from kvviz.server.scheduler import Scheduler
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared import model_choice as choices
from kvviz.ui.shared.experiment import run_bar
from kvviz.ui.shared.form import Field, Form, one_of, some_of, whole
from kvviz.ui.shared.own_designs import say_left_out, unloadable
from kvviz.ui.shared.plain import errors_said

PROMPT = (
    "Once upon a time there was a little fox named Tilo, who lived near the old market. Tilo had a red hat, and every "
    "morning he walked to the lake with a friend."
)
LONGEST_IN_A_LINK = 400  # characters of a prompt
NEW_TOKENS = (16, 32, 64, 96, 128, MOST_RACED)
BATCHES = (1, 2, 3, 4, 6, 8)
PARTS = (  # tabs
    "Layout",
    "Room left empty",
    "Bytes and time",
    "Quality lost",
    "Tokens evicted",
    "Facts recalled",
)
FORMER = {  # names of tabs in older links
    "What it wastes": "Room left empty",
    "What it loses": "Quality lost",
    "Where tokens lie": "Layout",
    "What it moves, and when": "Bytes and time",
    "What it moves, and how fast": "Bytes and time",
    "What it forgets": "Tokens evicted",
    "What it recalls": "Facts recalled",
}
KEPT = ("", *BUDGETS)  # budgets of the race; "": each design's own


def caches_form(scheduler: Scheduler) -> Form:
    """The fields of the page: those of the race, and those of the section on recall."""
    offered = offered_designs(scheduler)
    return Form(
        "caches",
        "k_",
        **choices.measured_fields(),
        tokens=Field(64, whole),
        batch=Field(2, whole),
        prompt=Field(PROMPT, _read_prompt, _prompt_in_link),
        designs=Field([name for name in RACED if name in offered], some_of(*offered), ",".join),
        part=Field(PARTS[0], _read_part),
        kept=Field("", one_of(*KEPT)),
        pyramid=Field(False, one_of(False, True)),
        text=Field(RecallSpec.tokens, whole),
        seeds=Field(RecallSpec.seeds, whole),
    )


def ask(scheduler: Scheduler, form: Form) -> tuple[CachesSpec | None, DeltaGenerator]:
    """Draw the race's fields; returns the place of its buttons. No spec, and the reason said, if it can't be done."""
    offered = offered_designs(scheduler)
    bar = run_bar("race")
    with bar:
        model = choices.choose_model(st.container(width=260), form, choices.decodable())
        with st.popover("Designs and prompt", icon=":material/tune:"):
            how = "  \n".join(f"**{MODES[name].title}**: {MODES[name].summary}" for name in offered)
            pills = {"help": how, "wrap": True, **form.choices("designs", offered)}
            titles = {name: MODES[name].title for name in offered}
            designs = st.pills("Cache designs", selection_mode="multi", format_func=titles.__getitem__, **pills)
            prompt = st.text_area("Prompt, shared by all sequences", height=96, **form.value("prompt"))
            most = min(MOST_RACED, scheduler.limits.new_tokens)
            tokens = choices.choose_size(st.container(), "New tokens", form, "tokens", NEW_TOKENS, most=most)
            most = scheduler.limits.batch
            batch = choices.choose_size(st.container(), "Sequences", form, "batch", BATCHES, most=most)
            kept = st.selectbox(
                "Tokens that designs with a budget keep",
                format_func=lambda kept: f"{kept} of the text's" if kept else f"{BUDGET}, of any text",
                **form.choice("kept", KEPT),
            )
            pyramid = st.checkbox("More of them in lower layers (PyramidKV)", **form.value("pyramid"))
            weights, dtype = choices.choose_precision(form)
            st.caption(TEXTS["caches"]["own"])
    say_left_out(scheduler)
    with errors_said():
        chosen, repeats = tuple(name for name in offered if name in designs), min(3, scheduler.limits.repeats)
        spec = CachesSpec(model, chosen, weights, prompt, tokens, batch, repeats, dtype)
        if set(chosen) & set(FORGETTING):
            spec = replace(spec, cache_budget=kept or None, pyramid=pyramid)
        choices.accepted(scheduler, spec.work())
        return spec, bar
    return None, bar


def offered_designs(scheduler: Scheduler) -> list[str]:
    """The designs that make sense on this device."""
    apart = scheduler.device is not None and scheduler.device.get("device", "cpu") != "cpu"
    left_out = unloadable(scheduler)
    return [name for name in RACEABLE if (apart or not MODES[name].accelerator) and name not in left_out]


def _read_part(text: str) -> object:
    return one_of(*PARTS)(FORMER.get(text, text))


def _read_prompt(text: str) -> str:
    if len(text) > LONGEST_IN_A_LINK:
        raise ValueError(text)
    return text


def _prompt_in_link(prompt: str) -> str | None:
    """Return the visitor's own prompt if a room's address can hold it, that is, if it is short and printable."""
    return prompt if prompt != PROMPT and len(prompt) <= LONGEST_IN_A_LINK and prompt.isprintable() else None


def expected(scheduler: Scheduler, spec: CachesSpec, part: str) -> str:
    """What the measurement does for the tab `part`, and how long it takes for all tabs of a race, in words."""
    seconds = seconds_of(spec, scheduler.device)
    often, caches = "once" if spec.repeats == 1 else f"{spec.repeats} times", f"{len(spec.modes) - 1} caches"
    does = {
        "Layout": "The slots of each cache are read, not timed",
        "Room left empty": f"The bytes of {caches} are read, not timed",
        "Bytes and time": f"{caches} and no cache, each timed {often}",
        "Quality lost": f"{caches} read one text, not timed",
    }[part]
    if seconds is None:
        return f"{does}."
    # A few seconds would differ from tab to tab, because the device's paces are measured again between two visits.
    return f"{does}; a run takes {'less than half a minute' if seconds < 25 else f'about {lasting(seconds)}'}."


def progress(last: Record) -> tuple[float, str]:
    """How far the measurement is: a share, and which part is under way."""
    if last.get("t") != "part":
        return 0.0, "Loading the model …" if last.get("t") != "look" else "The tokens …"
    names = list(words.PARTS)
    share = (names.index(last["part"]) + last["done"] / max(1, last["of"])) / len(names)
    return min(1.0, share), f"Now {last['words']}: {last['done']} of {last['of']}"
