"""Every kind of experiment, a row each. A new kind is a folder beside this file and a row here.

Standard library only: a row names its `run` in text, and nothing here imports torch.
"""

from collections.abc import Mapping
from typing import Any

from kvviz.base.errors import KvvizError
from kvviz.experiments import limits
from kvviz.experiments.cache_designs import spec as cache_designs
from kvviz.experiments.comparison import spec as comparison
from kvviz.experiments.inside import spec as inside
from kvviz.experiments.kind import Kind, Spec
from kvviz.experiments.roofline import spec as roofline
from kvviz.experiments.serving import spec as serving
from kvviz.experiments.sweep import plan as sweep_plan
from kvviz.experiments.sweep import spec as sweep

_HERE = "kvviz.experiments"
_ROWS = (
    Kind(
        name="comparison",
        spec=comparison.ComparisonSpec,
        run=f"{_HERE}.comparison.run:run",
        check=comparison.check,
        estimate=comparison.estimate,
        kept=True,
    ),
    Kind(
        name="sweep",
        spec=sweep.SweepSpec,
        run=f"{_HERE}.sweep.run:run",
        check=sweep.check,
        estimate=sweep_plan.estimated,
        limit="sweep_seconds",
        kept=True,
        title=sweep.title,
    ),
    Kind(
        name="roofline",
        spec=roofline.RoofSpec,
        run=f"{_HERE}.roofline.run:run",
        check=roofline.check,
        estimate=roofline.estimate,
    ),
    Kind(
        name="caches",
        spec=cache_designs.CachesSpec,
        run=f"{_HERE}.cache_designs.run:run",
        check=limits.check_decodable,
        estimate=cache_designs.estimate,
    ),
    Kind(
        name="arrivals",
        spec=serving.ArrivalsSpec,
        run=f"{_HERE}.serving.run:arrivals",
        check=lambda spec, limits: None,  # no model is needed, and its ranges are checked at birth
    ),
    Kind(
        name="sharing",
        spec=serving.SharingSpec,
        run=f"{_HERE}.serving.run:sharing",
        check=limits.check_decodable,
        estimate=serving.estimate,
    ),
    Kind(
        name="conversation",
        spec=serving.TalkSpec,
        run=f"{_HERE}.serving.run:conversation",
        check=limits.check_decodable,
        estimate=serving.estimate,
    ),
    Kind(name="anatomy", spec=inside.LookSpec, run=f"{_HERE}.inside.run:run", check=limits.check_decodable),
    Kind(name="mistake", spec=inside.LookSpec, run=f"{_HERE}.inside.run:run", check=limits.check_decodable),
    Kind(
        name="first-steps",
        spec=inside.LookSpec,
        run=f"{_HERE}.inside.run:first_steps",
        check=lambda spec, limits: None,  # it brings its own untrained model
    ),
)
KINDS: dict[str, Kind] = {kind.name: kind for kind in _ROWS}


def kind_of(spec: Spec) -> Kind:
    """The row of a spec."""
    return KINDS[spec.kind]


def read_spec(kind: str, data: Mapping[str, Any]) -> Spec:
    """The spec of this kind that `to_dict` has written. Raises KvvizError where it is none."""
    if kind not in KINDS:
        raise KvvizError(f"no kind of experiment {kind!r}; there are {', '.join(KINDS)}")
    return KINDS[kind].spec.from_dict(data)
