"""/serving: many sequences in one memory, prefixes that they share, a conversation; and the way from here to vLLM."""

from kvviz.server.scheduler import scheduler
from kvviz.ui.frame.page import page
from kvviz.ui.serving import arrivals, conversation, shared_prompt, to_vllm
from kvviz.ui.serving.form import serving_form
from kvviz.ui.shared.plots import fit_formulas

with page("serving"):
    fit_formulas()

    form = serving_form()
    arrivals.section(scheduler(), form)
    shared_prompt.section(scheduler(), form)
    conversation.section(scheduler(), form)
    form.write()
    to_vllm.section()
