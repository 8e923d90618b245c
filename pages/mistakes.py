"""/mistakes: every mistake of a first KV cache, really made, beside the loop that does it right."""

from kvviz.server.scheduler import scheduler
from kvviz.ui.frame.page import page
from kvviz.ui.mistakes.form import ask
from kvviz.ui.mistakes.results import show
from kvviz.ui.shared.experiment import inspected

with page("mistakes"):
    spec, mistake, bar = ask()
    if spec is not None:
        inspected(scheduler(), spec, show, place=bar, wanted=lambda found: found["mistake"] == mistake)
