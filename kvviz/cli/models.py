"""`kvviz models`: the models that can be had by name."""

from contextlib import suppress

from kvviz.base.errors import KvvizError
from kvviz.cli.options import AsJson
from kvviz.cli.output import answer
from kvviz.models.catalog.rows import models as catalog_models
from kvviz.models.sources import beside_catalog, find_source, stored_weights
from kvviz.models.spec import ModelSpec


def models(as_json: AsJson = False) -> None:
    """List the models that kvviz knows by name."""
    rows: list[dict[str, object]] = [
        {
            "id": row.id,
            "family": row.family,
            "title": row.title,
            "layers": ModelSpec.from_config(row.config).decoder_layers,
            "params": row.params,
            "weights": stored_weights(row.id),
            "source": row.source,
        }
        for row in catalog_models().values()
    ]
    rows += [_pulled_row(name) for name in beside_catalog()]
    answer({"models": rows}, lambda: "\n".join(map(_line, rows)), as_json)


def _line(row: dict[str, object]) -> str:
    size = f"{row['layers'] or '?':>4} layers {row['params'] or 0:>16,} parameters"
    return f"{row['id']:<20}{row['title']:<34}{size}  {row['weights']}"


def _pulled_row(name: str) -> dict[str, object]:
    """The row of a model that `pull` fetched and that is not in the catalog."""
    family = layers = params = None
    with suppress(KvvizError):  # a broken file is named when the model is used
        source = find_source(name)
        if source.config is not None and source.spec is not None:
            family, layers, params = source.config["model_type"], source.spec.decoder_layers, source.params
    origin = f"https://huggingface.co/{name}"
    return {
        "id": name, "family": family, "title": name, "layers": layers, "params": params, "weights": "local",
        "source": origin,
    }  # fmt: skip
