"""/roofline: a model's prefills and decode steps under this device's measured ceilings."""

from kvviz.server.scheduler import scheduler
from kvviz.ui.frame.page import page
from kvviz.ui.roofline.form import ask, expected, kept, progress
from kvviz.ui.roofline.results import draw
from kvviz.ui.shared.experiment import measured

with page("roofline"):
    spec, bar = ask(scheduler())
    if spec is not None:
        words = expected(scheduler(), spec)
        measured(scheduler(), spec, draw, place=bar, key="r", words=words, progress=progress, kept=kept(spec.model))
