"""/caches: the same prompt through cache designs: tokens, quality, memory as it is, and time."""

from kvviz.server.scheduler import scheduler
from kvviz.ui.caches.form import ask, expected, progress
from kvviz.ui.caches.results import draw
from kvviz.ui.frame.page import page
from kvviz.ui.shared.experiment import measured

with page("caches"):
    spec, bar = ask(scheduler())
    if spec is not None:
        words = expected(scheduler(), spec)
        measured(scheduler(), spec, draw, place=bar, key="k", words=words, progress=progress)
