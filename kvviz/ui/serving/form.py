"""The serving page's form, which its sections share, and the words around their measurements."""

from collections.abc import Mapping

import streamlit as st

from kvviz.base.words import lasting, millis
from kvviz.experiments.batching.policies import POLICIES
from kvviz.experiments.batching.words import mark
from kvviz.experiments.eta import seconds_of
from kvviz.experiments.kind import Record
from kvviz.experiments.load.spec import LoadSpec
from kvviz.experiments.serving.spec import EDITED, FIRST, SECOND, SYSTEM, PrefixesSpec, SharingSpec, TalkSpec
from kvviz.models.sources import weights_in_words
from kvviz.server.scheduler import Scheduler
from kvviz.ui.shared.experiment import Document
from kvviz.ui.shared.form import Field, Form, one_of, whole
from kvviz.ui.shared.model_choice import accepted, model_field, small_models

PARTS = (  # tabs: who runs, how many fit, what is shared, and all of it on real servers
    "Continuous batching",
    "Load",
    "Fragmentation",
    "Preemption",
    "Prefix sharing",
    "Eviction",
    "A conversation",
    "To vLLM",
    "A real server",
)
RATES = (0.25, 0.5, 1.0, 2.0, 4.0)
LOADS = (10, 20, 40, 80, 160)
PERCENTS = (50, 65, 80, 100)
MEMORIES = (256, 512, 1024)
TIGHT = (384, 512, 640, 1024)  # slots: of those few, one is enough for all
PLACES = (4, 8, 16, 32)
SECONDS = (10, 20, 40, 80)
TTFTS = (10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)  # ms
ITLS = (2, 3, 5, 7, 10, 15, 20, 30, 50, 100, 200)
SLOTS = (512, 1024, 2048, 4096)
LONGEST = (64, 128, 256, 512)
STREAMS = (4, 8, 16, 32, 64)
PIECES = (16, 32, 64, 128, 256)  # new tokens of a request to a server


def serving_form() -> Form:
    """The page's fields, as the link that arrived or an earlier visit has filled them."""
    return Form(
        "serving",
        "v_",
        part=Field(PARTS[0], one_of(*PARTS)),
        requests=Field(80, whole),
        rate=Field(1.0, one_of(*RATES)),
        slots=Field(2048, one_of(*SLOTS)),
        longest=Field(256, one_of(*LONGEST)),
        seed=Field(0, whole),
        load=Field(80, one_of(*LOADS)),
        memory=Field(512, one_of(*MEMORIES)),
        tight=Field(512, one_of(*TIGHT)),
        policy=Field(LoadSpec.policy, one_of(*POLICIES)),
        places=Field(LoadSpec.places, one_of(*PLACES)),
        seconds=Field(LoadSpec.seconds, one_of(*SECONDS)),
        ttft=Field(100, one_of(*TTFTS)),
        itl=Field(10, one_of(*ITLS)),
        percent=Field(65, one_of(*PERCENTS)),
        asks=Field(4, whole),
        drop=Field(16, whole),
        model=model_field(small_models("prefix")),
        system=Field(SYSTEM),
        first=Field(FIRST),
        second=Field(SECOND),
        edited=Field(EDITED),
        endpoint=Field(""),  # never from a link, whose maker would choose where a key goes
        endpoint_model=Field(""),
        kv_events=Field(""),
        streams=Field(8, one_of(*STREAMS)),
        pieces=Field(64, one_of(*PIECES)),
    )


def expected(scheduler: Scheduler, spec: SharingSpec | TalkSpec | PrefixesSpec) -> str:
    """What the measurement will do and how long it takes. Raises KvvizError for what the worker would refuse."""
    accepted(scheduler, spec.work())
    seconds = seconds_of(spec, scheduler.device)
    words = f"{spec.served}, each with an answer of {spec.new_tokens} tokens"
    return f"{words}: about {lasting(seconds)}." if seconds is not None else f"{words}."


def progress(last: Record) -> tuple[float, str]:
    """How far the measurement is: a share, and what was served last."""
    if last.get("t") in ("way", "blocks"):
        return last["done"] / last["of"], f"{last['done']} of {last['of']}: {last['title']}"
    return 0.0, "Serving …" if last.get("t") in ("look", "part") else "Loading …"


def whose(found: Document) -> str:
    """Say which model, in which precision and on which device, the figures are of."""
    here = found.get("environment") or {"dtype": found["dtype"], "device_name": found["device"]}
    return f"{found['title']}, {weights_in_words(found['weights'])}, {here['dtype']}, on {here['device_name']}"


def where(found: Document) -> None:
    """Say where the figures come from, under them."""
    engine = "in kvviz's own engine (*Start here* runs transformers with its own cache)"
    rounds = f"medians and quartiles of {found['spec']['repeats']} rounds, cold and warm in turn"
    st.caption(f"{whose(found)}, {engine}; {rounds}. {found['note']}")


def times_of(row: Document, heads: Mapping[str, str]) -> dict[str, object]:
    """The fields of a row that `heads` names, in seconds, as cells of a table."""
    return {head: "–" if row[name] is None else mark(row) + millis(row[name]) for head, name in heads.items()}
