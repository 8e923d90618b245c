"""Pins the text of one run and compares later runs of the same work with it. Standard library only."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypedDict, cast

from kvviz.base.errors import KvvizError
from kvviz.base.hashing import canonical, config_hash, digest
from kvviz.base.paths import home
from kvviz.experiments.comparison.records import Document, EnvironmentFields, Run
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.models.sources import find_source


@dataclass(frozen=True)
class Check:
    """Whether a run wrote the expected text; if not, the first step that chose another token, and the margin there.

    `margin` is the gap between the two best logits at that step of the checked run. It is None if it was not recorded,
    or if tokens were sampled, since then the best logit does not decide.
    """

    same: bool
    first_difference: int | None
    expected_text: str
    text: str
    margin: float | None
    sentence: str


class Key(TypedDict):
    """The work that an expected text depends on."""

    model: str
    weights: str
    config: str | None
    prompt: str | None
    prompt_tokens: int | None
    new_tokens: int
    batch: int
    sampling: dict[str, object]
    dtype: str


class PinnedRun(TypedDict):
    """The fields of a run that are pinned."""

    mode: str
    token_ids: list[int] | list[list[int]]
    text: str | list[str]
    top_margin: list[float] | None


class Pinned(TypedDict):
    """An expected text: the reference run of a document, and the comparison and environment it came from."""

    comparison: str
    environment: EnvironmentFields
    reference: str
    runs: list[PinnedRun]


def key_of(work: Document | ComparisonSpec) -> Key:
    """Return the key of an expected text. A comparison's document and the spec it came from have the same key.

    For a model from the Hugging Face Hub the key has no config hash, since its config is unknown before the download.
    For a prompt text the key has no token count, since the spec does not know it.
    """
    if isinstance(work, ComparisonSpec):
        source = find_source(work.model, work.weights)
        model, weights, config = source.model, source.weights, config_hash(source.config) if source.config else None
        prompt, tokens, new_tokens, batch = work.prompt, work.prompt_tokens, work.new_tokens, work.batch
        sampling, dtype = asdict(work.sampling), work.dtype
    else:
        model, weights, config = work["model"], work["weights"], work.get("config_hash")
        prompt, tokens, new_tokens = work.get("prompt"), work["prompt_tokens"], work["new_tokens"]
        sampling, dtype, batch = {**work["sampling"]}, work["environment"]["dtype"], work["batch"]
    return {
        "model": model,
        "weights": weights,
        "config": None if weights == "hub" else config,
        "prompt": prompt,
        "prompt_tokens": tokens if prompt is None else None,
        "new_tokens": new_tokens,
        "batch": batch,
        "sampling": {**sampling, "temperature": float(sampling["temperature"])},
        "dtype": dtype,
    }


def expected_of(document: Document) -> Pinned:
    """Return what is pinned of a document: the reference run's tokens and text, and where they came from."""
    run = next(run for run in document["runs"] if run["mode"] == document["reference"])
    pinned: PinnedRun = {
        "mode": run["mode"],
        "token_ids": run["token_ids"],
        "text": run["text"],
        "top_margin": run.get("top_margin"),
    }
    return {
        "comparison": document["id"],
        "environment": document["environment"],
        "reference": run["mode"],
        "runs": [pinned],
    }


def compare_expected(expected: Pinned | Document, document: Document) -> Check:
    """Compare a document's reference run with that of another document, or with a pinned one (`expected_of`)."""
    theirs, ours = _reference(expected), _reference(document)
    texts = (_text(theirs["text"]), _text(ours["text"]))
    step = _first_difference(_steps(theirs["token_ids"]), _steps(ours["token_ids"]))
    if step is None:
        return Check(
            True, None, *texts, None, f"the text is the expected one ({len(_steps(ours['token_ids']))} tokens)"
        )
    drawn = document["sampling"]["temperature"] > 0
    margins = [None if drawn else _margin(run, step) for run in (ours, theirs)]
    where = _where(theirs, ours, step)
    return Check(False, step, *texts, margins[0], f"{where}; {_how_near(margins, drawn)}")


def _reference(document: Pinned | Document) -> PinnedRun | Run:
    runs: Sequence[PinnedRun | Run] = document["runs"]
    return next(run for run in runs if run["mode"] == document["reference"])


def _text(text: str | Sequence[str]) -> str:
    """Join the texts of a batch, one per line."""
    return text if isinstance(text, str) else "\n".join(text)


def _steps(token_ids: list[int] | list[list[int]]) -> list[tuple[int, ...]]:
    """Return the ids of the batch at each step."""
    nested = bool(token_ids) and isinstance(token_ids[0], list)
    return list(zip(*cast(list[list[int]], token_ids if nested else [token_ids]), strict=True))


def _first_difference(expected: Sequence[object], found: Sequence[object]) -> int | None:
    common = min(len(expected), len(found))
    different = next((i for i in range(common) if expected[i] != found[i]), None)
    return common if different is None and len(expected) != len(found) else different


def _margin(run: PinnedRun | Run, step: int) -> float | None:
    margins = run.get("top_margin") or ()
    return margins[step] if step < len(margins) else None


def _where(expected: PinnedRun | Run, found: PinnedRun | Run, step: int) -> str:
    before, after = _steps(expected["token_ids"]), _steps(found["token_ids"])
    if step >= min(len(before), len(after)):
        return f"the text ends after {len(after)} tokens where {len(before)} were expected"
    here = " ".join(map(str, after[step]))
    return f"new token {step + 1} is {here} where {' '.join(map(str, before[step]))} was expected"


def _how_near(margins: Sequence[float | None], drawn: bool) -> str:
    if drawn:
        return "the tokens were drawn, so no logit margin decides"
    ours, theirs = ("an unknown margin" if margin is None else f"{margin:.3g}" for margin in margins)
    if margins == [None, None]:
        return "the logit margin there is not known"
    return f"the two best logits lay {ours} apart there, {theirs} when it was pinned"


# --- where pins are kept -----------------------------------------------------------------------------------------


class PinFiles:
    """Keeps expected texts as files, one per key."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or home() / "expected"

    def pin(self, key: Mapping[str, object], value: Mapping[str, object]) -> None:
        """Pin `value` for `key`, replacing an earlier pin."""
        path = self._path(key)
        written = path.with_suffix(".new")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            written.write_text(canonical({"key": dict(key), "value": dict(value)}), encoding="utf-8")
            written.replace(path)
        except OSError as error:
            raise KvvizError(f"{path} can't be written ({type(error).__name__})") from error

    def pinned(self, key: Mapping[str, object]) -> Pinned | None:
        """Return what is pinned for `key`, or None."""
        path = self._path(key)
        try:
            return json.loads(path.read_text(encoding="utf-8"))["value"] if path.exists() else None
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise KvvizError(f"{path} can't be read; delete it and pin again") from error

    def _path(self, key: Mapping[str, object]) -> Path:
        return self._folder / f"{digest(key)}.json"
