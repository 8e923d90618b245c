"""What the fields of a comparison's document may be, and which of them have to agree with each other."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

from kvviz.base.checks import Check, Unfit, flag, list_of, maybe, number, object_of, short_name, text, whole
from kvviz.cost.flops import Rates
from kvviz.cost.predict import bias, off_by
from kvviz.cost.step_estimate import WORDS
from kvviz.store.files.recording import ACCOUNT, ENVIRONMENT, PACES, REASONS, SAMPLING

_BYTES = whole()
_SECONDS = number(0, 1e6)
_SHAPE = list_of(whole(), 8)
_LAYER = object_of(
    {
        "index": whole(0, 10_000),
        "kind": text(20),
        **dict.fromkeys(("kv_heads", "key_dim", "value_dim", "window"), maybe(whole())),
        **dict.fromkeys(("seen", "held"), whole()),
        **dict.fromkeys(("key_shape", "value_shape"), _SHAPE),
        "dtype": text(20),
        **dict.fromkeys(("nbytes", "allocated"), _BYTES),
        "state_bytes": maybe(_BYTES),
    }
)
_MEMORY = object_of(
    {**dict.fromkeys(("formula", "tensors", "storages"), _BYTES), "allocator": maybe(ACCOUNT), "reasons": REASONS},
    optional=("reasons",),
)


def _for_each_sequence(check: Check) -> Check:
    """Such a value, or a list with one for each sequence of a batch."""
    several = list_of(check, 10_000)
    return lambda value, name: several(value, name) if isinstance(value, list) else check(value, name)


def _tokens(value: Any, name: str) -> list[Any]:
    """A flat list of ids, or one list of ids for each sequence."""
    nested = isinstance(value, list) and value and isinstance(value[0], list)
    return list_of(_IDS, 10_000)(value, name) if nested else _IDS(value, name)


_IDS = list_of(whole())

# What a run may lack, with what stands in its place.
_RUN_DEFAULTS: dict[str, Any] = {
    "divergence_margin": None,
    "repeatable": True,
    "itl_p99_s": None,
    "outliving_bytes": None,
    "memory": None,
    "top_margin": None,
    "estimate": None,
    "predicted_s": None,
    "prediction_error": None,
    "prediction_bias": None,
}
_ESTIMATE = object_of({"tokens": whole(1), **dict.fromkeys(WORDS, _SECONDS)})
_RUN = object_of(
    {
        "id": text(120),
        "mode": short_name,
        "exact": flag,
        "token_ids": _tokens,
        "text": _for_each_sequence(text(1_000_000)),
        "identical": flag,
        "first_divergence": maybe(whole()),
        "divergence_margin": maybe(number(0)),
        "max_abs_logit_diff": maybe(number(0)),
        "repeatable": flag,
        "ttft_s": _SECONDS,
        **dict.fromkeys(("itl_s", "itl_mean_s", "itl_p99_s"), maybe(_SECONDS)),
        "tokens_per_s": number(0),
        "total_s": number(1e-9, 1e9),
        **dict.fromkeys(("step_s", "step_s_q1", "step_s_q3"), list_of(_SECONDS)),
        "speedup": maybe(number(0)),
        "cache_class": maybe(text(100)),
        **dict.fromkeys(("cache_bytes", "allocated_bytes"), list_of(_BYTES)),
        "outliving_bytes": maybe(list_of(_BYTES)),
        "layers": list_of(_LAYER, 10_000),
        "memory": maybe(_MEMORY),
        "peak_bytes": maybe(number()),
        "peak_kind": maybe(text(40)),
        "top_margin": maybe(list_of(number(0))),
        "estimate": maybe(_ESTIMATE),
        "predicted_s": maybe(list_of(_SECONDS)),
        "prediction_error": maybe(number(0)),
        "prediction_bias": maybe(number(-1)),
    },
    optional=tuple(_RUN_DEFAULTS),
)
_DEFAULTS: dict[str, Any] = {
    "prompt": None,
    "config_hash": None,
    "rates": None,
    "paces": None,
    "sampling": {"temperature": 0.0, "top_k": None, "top_p": None, "seed": 0},
}
_DOCUMENT = object_of(
    {
        "id": text(80),
        "environment": ENVIRONMENT,
        "rates": maybe(object_of(dict.fromkeys(Rates.__dataclass_fields__, number(1e-12, 1e18)))),
        "paces": maybe(PACES),
        "model": text(1000),
        "weights": text(20),
        "config_hash": maybe(text(64)),
        "prompt": maybe(text(2_000_000)),
        "prompt_tokens": whole(1),
        "new_tokens": whole(1),
        "batch": whole(1, 10_000),
        "warmup": whole(0, 1000),
        "repeats": whole(1, 1000),
        "sampling": SAMPLING,
        "reference": short_name,
        "identical": flag,
        "runs": list_of(_RUN, 40),
    },
    optional=tuple(_DEFAULTS),
)


def document(value: Any) -> dict[str, Any]:
    """A document with known fields only, each checked, the whole consistent. Raises Unfit."""
    checked = _filled(_DOCUMENT(value, "the document"), _DEFAULTS)
    checked["runs"] = [_filled(run, _RUN_DEFAULTS) for run in checked["runs"]]
    modes = [run["mode"] for run in checked["runs"]]
    _hold(bool(modes) and len(set(modes)) == len(modes), "runs have to be of one mode or more, each named once")
    _hold(checked["reference"] in modes, "reference has to be the mode of a run")
    for run in checked["runs"]:
        _hold_lengths(run, checked["batch"], checked["new_tokens"])
        _hold_figures(run, checked["batch"])
        _hold_prediction(run)
    _hold_identity(checked)
    _hold_speedups(checked["runs"])
    told = all(run["estimate"] is None for run in checked["runs"])
    _hold(told or checked["rates"] is not None, "an estimate has to come with the rates that it is made from")
    told = all(run["predicted_s"] is None for run in checked["runs"])
    _hold(told or checked["paces"] is not None, "a prediction has to come with the paces that it is made from")
    return checked


def _filled(values: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    return {**values, **{name: default for name, default in defaults.items() if name not in values}}


def _hold(holds: bool, sentence: str) -> None:
    if not holds:
        raise Unfit(sentence)


_STEPWISE = (
    *("step_s_q1", "step_s_q3", "cache_bytes", "allocated_bytes", "outliving_bytes", "top_margin", "predicted_s"),
)


def _hold_lengths(run: dict[str, Any], batch: int, most: int) -> None:
    """One entry a step in every list, one list of ids and one text for every sequence."""
    steps = len(run["step_s"])
    _hold(1 <= steps <= most, "step_s has to hold from 1 to new_tokens entries")
    for name in _STEPWISE:
        _hold(run[name] is None or len(run[name]) == steps, f"{name} has to hold as many entries as step_s")
    nested = bool(run["token_ids"]) and isinstance(run["token_ids"][0], list)
    _hold(nested == (batch > 1) == isinstance(run["text"], list), "token_ids and text have to be lists of the batch")
    rows = rows_of(run)
    _hold(len(rows) == batch and all(len(row) == steps for row in rows), "token_ids has to hold an id for each step")
    _hold(batch == 1 or len(run["text"]) == batch, "text has to hold a text for each sequence")


def rows_of(run: dict[str, Any]) -> list[list[int]]:
    """The chosen ids of a run, a row for each sequence."""
    ids = run["token_ids"]
    return ids if ids and isinstance(ids[0], list) else [ids]


def _hold_figures(run: dict[str, Any], batch: int) -> None:
    """What follows from the steps has to follow from them."""
    steps = run["step_s"]
    bands = zip(run["step_s_q1"], steps, run["step_s_q3"], strict=True)
    _hold(all(low <= middle <= high for low, middle, high in bands), "step_s has to lie between its quartiles")
    _hold_near(run["ttft_s"], steps[0], "ttft_s")
    _hold_near(run["itl_s"], statistics.median(steps[1:]) if steps[1:] else None, "itl_s")
    _hold_near(run["itl_mean_s"], statistics.fmean(steps[1:]) if steps[1:] else None, "itl_mean_s")
    _hold_near(run["tokens_per_s"], len(steps) * batch / run["total_s"], "tokens_per_s")


def _hold_prediction(run: dict[str, Any]) -> None:
    """How far off a prediction was follows from it and the steps."""
    said, steps = run["predicted_s"] or [], run["step_s"]
    _hold_near(run["prediction_error"], off_by(said, steps), "prediction_error")
    _hold_near(run["prediction_bias"], bias(said, steps), "prediction_bias")


def _hold_near(given: float | None, computed: float | None, name: str) -> None:
    both = given is not None and computed is not None
    near = both and math.isclose(given, computed, rel_tol=1e-6, abs_tol=1e-12)
    _hold(near or (given is None and computed is None), f"{name} has to follow from the run's other figures")


def _hold_identity(checked: dict[str, Any]) -> None:
    """Where a run leaves the reference's tokens is there to be seen in the tokens."""
    reference = next(run for run in checked["runs"] if run["mode"] == checked["reference"])
    for run in checked["runs"]:
        found = first_difference(rows_of(run), rows_of(reference))
        _hold(run["first_divergence"] == found, "first_divergence has to be where the token_ids differ")
        _hold(run["identical"] == (found is None), "identical has to say whether the token_ids do")
    same = all(run["identical"] for run in checked["runs"] if run["exact"])
    _hold(checked["identical"] == same, "identical has to say whether every exact mode's run is")


def first_difference(rows: Sequence[Sequence[int]], others: Sequence[Sequence[int]]) -> int | None:
    """The first step at which a sequence chose another token than its counterpart, or which only the first has."""
    steps, theirs = list(zip(*rows, strict=True)), list(zip(*others, strict=True))
    common = min(len(steps), len(theirs))
    different = next((i for i in range(common) if steps[i] != theirs[i]), None)
    return common if different is None and len(steps) > common else different


def _hold_speedups(runs: list[dict[str, Any]]) -> None:
    baseline = next((run for run in runs if run["mode"] == "uncached"), None)
    for run in runs:
        alike = baseline is not None and len(baseline["step_s"]) == len(run["step_s"])
        _hold_near(run["speedup"], baseline["total_s"] / run["total_s"] if alike else None, "speedup")
