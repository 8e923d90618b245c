"""Predictions on the machine that runs the tests, which they have never seen."""

import math
from collections.abc import Iterable
from statistics import median
from typing import Any

import pytest

from bench.predictions import NEAR, predictions

STILL = 1.1  # times: two processes whose median steps differ by more ran on a machine whose speed changed


def settled(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of each model and mode whose passes were clean and whose processes agree about the step's time."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["model"], row["mode"]), []).append(row)
    steps = ([row["itl_s"] for row in same] for same in found.values())
    return [
        row
        for same, taken in zip(found.values(), steps, strict=True)
        if max(taken) <= STILL * min(taken) and all(each["passes"]["clean"] for each in same)
        for row in same
    ]


@pytest.mark.worker
def test_the_median_step_of_the_bundled_models_is_predicted_within_15_percent() -> None:
    rows = [*predictions(("mini-gpt2", "mini-qwen3"), (64,), (1,), 2, math.inf)]
    assert len(rows) == 2 * 2 * 2  # models, modes, processes
    told = settled(rows)
    if not told:
        pytest.skip("other work ran beside every pair of processes, or the machine's speed changed between them")
    said = {
        f"{row['model']}, {row['mode']}, process {row['process']}": f"{row['prediction_bias']:+.0%}" for row in told
    }
    assert median(row["prediction_error"] for row in told) <= NEAR, said


def test_a_machine_whose_speed_changes_settles_nothing() -> None:
    def row(itl_s: float, clean: int) -> dict[str, Any]:
        return {"model": "one", "mode": "cached", "itl_s": itl_s, "passes": {"clean": clean}}

    assert len(settled([row(1.0, 3), row(1.05, 1)])) == 2
    assert not settled([row(1.0, 3), row(1.2, 3)]) and not settled([row(1.0, 3), row(1.0, 0)])
