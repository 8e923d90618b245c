"""/serving: many sequences in one memory, prefixes that they share, a conversation; and the way from here to vLLM."""

from functools import partial

from kvviz.server.scheduler import Scheduler, scheduler
from kvviz.ui.frame.page import page
from kvviz.ui.serving import (
    arrivals,
    batching,
    conversation,
    conversations,
    load,
    preemption,
    real_server,
    shared_prompt,
    to_vllm,
)
from kvviz.ui.serving.form import PARTS, serving_form
from kvviz.ui.shared.form import Form
from kvviz.ui.shared.stop_and_think import think
from kvviz.ui.shared.tabs import draw_tabs


def _batching(scheduler: Scheduler, form: Form) -> None:
    batching.section(scheduler, form)
    think("serving")


SECTIONS = (  # in the order of PARTS
    _batching,
    load.section,
    arrivals.section,
    preemption.section,
    shared_prompt.section,
    conversations.section,
    conversation.section,
    lambda scheduler, form: to_vllm.section(),
    real_server.section,
)

with page("serving"):
    form = serving_form()
    drawn = [partial(section, scheduler(), form) for section in SECTIONS]
    draw_tabs(dict(zip(PARTS, drawn, strict=True)), form.key("part"), form["part"])
    form.write()
