"""The expected text of a piece of work: pinned from one run, held against later ones. Standard library only."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from kvviz.base.errors import KvvizError
from kvviz.base.hashing import canonical, config_hash, digest
from kvviz.base.paths import home
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.models.sources import find_source


@dataclass(frozen=True)
class Check:
    """Whether a run wrote the expected text; else the first step with another token, and how near the choice was.

    `margin`: how far the two best logits lay apart at that step in the run that was checked; None where no run tells
    it, or where tokens were drawn, so that the best logit did not decide.
    """

    same: bool
    first_difference: int | None
    expected_text: str
    text: str
    margin: float | None
    sentence: str


def key_of(work: Mapping[str, Any] | ComparisonSpec) -> dict[str, Any]:
    """What the expected text depends on: the same of a comparison's document and of the spec that led to it.

    Model (its weights and the hash of its config), prompt, number and drawing of tokens, precision. A model from the
    Hugging Face Hub has no hash here: its config is not known before it is fetched.
    """
    if isinstance(work, ComparisonSpec):
        return _key_of_spec(work)
    return _key(
        model=work["model"],
        weights=work["weights"],
        config=work.get("config_hash"),
        prompt=work.get("prompt"),
        prompt_tokens=work["prompt_tokens"],
        new_tokens=work["new_tokens"],
        batch=work["batch"],
        sampling=work["sampling"],
        dtype=work["environment"]["dtype"],
    )


def _key_of_spec(work: ComparisonSpec) -> dict[str, Any]:
    source = find_source(work.model, work.weights)
    return _key(
        model=source.model,
        weights=source.weights,
        config=config_hash(source.config) if source.config else None,
        prompt=work.prompt,
        prompt_tokens=work.prompt_tokens,
        new_tokens=work.new_tokens,
        batch=work.batch,
        sampling=asdict(work.sampling),
        dtype=work.dtype,
    )


def _key(**parts: Any) -> dict[str, Any]:
    """A text's tokens are counted by its tokenizer, so the text stands for them."""
    tokens = None if parts["prompt"] is not None else parts["prompt_tokens"]
    config = None if parts["weights"] == "hub" else parts["config"]
    sampling = {**parts["sampling"], "temperature": float(parts["sampling"]["temperature"])}
    return {**parts, "prompt_tokens": tokens, "config": config, "sampling": sampling}


def expected_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """What is pinned of a document: the reference run's tokens and text, and where they came from."""
    run = _reference(document)
    return {
        "comparison": document["id"],
        "environment": document["environment"],
        "reference": run["mode"],
        "runs": [{name: run.get(name) for name in ("mode", "token_ids", "text", "top_margin")}],
    }


def compare_expected(expected: Mapping[str, Any], document: Mapping[str, Any]) -> Check:
    """Hold the reference run of a document against another document's, or against what `expected_of` kept of it."""
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


def _reference(document: Mapping[str, Any]) -> Mapping[str, Any]:
    return next(run for run in document["runs"] if run["mode"] == document["reference"])


def _text(text: str | Sequence[str]) -> str:
    """The texts of a batch under one another."""
    return text if isinstance(text, str) else "\n".join(text)


def _steps(token_ids: Sequence[Any]) -> list[tuple[int, ...]]:
    """The ids of the batch at each step."""
    rows = token_ids if token_ids and not isinstance(token_ids[0], int) else [token_ids]
    return list(zip(*rows, strict=True))


def _first_difference(expected: Sequence[Any], found: Sequence[Any]) -> int | None:
    common = min(len(expected), len(found))
    different = next((i for i in range(common) if expected[i] != found[i]), None)
    return common if different is None and len(expected) != len(found) else different


def _margin(run: Mapping[str, Any], step: int) -> float | None:
    margins = run.get("top_margin") or ()
    return margins[step] if step < len(margins) else None


def _where(expected: Mapping[str, Any], found: Mapping[str, Any], step: int) -> str:
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


class Pins(Protocol):
    """What keeps expected texts: the store of runs, or `PinFiles` where that is not installed."""

    def pin(self, key: Mapping[str, Any], value: Mapping[str, Any]) -> None: ...

    def pinned(self, key: Mapping[str, Any]) -> dict[str, Any] | None: ...


class PinFiles:
    """Expected texts as files, one for each key."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or home() / "expected"

    def pin(self, key: Mapping[str, Any], value: Mapping[str, Any]) -> None:
        """Keep `value` as what is expected of `key`, instead of what was."""
        path = self._path(key)
        written = path.with_suffix(".new")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            written.write_text(canonical({"key": dict(key), "value": dict(value)}), encoding="utf-8")
            written.replace(path)
        except OSError as error:
            raise KvvizError(f"{path} can't be written ({type(error).__name__})") from error

    def pinned(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """What is expected of `key`, None where nothing is."""
        path = self._path(key)
        try:
            return json.loads(path.read_text(encoding="utf-8"))["value"] if path.exists() else None
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise KvvizError(f"{path} can't be read; delete it and pin again") from error

    def _path(self, key: Mapping[str, Any]) -> Path:
        return self._folder / f"{digest(key)}.json"
