"""/caches: the same prompt through cache designs: tokens, quality, memory as it is, and time."""

from kvviz.server.scheduler import scheduler
from kvviz.ui.caches.form import ask, expected, progress
from kvviz.ui.caches.results import draw
from kvviz.ui.frame.page import page
from kvviz.ui.shared.experiment import measured

with page("caches"):
    spec = ask(scheduler())
    if spec is not None:
        measured(scheduler(), spec, draw, key="k", words=expected(scheduler(), spec), progress=progress)
