"""The caches page's form, and the wait for what it asks for."""

import json
from typing import Any

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.base.records import DTYPES
from kvviz.base.words import lasting
from kvviz.decoding.modes import MODES
from kvviz.experiments.cache_designs.spec import MOST_RACED, RACEABLE, RACED, CachesSpec
from kvviz.experiments.cache_designs.words import PARTS
from kvviz.experiments.eta import seconds_of
from kvviz.server.scheduler import Scheduler
from kvviz.ui.live.form import default_model
from kvviz.ui.shared import filled
from kvviz.ui.shared.links import one_of, take_over, whole, write
from kvviz.ui.shared.model_choice import WEIGHTS, accepted, choose_size, choose_weights, decodable, title
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.waiting import measured

PROMPT = (
    "Once upon a time there was a little fox named Tilo, who lived near the old market. Tilo had a red hat, and every "
    "morning he walked to the lake with a friend."
)
LONGEST_IN_A_LINK = 400  # characters of a prompt
NEW_TOKENS = (16, 32, 64, 96, 128, MOST_RACED)
BATCHES = (1, 2, 3, 4, 6, 8)


def ask(scheduler: Scheduler) -> CachesSpec | None:
    """What is to be measured; None, and a sentence on the page, where that can't be done."""
    ids = decodable()
    offered = _offered(scheduler)
    fields = {"model": one_of(*ids), "weights": one_of(*WEIGHTS), "dtype": one_of(*DTYPES), "prompt": _prompt}
    take_over("k", {**fields, "tokens": whole, "batch": whole, "designs": some_of(*offered)})
    for name, value in (("model", default_model()), ("prompt", PROMPT), ("designs", list(RACED))):
        st.session_state.setdefault(f"k_{name}", value)
    with st.container(border=True):
        one, two, three, four, five = st.columns([4, 3, 2, 2, 2], gap="small")
        model = one.selectbox("Model", ids, filled.index("k_model", ids), format_func=title, key="k_model")
        weights = choose_weights(two, "k_weights")
        tokens = choose_size(
            three, "New tokens", "k_tokens", NEW_TOKENS, most=min(MOST_RACED, scheduler.limits.new_tokens), usual=64
        )
        batch = choose_size(four, "Sequences", "k_batch", BATCHES, most=scheduler.limits.batch, usual=2)
        dtype = five.selectbox("Precision", DTYPES, filled.index("k_dtype", DTYPES), key="k_dtype")
        left, right = st.columns(2, gap="small")
        prompt = left.text_area("Prompt, shared by all sequences", filled.value("k_prompt"), key="k_prompt", height=96)
        designs = right.pills(
            "Cache designs",
            offered,
            selection_mode="multi",
            wrap=True,
            format_func=lambda name: MODES[name].title,
            default=filled.value("k_designs"),
            key="k_designs",
            help="  \n".join(f"**{MODES[name].title}**: {MODES[name].summary}" for name in offered),
        )
    said = {"model": model, "weights": weights, "tokens": tokens, "batch": batch, "dtype": dtype}
    if prompt != PROMPT and len(prompt) <= LONGEST_IN_A_LINK and prompt.isprintable():  # as a room's place has to be
        said["prompt"] = prompt
    write("k", {**said, "designs": ",".join(designs)})
    try:
        spec = CachesSpec(
            model=model,
            designs=tuple(name for name in offered if name in designs),
            weights=weights,
            prompt=prompt,
            new_tokens=tokens,
            batch=batch,
            repeats=min(3, scheduler.limits.repeats),
            dtype=dtype,
        )
        accepted(scheduler, spec.work())
        return spec
    except KvvizError as error:
        st.warning(plain(error))
        return None


def _offered(scheduler: Scheduler) -> list[str]:
    """The designs that make sense on this device."""
    apart = scheduler.device is not None and scheduler.device.get("device", "cpu") != "cpu"
    return [name for name in RACEABLE if apart or not MODES[name].accelerator]


def some_of(*allowed: str) -> Any:
    """Reads choices with commas between them; where one of them is none, raises ValueError."""

    def read(text: str) -> list[str]:
        names = [name for name in text.split(",") if name]
        if len(set(names)) != len(names) or not set(names) <= set(allowed):
            raise ValueError(text)
        return names

    return read


def _prompt(text: str) -> str:
    if len(text) > LONGEST_IN_A_LINK:
        raise ValueError(text)
    return text


def look(scheduler: Scheduler, spec: CachesSpec) -> dict[str, Any] | None:
    """The buttons, and the document once there is one."""
    return measured(scheduler, spec, key="k", words=_foreseen(scheduler, spec), progress=progress)


def _foreseen(scheduler: Scheduler, spec: CachesSpec) -> str:
    seconds = seconds_of(spec, scheduler.device)
    often = "once" if spec.repeats == 1 else f"{spec.repeats} times"
    each = f"{len(spec.modes)} ways, each proven, {often} timed, and held against one text"
    return f"{each}." if seconds is None else f"{each}: about {lasting(seconds)} by estimate."


def progress(records: list[str]) -> tuple[float, str]:
    """How far a race is: a share, and which part is under way."""
    last = json.loads(records[-1]) if records else {}
    if last.get("t") != "part":
        return 0.0, "Loading the model …" if last.get("t") != "look" else "The tokens …"
    names = list(PARTS)
    share = (names.index(last["part"]) + last["done"] / max(1, last["of"])) / len(names)
    return min(1.0, share), f"Now {last['words']}: {last['done']} of {last['of']}"
