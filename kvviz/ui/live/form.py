"""The live page's form: what a comparison is asked for with. Another page's link can fill it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvviz.base.errors import KvvizError
from kvviz.base.records import DTYPES, Sampling
from kvviz.base.settings import settings
from kvviz.decoding.modes import MODES
from kvviz.decoding.requirements import Work, usual_dtype
from kvviz.experiments.comparison.in_browser import decoded_there
from kvviz.experiments.comparison.spec import ATTENTION, OPENING_TOKENS, PRECISION, ComparisonSpec
from kvviz.experiments.eta import seconds_of
from kvviz.experiments.kind import Device, described
from kvviz.models.catalog.rows import models
from kvviz.models.pulled_folder import find_pulled
from kvviz.models.sources import beside_catalog, find_source, looks_like_hub_id, stored_weights
from kvviz.models.text import STORY
from kvviz.server.scheduler import Scheduler
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.devices import AUTO, can_split, choose_device
from kvviz.ui.shared.endpoint_fields import endpoint_fields
from kvviz.ui.shared.form import Field, Form, Read, one_of, whole
from kvviz.ui.shared.model_choice import accepted, decodable, model_field, positions
from kvviz.ui.shared.own_designs import say_left_out, unloadable

SERVER, BROWSER = "server", "browser"
PLACES = {SERVER: "This server", BROWSER: "This browser"}
OWN = "A folder, a config.json or a Hugging Face id …"
FIRST_MODES = ("uncached", "cached", "unpassed", "scratch", "compiled", "lookup", "speculative")
MOST_NEW_TOKENS = 512
MORE_MODES = tuple(name for name, mode in MODES.items() if name not in FIRST_MODES and not mode.elsewhere)
LENGTHS = (16, 64, 256, 1_024, 4_096)  # prompt tokens, of the book
PRECISIONS = (0.0, 0.02, PRECISION, 0.1)  # 0: no more passes than asked for
NEW_TOKENS = (8, 16, 32, 64, 128, 192, 256, 384, 512)
PROMPTS = {
    "A story": STORY,
    "Inference": "The transformer architecture revolutionized NLP because",
    "Code": "def fibonacci(n):\n    ",
    "A long one": "The cache holds what the model has already read. " * 6,
}
LONGEST_IN_A_LINK = 4_000  # characters of a prompt


@dataclass(frozen=True)
class Choice:
    """What the form says: the work and how long it will take, or the sentence why it can't be done.

    `key` is for the endpoint; it is no part of the work, which is kept and shown to all.
    """

    work: ComparisonSpec | None
    problem: str = ""
    seconds: float | None = None
    key: str | None = field(default=None, repr=False)


def live_form() -> Form:
    """The page's form. The address keeps none of its fields, it names the comparison."""
    return Form("live", "", **_fields())


def link_names() -> set[str]:
    """What a link to the live page may say."""
    return {"comparison", *(field.called or name for name, field in _fields().items() if field.read)}


def _fields() -> dict[str, Field]:
    return {
        "model": model_field(decodable()),
        "prompt": Field(STORY, _prompt_text),
        "prompt_tokens": Field(0, one_of(0, *LENGTHS)),  # 0: the prompt is the text
        "new_tokens": Field(OPENING_TOKENS, whole),
        "on": Field(SERVER, one_of(*PLACES)),
        "modes": Field(["uncached", "cached"], _modes_among(FIRST_MODES)),
        "more_modes": Field([], _modes_among(MORE_MODES), called="modes"),
        "attn": Field("sdpa", one_of(*ATTENTION)),
        "batch": Field(1, whole),
        "draft": Field("", str),
        "endpoint": Field(""),  # never from a link, whose maker would choose where a key goes
        "endpoint_model": Field(""),
        "kv_events": Field(""),
        "own_model": Field(""),
        "repeats": Field(3),
        "precision": Field(PRECISION),
        "warmup": Field(1),
        "dtype": Field(AUTO),
        "device": Field(AUTO),
        "weights": Field("auto"),
        "stop_text": Field(""),
        "stop_at_eos": Field(False),
        "temperature": Field(0.0),
        "top_k": Field(0),
        "top_p": Field(1.0),
        "seed": Field(0),
    }


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


def choose(form: Form, scheduler: Scheduler, more: Callable[[], None]) -> tuple[Choice, DeltaGenerator]:
    """Draw the form as one bar and read it; returns the place for Run and Stop. `more` draws the end of "More"."""
    bar = st.container(horizontal=True, vertical_alignment="center", gap="small", key="live_bar")
    with bar:
        model, weights = _model(form)
        with st.popover(_prompt_label(form), help="The prompt: a text, or so many tokens of a book."):
            _prompt(form, model)
        _new_tokens(form)
        with st.popover("More", icon=":material/tune:"):
            where: dict[str, Any] = {"help": TEXTS["live"]["decoded_by"], **form.choices("on", list(PLACES))}
            st.segmented_control("Decoded by", format_func=PLACES.__getitem__, required=True, **where)
            modes = _modes(form, scheduler)
            with st.container(horizontal=True):
                key = endpoint_fields(form)
            _settings(form, scheduler, Work(model, modes, weights))
            more()
        run = st.container(horizontal=True, width="content", gap="small", key="live_run")
    device = scheduler.device_for(form["device"])
    length, top_p = form["prompt_tokens"], form["top_p"] if form["top_p"] < 1 else None
    try:
        work = ComparisonSpec(
            model=model,
            weights=weights,
            modes=(*modes, *(("endpoint",) if form["endpoint"].strip() else ())),
            endpoint=form["endpoint"].strip() or None,
            endpoint_model=form["endpoint_model"].strip() or None,
            kv_events=form["kv_events"].strip() or None,
            sampling=Sampling(form["temperature"], form["top_k"] or None, top_p, form["seed"]),
            prompt=None if length else form["prompt"],
            prompt_tokens=length or None,
            filler="book" if length else "random",
            dtype=_dtype(form, model, weights, device or {}),
            precision=form["precision"] or None,
            draft=form["draft"].strip() or None if any(MODES[name].drafts for name in modes) else None,
            **{name: form[name] for name in ("new_tokens", "repeats", "warmup", "device", "attn", "batch")},
            **{name: form[name] for name in ("stop_text", "stop_at_eos")},
        )
        if form["on"] == BROWSER:
            return Choice(decoded_there(work)), run
        accepted(scheduler, work)
        return Choice(work, seconds=seconds_of(work, device), key=key), run
    except KvvizError as error:
        return Choice(None, problem=str(error)), run


def _dtype(form: Form, model: str, weights: str, device: Device) -> str:
    """The chosen precision, or the usual one for this model on this device."""
    if form["dtype"] != AUTO:
        return str(form["dtype"])
    if form["on"] == BROWSER:
        return "float32"
    return usual_dtype(find_source(model, weights).params, device.get("capability"))


def _model(form: Form) -> tuple[str, str]:
    """The model, and which weights of it."""
    given = settings()
    offered = [*decodable(), *(given.hub_models if given.public else (OWN,))]
    look: dict[str, Any] = {"label_visibility": "collapsed", "width": 280}
    choice = st.selectbox("Model", format_func=_label, **look, **form.choice("model", offered))
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
    trained = " · trained weights" if stored_weights(name) == "local" else ""
    return f"{row.title} · {_millions(row.params)}{trained}"


def _millions(params: int) -> str:
    for size, unit in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if params >= size:
            return f"{params / size:.3g}{unit}"
    return str(params)


def _prompt_label(form: Form) -> str:
    if form["prompt_tokens"]:
        return f"Prompt: {form['prompt_tokens']:,} tokens"
    named = next((name for name, text in PROMPTS.items() if text == form["prompt"]), None)
    return f"Prompt: {named.lower()}" if named else "Prompt: your own"


def _prompt(form: Form, model: str) -> None:
    def take_preset() -> None:
        if st.session_state.preset:
            form["prompt"] = PROMPTS[st.session_state.preset]
            form["prompt_tokens"] = 0

    def take_text() -> None:
        form["prompt_tokens"] = 0

    st.text_area("Prompt", height=92, on_change=take_text, **form.value("prompt"))
    st.pills("Prompts", list(PROMPTS), key="preset", on_change=take_preset, label_visibility="collapsed", wrap=True)
    st.segmented_control(
        "or so many tokens of a book",
        format_func=lambda length: f"{length:,}" if length else "the text",
        help="The first chapters of Alice's Adventures in Wonderland (Lewis Carroll, 1865).",
        required=True,
        **form.choices("prompt_tokens", [0, *(length for length in LENGTHS if length < positions(model))]),
    )


def _new_tokens(form: Form) -> None:
    form["new_tokens"] = max(1, min(MOST_NEW_TOKENS, form["new_tokens"]))
    look: dict[str, Any] = {"label_visibility": "collapsed", "width": 155}
    counts = form.choice("new_tokens", sorted({*NEW_TOKENS, form["new_tokens"]}))
    st.selectbox("New tokens", format_func=lambda count: f"{count} new tokens", **look, **counts)


def _modes(form: Form, scheduler: Scheduler) -> tuple[str, ...]:
    """The modes that a lesson is about at once, and the cache designs in a quieter place."""
    first: dict[str, Any] = {"help": _summaries(FIRST_MODES), "wrap": True, **form.choices("modes", FIRST_MODES)}
    st.pills("Modes", selection_mode="multi", format_func=_mode_title, **first)
    offered = [name for name in MORE_MODES if name not in unloadable(scheduler)]
    how = _summaries(offered) + "  \n\nThe page **Caches** holds them side by side."
    more = form.choices("more_modes", offered)
    st.multiselect("Cache designs, and transformers' own caches", format_func=_mode_title, help=how, **more)
    say_left_out(scheduler)
    chosen = [*form["modes"], *form["more_modes"]]
    if any(MODES[name].drafts for name in chosen):
        st.text_input("Draft model", help=TEXTS["live"]["draft"], placeholder="a bundled one", **form.value("draft"))
    return tuple(name for name in MODES if name in chosen)


def _mode_title(name: str) -> str:
    return MODES[name].title


def _summaries(names: Sequence[str]) -> str:
    return "  \n".join(f"**{MODES[name].title}**: {MODES[name].summary}" for name in names)


def _settings(form: Form, scheduler: Scheduler, work: Work) -> None:
    """What a first look does without; `work` is what has been chosen before."""
    public = settings().public
    one, two, three = st.columns(3)
    four, five, six = st.columns(3)
    one.number_input("Timed passes of each mode, at least", **form.within("repeats", 1, 20))
    proof = "The first proves that the modes agree; no figure is made of them."
    two.number_input("Warm-up passes", help=proof, **form.within("warmup", 1, 10))
    three.selectbox("Precision", help=TEXTS["live"]["precision"], **form.choice("dtype", [AUTO, *DTYPES]))
    four.selectbox("Attention", help=TEXTS["live"]["attention"], **form.choice("attn", ATTENTION))
    kinds = form.choice("weights", ["auto", "random", *([] if public else ["hub"])])
    whence = TEXTS["live"]["weights"] + ("" if public else " hub: fetched from the Hugging Face Hub.")
    five.selectbox("Weights", help=whence, **kinds)
    six.number_input("Batch", help="Sequences that are decoded together.", **form.within("batch", 1, 64))
    seven, eight, nine = st.columns(3, vertical_alignment="bottom")
    seven.selectbox(
        "More passes",
        format_func=lambda share: f"until known to {share:.0%}" if share else "none",
        help=TEXTS["live"]["precise"],
        **form.choice("precision", PRECISIONS),
    )
    eight.text_input("Stop at this text", max_chars=200, **form.value("stop_text"))
    nine.checkbox("Stop at the end token", help=TEXTS["live"]["stop_at_eos"], **form.value("stop_at_eos"))
    _sampling(form)
    length = form["prompt_tokens"]
    try:
        dtype = _dtype(form, work.model, work.weights, scheduler.device_for(form["device"]) or {})
    except KvvizError:  # an unknown model, which the page names below
        dtype = "float32"
    size = {"prompt": form["prompt"] or STORY, "prompt_tokens": length or None, "new_tokens": form["new_tokens"]}
    work = replace(work, **size, batch=form["batch"], attn=form["attn"], dtype=dtype)
    device = scheduler.device_for(choose_device(scheduler, form, split=can_split(scheduler, work)))
    if device:
        st.caption(f"{described(device)}. {TEXTS['live']['selftest']}")


def _sampling(form: Form) -> None:
    """Greedy unless a temperature is set; the draws are the same in every mode."""
    one, two, three, four = st.columns(4)
    greedy = "0 is greedy: always the likeliest token."
    off = not one.number_input("Temperature", step=0.1, help=greedy, **form.within("temperature", 0.0, 5.0))
    two.number_input("Top-k (0: off)", disabled=off, **form.within("top_k", 0, 1000))
    three.number_input("Top-p (1: off)", step=0.05, disabled=off, **form.within("top_p", 0.05, 1.0))
    four.number_input("Seed", help="Of the draws, and of random weights.", **form.within("seed", 0, 2**32 - 1))
    st.caption(TEXTS["live"]["draws"])


def in_words(seconds: float) -> str:
    """A duration rounded to as many digits as an estimate supports."""
    if seconds < 1.5:
        return "a second or so"
    if seconds < 100:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min"
