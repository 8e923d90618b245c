"""`kvviz models` and `kvviz pull`: the models that can be had by name, and fetched for a server without a network."""

import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, cast

import typer

from kvviz.base.errors import KvvizError
from kvviz.base.words import human
from kvviz.cli.options import AsJson
from kvviz.cli.output import answer
from kvviz.experiments.kind import Device, described
from kvviz.models import pull as pulling
from kvviz.models.catalog.rows import models as catalog_models
from kvviz.models.pulled_folder import Pulled
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
    device = _device()
    answer(
        {"models": rows, "device": device}, lambda: "\n".join([*map(_row_text, rows), *_device_text(device)]), as_json
    )


def _device() -> Device | None:
    """The device on which `auto` would run them; None on a machine without torch."""
    if find_spec("torch") is None:
        return None
    from kvviz.device.environment import about, default_place

    place = default_place()
    return cast(Device, {**about(place.device), "why": place.why})


def _device_text(device: Device | None) -> list[str]:
    if device is None:
        return []
    return ["", f"on {described(device)}", *([device["why"]] if device["why"] else [])]


def _row_text(row: dict[str, object]) -> str:
    size = f"{row['layers'] or '?':>4} layers {row['params'] or 0:>16,} parameters"
    return f"{row['id']:<19} {row['title']:<33} {size}  {row['weights']}"


def _pulled_row(name: str) -> dict[str, object]:
    """The row of a model that `pull` fetched and that is not in the catalog."""
    family = layers = params = None
    with suppress(KvvizError):  # a broken file is named when the model is used
        source = find_source(name)
        if source.config is not None and source.spec is not None:
            family, layers, params = source.config["model_type"], source.spec.decoder_layers, source.params
    row = {"id": name, "family": family, "title": name, "layers": layers, "params": params}
    return {**row, "weights": "local", "source": f"https://huggingface.co/{name}"}


def pull(
    models: Annotated[list[str], typer.Argument(help="Catalog ids or Hugging Face ids, owner/name.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder; models already in it stay.")],
    as_json: AsJson = False,
) -> None:
    """Fetch models into one folder for a server without a network: safetensors, tokenizer, checksums."""
    from tqdm import tqdm

    orders = [pulling.order(model, output) for model in dict.fromkeys(models)]
    missing = pulling.check_room(orders, output)
    scale = {"unit": "B", "unit_scale": True, "unit_divisor": 1024}
    with tqdm(total=missing, **scale, file=sys.stderr, leave=False, disable=not missing) as bar:
        done = [pulling.carry_out(order, bar.update) for order in orders]
    folder = output.absolute()
    rows = [{**model.to_dict(), "folder": str(model.folder.absolute())} for model in done]
    advice = f"A server takes them with KVVIZ_MODELS={folder}"
    answer({"folder": str(folder), "models": rows}, lambda: "\n".join([*map(_pulled_text, done), advice]), as_json)


def _pulled_text(model: Pulled) -> str:
    origin = f"{model.repo} at {(model.revision or '')[:8]}" if model.repo else "comes with kvviz"
    licence = f"licence {model.licence}" if model.licence else "no licence stated"
    return f"{model.model}: {human(model.size)} in {model.folder} ({origin}, {licence})"
