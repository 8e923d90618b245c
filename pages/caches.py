"""/caches: the same prompt through cache designs: tokens, quality, memory as it is, and time."""

from functools import partial

from kvviz.server.scheduler import scheduler
from kvviz.ui.caches.form import ask, caches_form, expected, progress
from kvviz.ui.caches.results import draw
from kvviz.ui.frame.page import page
from kvviz.ui.shared.experiment import measured

with page("caches"):
    form = caches_form(scheduler())
    spec, bar = ask(scheduler(), form)
    if spec is not None:
        words = expected(scheduler(), spec)
        measured(scheduler(), spec, partial(draw, form), place=bar, key="k", words=words, progress=progress)
