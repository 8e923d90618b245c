"""The walk through one attention layer, step by step, in the browser."""

from dataclasses import asdict

from kvviz.decoding.scratch.listing import listing
from kvviz.experiments.inside.spec import AnatomySpec
from kvviz.server.scheduler import Scheduler
from kvviz.ui.folders import ASSETS_URL
from kvviz.ui.shared.component import component
from kvviz.ui.shared.experiment import requested

_walk = component("kvviz_anatomy", "anatomy/anatomy.js", "kv-anatomy kv-live")


def walk(scheduler: Scheduler, spec: AnatomySpec, head: int) -> None:
    """Draw the walk as its query head `head` sees it; whoever asks for the same inspection shares it."""
    work = requested(scheduler, spec)
    if work is None:
        return
    shown = listing()
    stages = [asdict(stage) for stage in shown.stages]
    _walk(
        key="anatomy",
        data={
            "look": work.id,
            "head": head,
            "assets": ASSETS_URL,
            "listing": {"lines": list(shown.lines), "start": shown.start, "stages": stages},
        },
    )
