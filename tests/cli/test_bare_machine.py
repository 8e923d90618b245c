"""A machine without the dashboard's packages: `ready`, a sweep, and a sweep that is killed and goes on."""

import json

import pytest
import torch

from kvviz.experiments.sweep.spec import PRESETS

pytestmark = [pytest.mark.slow, pytest.mark.worker]


def test_it_is_ready(bare):
    """The device, a model that really decodes, the lesson's times, the queue; one JSON document."""
    told = bare.ready
    assert told["ready"] and all(check["ok"] for check in told["checks"])
    (model,) = told["models"]
    assert (model["model"], model["weights"], model["identical"]) == ("tiny-gpt2", "random", True)
    assert model["measured_s"] > 0 and model["load_s"] > 0
    assert told["queue_worst_s"] == pytest.approx(7 * model["measured_s"], rel=0.01)
    assert {sweep["preset"] for sweep in told["sweeps"]} == set(PRESETS)
    assert all((sweep["estimated_s"] is None) == PRESETS[sweep["preset"]].gpu for sweep in told["sweeps"])
    assert {"device: place", "device: kernels", "device: identity"} <= {check["name"] for check in told["checks"]}
    assert told["device"]["total_bytes"] >= told["device"]["free_bytes"] > 0 and told["device"]["rates"]["read"] > 0


def test_a_sweep_is_one_document(bare):
    assert {"environment", "rows"} <= set(bare.sweep)
    cells = [(row["prompt_tokens"], row["mode"]) for row in bare.sweep["rows"]]
    assert cells == [(4, "uncached"), (4, "cached"), (8, "uncached"), (8, "cached")]
    assert {
        "model", "mode", "prompt_tokens", "new_tokens", "batch", "dtype", "ttft_s", "itl_s", "itl_s_q1", "itl_s_q3",
        "itl_mean_s", "tokens_per_s", "total_s", "peak_bytes", "peak_kind", "cache_bytes", "speedup",
    } <= set(bare.sweep["rows"][0])  # fmt: skip
    assert "passes" in bare.err and "USDT" not in bare.err


def test_a_killed_sweep_goes_on_from_its_journal(bare, kvviz):
    """With another number of threads the second would refuse to add to the first."""
    kept = passes(bare.journal)
    assert 5 < len(kept) < 160
    usual = torch.get_num_threads()
    torch.set_num_threads(json.loads(bare.journal.read_text().splitlines()[0])["environment"]["threads"])
    try:
        document = kvviz("sweep", "--resume", str(bare.journal), "--repeats", "4", "--json").document
    finally:
        torch.set_num_threads(usual)
    assert all(row["repeats"] >= 4 and row["repeatable"] for row in document["rows"])
    after = passes(bare.journal)
    assert after[: len(kept)] == kept and len(set(after)) == len(after), "nothing is measured twice"


def passes(journal):
    """(cell, mode, round) of each pass in a journal; the last line may be torn."""
    found = []
    for line in journal.read_text().splitlines():
        if '"cell_pass"' in line and line.endswith("}"):
            record = json.loads(line)
            found.append((record["cell"], record["mode"], record["round"]))
    return found
