"""/roofline: a model's prefills and decode steps under this device's measured ceilings; where a step's time goes."""

from kvviz.server.scheduler import scheduler
from kvviz.ui.frame.page import page
from kvviz.ui.roofline.form import ask, expected, progress
from kvviz.ui.roofline.results import draw
from kvviz.ui.shared.experiment import measured

with page("roofline"):
    spec = ask(scheduler())
    if spec is not None:
        measured(scheduler(), spec, draw, key="r", words=expected(scheduler(), spec), progress=progress)
