"""The live page's form: what a comparison is asked for with. Another page's link can fill it."""

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvviz.base.errors import KvvizError
from kvviz.base.records import DTYPES, Sampling
from kvviz.base.settings import settings
from kvviz.decoding.modes import MODES
from kvviz.experiments.comparison.spec import ATTENTION, ComparisonSpec
from kvviz.experiments.eta import seconds_of
from kvviz.models.catalog.rows import models
from kvviz.models.pulled_folder import find_pulled
from kvviz.models.sources import beside_catalog, looks_like_hub_id, stored_weights
from kvviz.models.text import STORY
from kvviz.server.scheduler import Scheduler
from kvviz.ui.shared.form import Field, Form, Read, one_of, whole
from kvviz.ui.shared.model_choice import accepted, decodable, model_field
from kvviz.ui.shared.plain import plain

OWN = "A folder, a config.json or a Hugging Face id …"
FIRST_MODES = ("uncached", "cached", "unpassed", "scratch", "compiled")
MORE_MODES = tuple(name for name in MODES if name not in FIRST_MODES)
PROMPTS = {
    "A story": STORY,
    "Inference": "The transformer architecture revolutionized NLP because",
    "Code": "def fibonacci(n):\n    ",
    "A long one": "The cache holds what the model has already read. " * 6,
}
LONGEST_IN_A_LINK = 4_000  # characters of a prompt


@dataclass(frozen=True)
class Choice:
    """What the form says: the work and how long it will take, or the sentence why it can't be done."""

    work: ComparisonSpec | None
    problem: str = ""
    seconds: float | None = None


def live_form() -> Form:
    """The page's fields. A link may fill six of them; the address keeps none, it names the comparison."""
    return Form(
        "live",
        "",
        model=model_field(decodable()),
        prompt=Field(STORY, _prompt_text),
        new_tokens=Field(32, lambda text: whole(text) // 8 * 8),  # a step of the slider
        modes=Field(["uncached", "cached"], _modes_among(FIRST_MODES)),
        more_modes=Field([], _modes_among(MORE_MODES), called="modes"),
        attn=Field("sdpa", one_of(*ATTENTION)),
        batch=Field(1, whole),
        own_model=Field(""),
        repeats=Field(3),
        warmup=Field(1),
        dtype=Field("float32"),
        weights=Field("auto"),
        stop_text=Field(""),
        stop_at_eos=Field(False),
        temperature=Field(0.0),
        top_k=Field(0),
        top_p=Field(1.0),
        seed=Field(0),
    )


def _prompt_text(text: str) -> str:
    if not text.strip() or len(text) > LONGEST_IN_A_LINK:
        raise ValueError(text)
    return text


def _modes_among(offered: Sequence[str]) -> Read:
    """Reads those of a link's modes that are offered in one of the form's two places."""

    def read(text: str) -> list[str]:
        names = text.split(",")
        if not any(name in MODES for name in names):
            raise ValueError(text)
        return [name for name in offered if name in names]

    return read


def choose(form: Form, scheduler: Scheduler) -> Choice:
    """Draw the form and read it."""
    left, middle, right = st.columns([3, 5, 3], gap="medium")
    with left:
        model, weights = _model(form)
    with middle:
        _prompt(form)
    with right:
        st.slider("New tokens", step=8, **form.within("new_tokens", 8, 512))
        modes = _modes(form)
    with st.expander("Settings"):
        _settings(form)
    try:
        work = ComparisonSpec(
            model=model,
            weights=weights,
            modes=modes,
            sampling=_sampling(form),
            **{name: form[name] for name in ("prompt", "new_tokens", "repeats", "warmup", "dtype", "attn", "batch")},
            **{name: form[name] for name in ("stop_text", "stop_at_eos")},
        )
        return Choice(work, seconds=seconds_if_accepted(work, scheduler))
    except KvvizError as error:
        return Choice(None, problem=str(error))


def seconds_if_accepted(work: ComparisonSpec, scheduler: Scheduler) -> float | None:
    """How long the work will take on the scheduler's device; None if model or device tell too little yet.

    Raises KvvizError for what the worker would refuse.
    """
    accepted(scheduler, work)
    return seconds_of(work, scheduler.device)


def _model(form: Form) -> tuple[str, str]:
    """The model, and which weights of it."""
    given = settings()
    offered = [*decodable(), *(given.hub_models if given.public else (OWN,))]
    choice = st.selectbox("Model", format_func=lambda name: _label(name), **form.choice("model", offered))
    if choice in given.hub_models:
        return choice, "hub"
    weights = form["weights"]
    if choice != OWN:
        return choice, weights
    example = "/models/my-gpt, config.json or owner/name"
    own = st.text_input("Where it is", placeholder=example, **form.value("own_model")).strip()
    fetch = weights == "auto" and looks_like_hub_id(own) and find_pulled(own) is None
    return own, "hub" if fetch else weights


def _label(name: str) -> str:
    if name not in models():
        return f"{name} · trained weights" if name in beside_catalog() else name
    row = models()[name]
    trained = "" if stored_weights(name) == "random" else " · trained weights"
    return f"{row.title} · {_millions(row.params)}{trained}"


def _millions(params: int) -> str:
    for size, unit in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if params >= size:
            return f"{params / size:.3g}{unit}"
    return str(params)


def _prompt(form: Form) -> None:
    def take_preset() -> None:
        if st.session_state.preset:
            form["prompt"] = PROMPTS[st.session_state.preset]

    st.text_area("Prompt", height=92, **form.value("prompt"))
    st.pills("Prompts", list(PROMPTS), key="preset", on_change=take_preset, label_visibility="collapsed", wrap=True)


def _modes(form: Form) -> tuple[str, ...]:
    """The modes that a lesson is about at once, and the cache designs in a quieter place."""
    st.pills(
        "Modes",
        selection_mode="multi",
        format_func=_mode_title,
        wrap=True,
        help=_summaries(FIRST_MODES),
        **form.choices("modes", FIRST_MODES),
    )
    with st.popover("More ways to keep the cache", icon=":material/memory:", width="stretch"):
        st.multiselect(
            "Cache designs, and transformers' own caches",
            format_func=_mode_title,
            help=_summaries(MORE_MODES),
            **form.choices("more_modes", MORE_MODES),
        )
        st.caption("The page **Caches** holds them side by side: their memory, their copies, what lossy ones lose.")
    chosen = [*form["modes"], *form["more_modes"]]
    if form["more_modes"]:
        st.caption("and " + ", ".join(_mode_title(name) for name in MORE_MODES if name in chosen))
    return tuple(name for name in MODES if name in chosen)


def _mode_title(name: str) -> str:
    return MODES[name].title


def _summaries(names: Sequence[str]) -> str:
    return "  \n".join(f"**{MODES[name].title}**: {MODES[name].summary}" for name in names)


def _settings(form: Form) -> None:
    """What a first look does without."""
    public = settings().public
    one, two, three, four, five = st.columns(5)
    one.number_input("Timed passes of each mode", **form.within("repeats", 1, 20))
    two.number_input(
        "Warm-up passes", help="The first proves that the modes agree; none is timed.", **form.within("warmup", 1, 10)
    )
    three.selectbox("Precision", help="float32 proves that the tokens are identical.", **form.choice("dtype", DTYPES))
    four.selectbox(
        "Attention",
        help="sdpa: torch's scaled_dot_product_attention, on a GPU in half precision its flash kernel; "
        "eager: the products and the softmax one by one.",
        **form.choice("attn", ATTENTION),
    )
    five.selectbox(
        "Weights",
        help="auto: trained weights if they come with kvviz or lie on this server, else seeded random ones; "
        "it never uses the network. " + ("" if public else "hub: fetched from the Hugging Face Hub."),
        **form.choice("weights", ["auto", "random", *([] if public else ["hub"])]),
    )
    six, seven, eight, _ = st.columns([1, 2, 1, 1], vertical_alignment="bottom")
    six.number_input("Batch", help="Sequences that are decoded together.", **form.within("batch", 1, 64))
    seven.text_input("Stop at this text", max_chars=200, **form.value("stop_text"))
    eight.checkbox("Stop at the end token", **form.value("stop_at_eos"))


def _sampling(form: Form) -> Sampling:
    """Greedy unless a temperature is set; the draws are the same in every mode."""
    with st.expander("Sampling"):
        one, two, three, four = st.columns(4)
        greedy = "0 is greedy: always the likeliest token."
        temperature = one.number_input("Temperature", step=0.1, help=greedy, **form.within("temperature", 0.0, 5.0))
        off = not temperature
        top_k = two.number_input("Top-k (0: off)", disabled=off, **form.within("top_k", 0, 1000))
        top_p = three.number_input("Top-p (1: off)", step=0.05, disabled=off, **form.within("top_p", 0.05, 1.0))
        seed = four.number_input(
            "Seed", help="Of the draws, and of random weights.", **form.within("seed", 0, 2**32 - 1)
        )
        st.caption("The draw of a step depends on the seed and the step alone, so every mode draws the same token.")
    return Sampling(temperature, top_k or None, top_p if top_p < 1 else None, seed)


def say_what_it_takes(place: DeltaGenerator, choice: Choice) -> None:
    """Say how long the work will take, or why it can't be done."""
    if choice.problem:
        place.warning(plain(choice.problem))
    elif choice.seconds is not None:
        place.caption(f"Estimated from this device's measured rates: {_in_words(choice.seconds)}")


def _in_words(seconds: float) -> str:
    """An estimate as one says it: no more digits than it deserves."""
    if seconds < 1.5:
        return "a second or so"
    if seconds < 100:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min"
