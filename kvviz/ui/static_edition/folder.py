"""Writes the folder of the static edition: the pages' scripts, a bundled model, and all that they show as one file."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from kvviz.base.errors import KvvizError
from kvviz.base.precision import PRECISIONS, WEIGHT_BITS
from kvviz.charts import palette
from kvviz.decoding.scratch.listing import listing
from kvviz.experiments.comparison.curve_fit import student
from kvviz.experiments.comparison.in_browser import FILES, decoded_there, order_of
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.inside.letters import walk
from kvviz.experiments.inside.spec import AnatomySpec
from kvviz.experiments.kind import Record
from kvviz.memory.engine_views import VIEWS
from kvviz.models.catalog.rows import models
from kvviz.models.layers import LayerSpec
from kvviz.models.sources import bundled_folder, find_source
from kvviz.models.spec import ModelSpec
from kvviz.models.text import STORY
from kvviz.ui.folders import ASSETS
from kvviz.ui.frame.page import TEXTS as WORDS
from kvviz.ui.frame.tour import STOPS

PARTS = ("anatomy", "engine", "frame", "live", "shared", "static", "vendor")  # of the assets
LEFT_OUT = (".c", ".sh", ".sha256", "h100-gpt2.json.gz", "index.html")  # endings of files that no page of it reads
OWN_VIEWS = ("architecture", "hf-dynamic", "hf-static")  # what its calculator has the rules of
PAGES = ("start", "live", "anatomy", "memory")
NEW_TOKENS = 64
MOST_REPEATS = 20  # degrees of freedom for which an interval can be asked


def anatomy_of(model: str) -> AnatomySpec:
    """Return the inspection whose records the edition walks through. Raises KvvizError for a model without weights."""
    if bundled_folder(model) is None:
        raise KvvizError("a static edition takes a model that comes with kvviz: mini-gpt2 or mini-qwen3")
    return AnatomySpec(model, STORY, new_tokens=5, weights="bundled")


def check_empty(folder: Path) -> None:
    """Raise KvvizError unless the folder is new or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise KvvizError(f"{str(folder)[:200]} is not empty; name a new or an empty folder")


def write(folder: Path, model: str, anatomy: Sequence[Record]) -> int:
    """Write the edition into a new or empty folder; returns its bytes. `anatomy`: the records of `anatomy_of(model)`.

    Raises KvvizError for a folder that holds something or can't be written.
    """
    try:
        check_empty(folder)
        target = folder / "assets"
        for part in PARTS:
            for file in (path for path in sorted((ASSETS / part).iterdir()) if not path.name.endswith(LEFT_OUT)):
                _copy(file, target / part / file.name)
        source = find_source(model, "bundled")
        assert source.folder is not None
        for name in FILES.values():
            _copy(source.folder / name, target / "models" / model / name)
        _copy(ASSETS / "static" / "index.html", folder / "index.html")
        text = json.dumps(data(model, anatomy), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        (folder / "data.json").write_text(text, encoding="utf-8")
    except OSError as error:
        raise KvvizError(f"{str(folder)[:200]} can't be written ({type(error).__name__})") from error
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _copy(file: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, to)


def data(model: str, anatomy: Sequence[Record]) -> Record:
    """Return all that the edition's pages show, as JSON values."""
    work = ComparisonSpec(
        model, modes=("uncached", "cached"), weights="bundled", prompt=STORY, new_tokens=NEW_TOKENS, dtype="float32"
    )
    dark = {name: palette.ON_DARK[colour] for name, colour in palette.MEANINGS.items()}
    source = find_source(model, "bundled")
    return {
        "pages": {name: {part: WORDS[name][part] for part in ("title", "opening")} for name in PAGES},
        "model": {"id": model, "title": source.title},
        "order": order_of(decoded_there(work)),
        "look": {
            "colours": {"light": palette.LIGHT, "dark": palette.DARK},
            "meanings": {"light": palette.MEANINGS, "dark": dark},
            "dash": palette.DASH,
            "marker": palette.MARKER,
        },
        "student": [student(freedom) for freedom in range(1, MOST_REPEATS)],
        "anatomy": list(anatomy),
        "listing": listing().as_dict(),
        "letters": [asdict(moment) for moment in walk()],
        "tour": [
            {name: getattr(stop, name) for name in ("title", "page", "say", "press", "notice", "query")}
            for stop in STOPS
            if stop.page in PAGES
        ],
        **tables(),
        "models": [row_of(name) for name in models()],
    }


def tables() -> Record:
    """Return what the calculator reads beside the models."""
    views = {
        name: {"title": view.title, "rule": view.rule, "hf": view.hf, "dtypes": list(view.dtypes)}
        for name, view in VIEWS.items()
        if name in OWN_VIEWS
    }
    return {
        "precisions": {name: asdict(row) for name, row in PRECISIONS.items()},
        "weight_bits": dict(WEIGHT_BITS),
        "views": views,
    }


def row_of(name: str) -> Record:
    """Return a catalog model as the calculator reads it: each different layer once, and the order of all of them."""
    source = find_source(name)
    spec = ModelSpec.from_config(source.config or {}, name=source.title)
    different = list(dict.fromkeys(spec.layers))
    order: list[list[int]] = []
    for layer in spec.layers:
        place = different.index(layer)
        if order and order[-1][1] == place:
            order[-1][0] += 1
        else:
            order.append([1, place])
    own = {name: getattr(spec, name) for name in ("context", "source_tokens", "crossing")}
    about = {
        "id": name,
        "title": source.title,
        "params": source.params,
        "own": spec.decoder_layers,
        "notes": spec.notes,
    }
    return {**about, **own, "order": order, "layers": [_layer(layer) for layer in different]}


def _layer(layer: LayerSpec) -> Record:
    """Return a layer as values; of its states what decides their bytes."""
    states = [
        {"elements": state.elements, "float32": state.float32, "integer": state.integer} for state in layer.states
    ]
    stored = _layer(layer.stored) if layer.stored else None
    return {**asdict(replace(layer, stored=None)), "states": states, "stored": stored}
