"""`kvviz pull`: models fetched into one folder, for a server without a network."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvviz.base.words import human
from kvviz.cli.options import AsJson
from kvviz.cli.output import answer
from kvviz.models import pull as pulling
from kvviz.models.pulled_folder import Pulled

if TYPE_CHECKING:
    from tqdm import tqdm


def pull(
    models: Annotated[list[str], typer.Argument(help="Catalog ids or Hugging Face ids, owner/name.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder; models already in it stay.")],
    as_json: AsJson = False,
) -> None:
    """Fetch models into one folder for a server without a network: safetensors, tokenizer, checksums."""
    orders = [pulling.order(model, output) for model in dict.fromkeys(models)]
    missing = pulling.check_room(orders, output)
    with _bytes_bar(missing) as bar:
        done = [pulling.carry_out(order, bar.update) for order in orders]
    folder = output.absolute()
    rows = [{**asdict(model), "folder": str(model.folder.absolute())} for model in done]
    advice = f"A server takes them with KVVIZ_MODELS={folder}"
    answer({"folder": str(folder), "models": rows}, lambda: "\n".join([*map(_line, done), advice]), as_json)


def _line(model: Pulled) -> str:
    origin = f"{model.repo} at {(model.revision or '')[:8]}" if model.repo else "comes with kvviz"
    licence = f"licence {model.licence}" if model.licence else "no licence stated"
    return f"{model.model}: {human(model.size)} in {model.folder} ({origin}, {licence})"


def _bytes_bar(missing: int) -> "tqdm":
    from tqdm import tqdm

    return tqdm(
        total=missing, unit="B", unit_scale=True, unit_divisor=1024, file=sys.stderr, leave=False, disable=not missing
    )
