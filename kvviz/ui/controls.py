"""The live page's form: widgets in, a ComparisonSpec out."""

from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from kvviz.catalog import models
from kvviz.errors import KvvizError
from kvviz.hub import Hub
from kvviz.modes import MODES
from kvviz.plan import needs, seconds
from kvviz.records import ATTENTION, DTYPES, ComparisonSpec
from kvviz.sources import BUNDLED, find_source

OWN = "A folder, a config.json or a Hugging Face id …"
PROMPTS = {
    "A story": "Once upon a time there was a little",
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
    return next((row for row in models() if (BUNDLED / row / "config.json").is_file()), "gpt2")


def choose(hub: Hub) -> Choice:
    """Draw the form and read it."""
    left, middle, right = st.columns([3, 5, 3], gap="medium")
    with left:
        model, weights = _model()
    with middle:
        prompt = _prompt()
    with right:
        new_tokens = st.slider("New tokens", 8, 512, 32, step=8, key="new_tokens")
        modes = st.pills(
            "Modes",
            list(MODES),
            selection_mode="multi",
            default=["uncached", "cached"],
            format_func=lambda name: MODES[name].title,
            key="modes",
            help="  \n".join(f"**{mode.title}**: {mode.summary}" for mode in MODES.values()),
        )
    with st.expander("Settings"):
        repeats, warmup, dtype, attn = _settings()
    try:
        work = ComparisonSpec(
            model=model,
            weights=weights,
            prompt=prompt,
            new_tokens=new_tokens,
            modes=tuple(name for name in MODES if name in modes),
            repeats=repeats,
            warmup=warmup,
            dtype=dtype,
            attn=attn,
        )
        return Choice(work, seconds=plan(work, hub))
    except KvvizError as error:
        return Choice(None, problem=str(error))


def _model() -> tuple[str, str]:
    ids = list(models())
    choice = st.selectbox(
        "Model",
        [*ids, OWN],
        index=ids.index(default_model()),
        format_func=lambda name: _label(name),
        key="model",
    )
    if choice != OWN:
        return choice, st.session_state.get("weights", "auto")
    own = st.text_input("Where it is", placeholder="/models/my-gpt, config.json or owner/name", key="own_model")
    looks_hub = own.count("/") == 1 and not own.startswith((".", "/", "~")) and not Path(own).exists()
    return own.strip(), "hub" if looks_hub else "auto"


def _label(name: str) -> str:
    if name == OWN:
        return OWN
    row = models()[name]
    return f"{row.title} · {_millions(row.params)}"


def _millions(params: int) -> str:
    for size, unit in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if params >= size:
            return f"{params / size:.3g}{unit}"
    return str(params)


def _prompt() -> str:
    def take_preset() -> None:
        if st.session_state.preset:
            st.session_state.prompt = PROMPTS[st.session_state.preset]

    st.session_state.setdefault("prompt", PROMPTS["A story"])
    text = st.text_area("Prompt", key="prompt", height=92)
    st.pills("Prompts", list(PROMPTS), key="preset", on_change=take_preset, label_visibility="collapsed")
    return text


def _settings() -> tuple[int, int, str, str]:
    one, two, three, four, five = st.columns(5)
    with one:
        repeats = st.number_input("Timed passes of each mode", 1, 20, 3, key="repeats")
    with two:
        warmup = st.number_input(
            "Warm-up passes",
            1,
            10,
            1,
            key="warmup",
            help="The first proves that the modes agree; none is timed.",
        )
    with three:
        dtype = st.selectbox("Precision", DTYPES, key="dtype", help="float32 proves that the tokens are identical.")
    with four:
        attn = st.selectbox("Attention", ATTENTION, key="attn")
    with five:
        st.selectbox(
            "Weights",
            ["auto", "random", "hub"],
            key="weights",
            help="auto: trained weights where they come with kvviz, else seeded random ones; it never uses the "
            "network. hub: fetched from the Hugging Face Hub.",
        )
    return int(repeats), int(warmup), dtype, attn


def plan(work: ComparisonSpec, hub: Hub) -> float | None:
    """Seconds that the work will take on the hub's device; None where model or device tell too little yet.

    Raises KvvizError where the model can't be found or can't fit.
    """
    source = find_source(work.model, work.weights)
    if hub.device is None or source.params is None or source.spec is None:
        return None
    needs(source, work).check(hub.device["total_bytes"], hub.device["device_name"])
    return seconds(source, work, hub.device)


def in_words(seconds: float) -> str:
    """An estimate as one says it: no more digits than it deserves."""
    if seconds < 1.5:
        return "a second or so"
    if seconds < 100:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min"
