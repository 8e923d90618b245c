"""Every kind of experiment, a row each: a new kind is a folder beside this file and a row here. Imports no torch."""

from typing import Any

from kvviz.base.errors import KvvizError
from kvviz.experiments.architectures import spec as architectures
from kvviz.experiments.batching import spec as batching
from kvviz.experiments.cache_designs import spec as cache_designs
from kvviz.experiments.comparison import spec as comparison
from kvviz.experiments.comparison.figures import figures_record
from kvviz.experiments.concurrency import spec as concurrency
from kvviz.experiments.forgetting import spec as forgetting
from kvviz.experiments.inside import spec as inside
from kvviz.experiments.kind import Kind, Spec
from kvviz.experiments.limits import check_decodable
from kvviz.experiments.load import spec as load
from kvviz.experiments.recall import spec as recall
from kvviz.experiments.roofline import spec as roofline
from kvviz.experiments.serving import spec as serving
from kvviz.experiments.sweep import plan as sweep_plan
from kvviz.experiments.sweep import spec as sweep

_ROWS = (
    Kind(
        comparison.ComparisonSpec,
        comparison.check,
        comparison.estimate,
        kept=True,
        live=True,
        rehearsal=comparison.rehearsal,
        closing=figures_record,
    ),
    Kind(sweep.SweepSpec, sweep.check, sweep_plan.estimated, limit="sweep_seconds", kept=True, title=sweep.title),
    Kind(roofline.RoofSpec, roofline.check, roofline.estimate),
    Kind(cache_designs.CachesSpec, check_decodable, cache_designs.estimate),
    Kind(recall.RecallSpec, check_decodable),
    Kind(forgetting.ForgettingSpec, check_decodable, forgetting.estimate),
    Kind(serving.ArrivalsSpec, lambda spec, limits: None, run="arrivals"),  # it decodes no model
    Kind(serving.SharingSpec, check_decodable, serving.estimate, run="sharing"),
    Kind(serving.TalkSpec, check_decodable, serving.estimate, run="conversation"),
    Kind(serving.PrefixesSpec, check_decodable, serving.estimate, run="prefixes"),
    Kind(batching.BatchingSpec, check_decodable),
    Kind(load.LoadSpec, check_decodable, load.estimate),
    Kind(concurrency.ConcurrencySpec, concurrency.check, private=True),
    Kind(inside.AnatomySpec, check_decodable, run="anatomy"),
    Kind(inside.MistakeSpec, check_decodable, run="mistake"),
    Kind(inside.FirstStepsSpec, lambda spec, limits: None, run="first_steps"),  # it brings its own untrained model
    Kind(architectures.ArchitectureSpec, lambda spec, limits: None),  # and so does this
)
KINDS: dict[str, Kind[Any]] = {kind.name: kind for kind in _ROWS}


def kind_of(spec: Spec) -> Kind[Any]:
    """Look up the row of a spec."""
    return KINDS[spec.kind]


def read_spec(kind: str, data: object) -> Spec:
    """Read the spec that `to_dict` of this kind wrote. Raises KvvizError if it does not fit."""
    if kind not in KINDS:
        raise KvvizError(f"no kind of experiment {kind!r}; there are {', '.join(KINDS)}")
    spec: Spec = KINDS[kind].spec.from_dict(data)
    return spec
