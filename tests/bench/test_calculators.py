"""The scoreboard of calculators: the formulas that are written down, how a cell is judged, and the page."""

import pytest

from bench.calculators import PEERS, best, common, judged, lmcache, markdown, ours, tally
from kvviz.models.catalog.rows import model_row

LLAMA, DEEPSEEK = (model_row(name) for name in ("llama-3.1-8b", "deepseek-v3"))


def test_the_formulas_agree_on_a_plain_decoder_and_part_on_latent_rows():
    assert {formula(LLAMA.config, LLAMA.hub, 8192) for formula in (ours, lmcache, common)} == {2**30}
    latent = ours(DEEPSEEK.config, DEEPSEEK.hub, 8192)
    assert latent == lmcache(DEEPSEEK.config, DEEPSEEK.hub, 8192) == 61 * 8192 * 576 * 2
    assert common(DEEPSEEK.config, DEEPSEEK.hub, 8192) > 20 * latent
    assert "num_attention_heads" in common({"hidden_size": 8}, "", 8)
    assert lmcache(LLAMA.config, "someone/else", 8) == "its table does not have this model"


def test_a_cell_is_exact_a_factor_or_a_refusal_and_the_better_answer_counts():
    assert [judged(answer, 10_000) for answer in (10_009, 20_000, 5_000, "why")] == [
        "exact",
        "2.00 x",
        "0.50 x",
        "refused",
    ]
    assert best(["why", 30, 9], 10) == 9 and best([0, "why"], 10) == "why" and best([0, 0], 10) == "0 bytes"


def test_the_page_counts_what_the_rows_hold():
    rows = [
        {"model": name, "tokens": 8192, "traced_bytes": 100, "answers": {"kvviz": 100, "hf-mem": answer}}
        for name, answer in (("a", 100), ("b", 105), ("c", 400), ("d", "refused"))
    ]
    counted = {name: tally(name, rows) for name in ("kvviz", "hf-mem")}
    assert counted["hf-mem"] == {
        "exact": 1,
        "within_10_percent": 1,
        "farther_off": 1,
        "refused": 1,
        "largest_factor": pytest.approx(4),
    }
    found = {"date": "2026-01-01", "environment": {"transformers": "5"}, "versions": {}, "rows": rows}
    page = markdown({**found, "calculators": counted})
    assert "| 1 | 1 | 1 | 1 | 4.0 x |" in page and "| c | 8,192 | 100 B | exact | 4.00 x |" in page
    assert {peer.name for peer in PEERS} >= set(counted)
