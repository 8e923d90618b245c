"""What is said of designs that forget, and which of them a reader sees first."""

from base64 import b64encode

import pytest

from kvviz.experiments.forgetting.words import first_telling, lost_claim


def run(mode, *rows):
    """A design of two layers with two KV heads, which evicts these tokens in each."""
    return {"mode": mode, "layers": [0, 1], "heads": 2, "gone": b64encode(b"".join(rows)).decode()}


ALIKE = run("sinks", *[b"\1\0\2\0"] * 4)
DIFFER = run("h2o", *[b"\1\0\2\0"] * 3, b"\2\0\1\0")


@pytest.mark.parametrize(("runs", "first"), [([ALIKE, DIFFER], DIFFER), ([ALIKE, ALIKE], ALIKE), ([DIFFER], DIFFER)])
def test_the_first_design_whose_heads_differ_is_shown_first(runs, first):
    assert first_telling(runs) is first


def test_the_claim_is_the_mean_over_layers_and_queries_and_that_of_the_last_tenth():
    lost = [[0.0] * 10 + [0.1] * 8 + [0.4, 0.6], [0.0] * 20]
    assert lost_claim({"budget": "25%"}, {"title": "H2O", "lost": lost}) == (
        "“H2O” keeps 25% of the tokens; 4% of the attention would have gone to tokens that it evicted, 25% in the "
        "last tenth of the text"
    )
