"""What is said of designs that forget, and which of them a reader sees first."""

from base64 import b64encode

import pytest

from kvviz.experiments.forgetting.words import first_telling


def run(mode, *rows):
    """A design of two layers with two KV heads, which evicts these tokens in each."""
    return {"mode": mode, "layers": [0, 1], "heads": 2, "gone": b64encode(b"".join(rows)).decode()}


ALIKE = run("sinks", *[b"\1\0\2\0"] * 4)
DIFFER = run("h2o", *[b"\1\0\2\0"] * 3, b"\2\0\1\0")


@pytest.mark.parametrize(("runs", "first"), [([ALIKE, DIFFER], DIFFER), ([ALIKE, ALIKE], ALIKE), ([DIFFER], DIFFER)])
def test_the_first_design_whose_heads_differ_is_shown_first(runs, first):
    assert first_telling(runs) is first
