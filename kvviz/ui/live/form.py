"""The live page's form: widgets in, a ComparisonSpec out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.base.records import DTYPES, Sampling
from kvviz.base.settings import settings
from kvviz.decoding.modes import MODES
from kvviz.decoding.requirements import seconds
from kvviz.experiments.comparison.spec import ATTENTION, ComparisonSpec
from kvviz.models.catalog.rows import models
from kvviz.models.pulled_folder import find_pulled
from kvviz.models.sources import beside_catalog, looks_like_hub_id, stored_weights
from kvviz.models.text import STORY
from kvviz.server.scheduler import Scheduler
from kvviz.ui.shared import filled
from kvviz.ui.shared.model_choice import accepted, decodable

OWN = "A folder, a config.json or a Hugging Face id …"
FIRST_MODES = ("uncached", "cached", "unpassed", "scratch", "compiled")
PROMPTS = {
    "A story": STORY,
    "Inference": "The transformer architecture revolutionized NLP because",
    "Code": "def fibonacci(n):\n    ",
    "A long one": "The cache holds what the model has already read. " * 6,
}


@dataclass(frozen=True)
class Choice:
    """What the form says: the work, or the sentence why it can't be done; and what it will take."""

    work: ComparisonSpec | None
    problem: str = ""
    seconds: float | None = None


def default_model() -> str:
    """A trained model where one comes with kvviz, else GPT-2's true shape."""
    return next((row for row in models() if stored_weights(row) == "bundled"), "gpt2")


def choose(scheduler: Scheduler) -> Choice:
    """Draw the form and read it."""
    left, middle, right = st.columns([3, 5, 3], gap="medium")
    with left:
        model, weights = _model()
    with middle:
        prompt = _prompt()
    with right:
        new_tokens = st.slider("New tokens", 8, 512, filled.value("new_tokens", 32), step=8, key="new_tokens")
        modes = _modes()
    with st.expander("Settings"):
        settings = _settings()
    try:
        work = ComparisonSpec(
            model=model,
            weights=weights,
            prompt=prompt,
            new_tokens=new_tokens,
            modes=modes,
            **settings,
            sampling=_sampling(),
        )
        return Choice(work, seconds=plan(work, scheduler))
    except KvvizError as error:
        return Choice(None, problem=str(error))


def _modes() -> tuple[str, ...]:
    """The modes that a lesson is about at once, and the other ways to keep a cache in a quieter place."""
    others = [name for name in MODES if name not in FIRST_MODES]
    first = st.pills(
        "Modes",
        FIRST_MODES,
        selection_mode="multi",
        format_func=lambda name: MODES[name].title,
        default=filled.value("modes", ["uncached", "cached"]),
        key="modes",
        wrap=True,
        help=_summaries(FIRST_MODES),
    )
    with st.popover("More ways to keep the cache", icon=":material/memory:", width="stretch"):
        more = st.multiselect(
            "Cache designs, and transformers' own caches",
            others,
            format_func=lambda name: MODES[name].title,
            default=filled.value("more_modes", []),
            key="more_modes",
            help=_summaries(others),
        )
        st.caption("The page **Caches** holds them side by side: their memory, their copies, what lossy ones lose.")
    if more:
        st.caption("and " + ", ".join(MODES[name].title for name in others if name in more))
    return tuple(name for name in MODES if name in first or name in more)


def _summaries(names: Sequence[str]) -> str:
    return "  \n".join(f"**{MODES[name].title}**: {MODES[name].summary}" for name in names)


def _model() -> tuple[str, str]:
    given = settings()
    offered = [*decodable(), *(given.hub_models if given.public else (OWN,))]
    choice = st.selectbox(
        "Model",
        offered,
        filled.index("model", offered, default_model()),
        format_func=lambda name: _label(name),
        key="model",
    )
    if choice in given.hub_models:
        return choice, "hub"
    if choice != OWN:
        return choice, st.session_state.get("weights", "auto")
    own = st.text_input("Where it is", placeholder="/models/my-gpt, config.json or owner/name", key="own_model").strip()
    weights = st.session_state.get("weights", "auto")
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


def _prompt() -> str:
    def take_preset() -> None:
        if st.session_state.preset:
            st.session_state.prompt = PROMPTS[st.session_state.preset]

    text = st.text_area("Prompt", filled.value("prompt", PROMPTS["A story"]), key="prompt", height=92)
    st.pills("Prompts", list(PROMPTS), key="preset", on_change=take_preset, label_visibility="collapsed", wrap=True)
    return text


def _settings() -> dict[str, Any]:
    """The fields of a ComparisonSpec that a first look does without."""
    one, two, three, four, five = st.columns(5)
    repeats = one.number_input("Timed passes of each mode", 1, 20, 3, key="repeats")
    warmup = two.number_input(
        "Warm-up passes", 1, 10, 1, key="warmup", help="The first proves that the modes agree; none is timed."
    )
    dtype = three.selectbox("Precision", DTYPES, key="dtype", help="float32 proves that the tokens are identical.")
    attn = four.selectbox(
        "Attention",
        ATTENTION,
        filled.index("attn", ATTENTION),
        key="attn",
        help="sdpa: torch's scaled_dot_product_attention, on a GPU in half precision its flash kernel; "
        "eager: the products and the softmax one by one.",
    )
    five.selectbox(
        "Weights",
        ["auto", "random", *([] if settings().public else ["hub"])],
        key="weights",
        help="auto: trained weights where they come with kvviz or lie on this server, else seeded random ones; "
        "it never uses the network. " + ("" if settings().public else "hub: fetched from the Hugging Face Hub."),
    )
    six, seven, eight, _ = st.columns([1, 2, 1, 1], vertical_alignment="bottom")
    batch = six.number_input(
        "Batch", 1, 64, filled.value("batch", 1), key="batch", help="Sequences that are decoded together."
    )
    stop_text = seven.text_input("Stop at this text", key="stop_text", max_chars=200)
    stop_at_eos = eight.checkbox("Stop at the end token", key="stop_at_eos")
    return {
        "repeats": int(repeats),
        "warmup": int(warmup),
        "dtype": dtype,
        "attn": attn,
        "batch": int(batch),
        "stop_text": stop_text,
        "stop_at_eos": stop_at_eos,
    }


def _sampling() -> Sampling:
    """Greedy unless a temperature is set; the draws are the same in every mode."""
    with st.expander("Sampling"):
        one, two, three, four = st.columns(4)
        temperature = one.number_input(
            "Temperature", 0.0, 5.0, 0.0, step=0.1, key="temperature", help="0 is greedy: always the likeliest token."
        )
        drawing = temperature > 0
        top_k = two.number_input("Top-k (0: off)", 0, 1000, 0, key="top_k", disabled=not drawing)
        top_p = three.number_input("Top-p (1: off)", 0.05, 1.0, 1.0, step=0.05, key="top_p", disabled=not drawing)
        seed = four.number_input("Seed", 0, 2**32 - 1, 0, key="seed", help="Of the draws, and of random weights.")
        st.caption("The draw of a step depends on the seed and the step alone, so every mode draws the same token.")
    return Sampling(temperature, int(top_k) or None, top_p if top_p < 1 else None, int(seed))


def plan(work: ComparisonSpec, scheduler: Scheduler) -> float | None:
    """Seconds that the work will take on the scheduler's device; None where model or device tell too little yet.

    Raises KvvizError for what the worker would refuse.
    """
    source = accepted(scheduler, work)
    if scheduler.device is None or source.params is None or source.spec is None:
        return None
    return seconds(source, work, scheduler.device)


def in_words(seconds: float) -> str:
    """An estimate as one says it: no more digits than it deserves."""
    if seconds < 1.5:
        return "a second or so"
    if seconds < 100:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min"
