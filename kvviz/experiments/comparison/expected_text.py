"""Pins the text of one run and compares later runs of the same work with it. Standard library only."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, cast

from kvviz.base.errors import KvvizError
from kvviz.base.hashing import canonical, config_hash, digest
from kvviz.base.paths import home
from kvviz.experiments.comparison.records import Document, Run
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.models.sources import find_source


class PinnedRun(TypedDict):
    """The fields of a run that are pinned."""

    mode: str
    token_ids: list[int] | list[list[int]]
    text: str | list[str]
    top_margin: list[float] | None


class Pinned(TypedDict):
    """An expected text: the reference run of a document, and the comparison and environment it came from."""

    comparison: str
    environment: dict[str, Any]
    reference: str
    runs: list[PinnedRun]


def key_of(work: Document | ComparisonSpec) -> dict[str, object]:
    """Return the work that an expected text depends on. A comparison's document and its spec have the same key.

    A model from the Hugging Face Hub has no config hash in it, since its config is unknown before the download; a
    prompt text has no token count, since the spec does not know it. A document does not say where its text was to end,
    so the key of one is that of a text of full length.
    """
    end: dict[str, object] = {}
    if isinstance(work, ComparisonSpec):
        source = find_source(work.model, work.weights)
        end = {name: getattr(work, name) for name in ("stop_at_eos", "stop_text") if getattr(work, name)}
        known: Mapping[str, Any] = {
            **work.to_dict(),
            "model": source.model,
            "weights": source.weights,
            "config_hash": config_hash(source.config) if source.config else None,
            "environment": {"dtype": work.dtype},
        }
    else:
        known = work
    return {
        **{name: known[name] for name in ("model", "weights", "new_tokens", "batch")},
        "config": None if known["weights"] == "hub" else known.get("config_hash"),
        "prompt": known.get("prompt"),
        "prompt_tokens": known["prompt_tokens"] if known.get("prompt") is None else None,
        "sampling": {**known["sampling"], "temperature": float(known["sampling"]["temperature"])},
        "dtype": known["environment"]["dtype"],
        **end,
    }


def expected_of(document: Document) -> Pinned:
    """Return what is pinned of a document: the reference run's tokens and text, and where they came from."""
    run, name = _reference(document), document["reference"]
    pinned = cast(PinnedRun, {field: run.get(field) for field in PinnedRun.__annotations__})
    return {"comparison": document["id"], "environment": document["environment"], "reference": name, "runs": [pinned]}


def compare_expected(expected: Pinned | Document, document: Document) -> tuple[bool, str]:
    """Whether a document's reference run chose the tokens of another one or of a pinned one, and a sentence.

    The sentence names the first token that differs and the margin between the two best logits there, if it was
    recorded; for sampled tokens the best logit does not decide.
    """
    theirs, ours = _reference(expected), _reference(document)
    before, after = _steps(theirs["token_ids"]), _steps(ours["token_ids"])
    common = min(len(before), len(after))
    step = next((i for i in range(common) if before[i] != after[i]), common)
    if before == after:
        return True, f"the text is the expected one ({len(after)} tokens)"
    if step == common:
        where = f"the text ends after {len(after)} tokens where {len(before)} were expected"
    else:
        here, there = (" ".join(map(str, ids)) for ids in (after[step], before[step]))
        where = f"new token {step + 1} is {here} where {there} was expected"
    if document["sampling"]["temperature"] > 0:
        return False, f"{where}; the tokens were drawn, so no logit margin decides"
    margins = [run.get("top_margin") or () for run in (ours, theirs)]
    near = [f"{found[step]:.3g}" if step < len(found) else "an unknown margin" for found in margins]
    if all(step >= len(found) for found in margins):
        return False, f"{where}; the logit margin there is not known"
    return False, f"{where}; the two best logits lay {near[0]} apart there, {near[1]} when it was pinned"


def compare_modes(document: Document) -> tuple[bool, list[str]]:
    """Whether each exact mode chose the reference's tokens, and a sentence for each mode that did not."""
    others = [run for run in document["runs"] if not run["identical"]]
    parts = (
        f"{run['mode']} is {_kind(run)}, and from new token "
        f"{cast(int, run['first_divergence']) + 1} on its tokens are not those of {document['reference']}"
        for run in others
    )
    return not any(run["exact"] for run in others), list(parts)


def _kind(run: Run) -> str:
    lossy = "lossy" if run.get("drafted") is None else "sampled (same distribution, other draws)"
    return "exact" if run["exact"] else lossy


def _reference(document: Pinned | Document) -> PinnedRun | Run:
    runs: Sequence[PinnedRun | Run] = document["runs"]
    return next(run for run in runs if run["mode"] == document["reference"])


def _steps(token_ids: list[int] | list[list[int]]) -> list[tuple[int, ...]]:
    """Return the ids of the batch at each step."""
    nested = bool(token_ids) and isinstance(token_ids[0], list)
    return list(zip(*cast(list[list[int]], token_ids if nested else [token_ids]), strict=True))


def pin(key: Mapping[str, object], value: Mapping[str, object]) -> None:
    """Pin `value` for `key`, replacing an earlier pin; each is a file of its own under KVVIZ_HOME."""
    path = _path(key)
    written = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(canonical({"key": dict(key), "value": dict(value)}), encoding="utf-8")
        written.replace(path)
    except OSError as error:
        raise KvvizError(f"{path} can't be written ({type(error).__name__})") from error


def pinned(key: Mapping[str, object]) -> Pinned | None:
    """Return what is pinned for `key`, or None."""
    path = _path(key)
    try:
        return json.loads(path.read_text(encoding="utf-8"))["value"] if path.exists() else None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise KvvizError(f"{path} can't be read; delete it and pin again") from error


def _path(key: Mapping[str, object]) -> Path:
    return home() / "expected" / f"{digest(key)}.json"
