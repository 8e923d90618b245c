"""The rows of the catalog, each with its source: models, accelerators, published byte figures, examples, sweeps."""

import json
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from kvviz.base.errors import KvvizError

HERE = Path(__file__).parent


@dataclass(frozen=True)
class ModelRow:
    """One published model: the config values that decide its sizes, its parameter count, and their source."""

    id: str
    family: str
    title: str
    hub: str | None
    params: int
    source: str
    config: dict[str, Any]

    @property
    def has_encoder(self) -> bool:
        """Whether it is an encoder-decoder, which writes a part of its cache once, from the encoder."""
        return bool(self.config.get("is_encoder_decoder"))


@dataclass(frozen=True)
class Accelerator:
    """One accelerator: its memory (bytes; `memory_note` says how that was read) and its advertised bandwidth.

    `flops_per_s`: advertised dense peaks by dtype, float32 without TF32; a peak without a source is absent.
    """

    id: str
    title: str
    vendor: str
    memory_bytes: int
    memory_note: str
    bandwidth_bytes_per_s: int | None
    source: str
    flops_per_s: dict[str, int]
    flops_source: str | None
    flops_note: str


@dataclass(frozen=True)
class Reference:
    """A published byte figure of a cache, for a catalog model or a `config` of its own.

    `printed` is how the source prints it, `tolerance_bytes` what its rounding leaves open. If the source is wrong,
    `bytes` is the true figure and `slip` says in one sentence what is printed and why it differs.
    """

    id: str
    title: str
    model: str | None
    config: dict[str, Any] | None
    view: str
    dtype: str
    tokens: int
    batch: int
    bytes: int
    printed: str
    tolerance_bytes: int
    method: str
    source: str
    slip: str | None = None

    @property
    def model_config(self) -> dict[str, Any]:
        """The config that the figure is for: its own, or that of its catalog model."""
        return self.config if self.config is not None else model_row(self.model or "").config

    def agrees(self, figure: int) -> bool:
        """Whether a figure (bytes) is the published one within its rounding."""
        return abs(figure - self.bytes) <= self.tolerance_bytes


@dataclass(frozen=True)
class Example:
    """Inputs of the calculator that show one point: every model at every length with every dtype of weights."""

    id: str
    title: str
    shows: str
    models: tuple[str, ...]
    tokens: tuple[int, ...]
    batch: int
    dtype: str
    weights_dtype: tuple[str, ...]
    view: str


@dataclass(frozen=True)
class Published:
    """A table that was printed elsewhere: its rows have those keys of a sweep's rows that were printed."""

    note: str
    rows: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Preset:
    """A sweep with a name: its grid, the question it answers, the published table to compare it with.

    `models` in the order of preference: the first one that the catalog has and the device can run is used. `gpu`: it
    shows something that only a GPU does. `prompt`: the text of which every prompt begins; None for random tokens.
    """

    id: str
    title: str
    question: str
    models: tuple[str, ...]
    modes: tuple[str, ...]
    prompt_tokens: tuple[int, ...]
    new_tokens: tuple[int, ...]
    batches: tuple[int, ...]
    repeats: int
    source: str | None
    published: Published | None
    dtypes: tuple[str, ...] = ("float32",)
    gpu: bool = False
    prompt: str | None = None


@cache
def models() -> dict[str, ModelRow]:
    """All rows by id, in the order in which a menu shows them."""
    return {row["id"]: ModelRow(**row) for row in _rows("models")}


@cache
def accelerators() -> dict[str, Accelerator]:
    """All accelerators by id, in the order in which a menu shows them."""
    return {row["id"]: Accelerator(**row) for row in _rows("accelerators")}


@cache
def references() -> tuple[Reference, ...]:
    """The published figures that the calculator is compared with."""
    return tuple(Reference(**row) for row in _rows("references"))


@cache
def examples() -> tuple[Example, ...]:
    """The calculator's one-click examples, in the order in which a page offers them."""
    return tuple(Example(**_with_tuples(row)) for row in _rows("examples"))


@cache
def presets() -> dict[str, Preset]:
    """The sweeps with a name, by id, in the order in which a page offers them."""
    rows = (_with_tuples(row) for row in _rows("sweeps"))
    tables = ((row, row["published"] and Published(**_with_tuples(row["published"]))) for row in rows)
    return {row["id"]: Preset(**{**row, "published": table}) for row, table in tables}


@cache
def heldout() -> str:
    """A story that the bundled models were not trained on; `tools/heldout.py` writes it."""
    return json.loads((HERE / "heldout.json").read_text())["text"]


@dataclass(frozen=True)
class FactWords:
    """The words of a kind of fact: the sentence that states it, the beginning that asks for it, what it may say."""

    name: str
    fact: str
    question: str
    answers: tuple[str, ...]


@dataclass(frozen=True)
class RecallWords:
    """What texts with facts to be recalled are made of; no bundled model was trained on these stories and answers."""

    source: str
    kinds: tuple[FactWords, ...]
    adjectives: tuple[str, ...]
    things: tuple[str, ...]
    stories: tuple[tuple[str, ...], ...]


@cache
def recall_words() -> RecallWords:
    """The words of the facts and the sentences of the stories; `tools/heldout.py` writes them."""
    found = json.loads((HERE / "recall.json").read_text())
    kinds = tuple(FactWords(**_with_tuples(kind)) for kind in found["kinds"])
    return RecallWords(**_with_tuples({**found, "kinds": kinds}))


def _rows(name: str) -> list[dict[str, Any]]:
    return json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))[name]


def _with_tuples(row: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}


def model_row(model_id: str) -> ModelRow:
    """The row of a catalog id. Raises KvvizError naming similar ids for any other id."""
    row = models().get(model_id)
    if row is None:
        raise KvvizError(f"no model {model_id!r} in the catalog; `kvviz models` lists {', '.join(near(model_id))} …")
    return row


def near(model_id: str) -> list[str]:
    """The four catalog ids most like a given one."""
    return get_close_matches(model_id.lower(), models(), n=4, cutoff=0.0)
