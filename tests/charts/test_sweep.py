"""A sweep's chart says at each line's end how it has grown, in words that differ from the factor between two lines."""

import json

import pytest

from kvviz.charts.layout import for_page
from kvviz.charts.sweep import against, far_apart


def drawn(first, last):
    rows = [
        {"mode": mode, "prompt_tokens": tokens, "itl_s": seconds}
        for mode, both in (("uncached", (first, last)), ("cached", (0.001, 0.001)))
        for tokens, seconds in zip((64, 2048), both, strict=True)
    ]
    return against(rows, "itl_s", "prompt_tokens")


@pytest.mark.parametrize(
    ("first", "last", "words"),
    [
        (0.01, 0.062, "grows 6.2-fold"),
        (0.01, 0.19, "grows 19-fold"),
        (0.01, 0.0101, "stays level"),
        (0.04, 0.018, "falls to 45%"),
    ],
)
def test_growth_is_said_without_the_sign_of_a_factor(first, last, words):
    figure = drawn(first, last)
    said = [label.text for label in figure.layout.annotations]
    assert f"No cache<br>{words}" in said and "KV cache<br>stays level" in said
    assert any(text.startswith(f"<b>{round(last / 0.001)}×</b>") for text in said)


def test_an_arrow_joins_two_points_and_a_factor_stands_on_it_where_there_is_room():
    rows = [
        {"mode": mode, "prompt_tokens": tokens, "itl_s": seconds}
        for mode, both in (("uncached", (0.0012, 0.019)), ("cached", (0.001, 0.001)))
        for tokens, seconds in zip((64, 512), both, strict=True)
    ]
    labels = against(rows, "itl_s", "prompt_tokens").layout.annotations
    assert [(arrow.x, arrow.ay, arrow.y) for arrow in labels if arrow.ayref == "y"] == [(64, 1, 1.2), (512, 1, 19)]
    near, far = (label for label in labels if "×" in label.text)
    assert (near.text, near.xshift, far.text, far.xshift) == ("<b>1.2×</b>", 8, "<b>19×</b> as fast", None)


def test_an_axis_parts_its_thousands():
    layout = json.loads(for_page(drawn(0.01, 0.062), dark=False)[0])["layout"]
    assert layout["xaxis"]["separatethousands"] and layout["yaxis"]["separatethousands"]


def test_an_axis_has_the_values_that_were_measured_where_their_numbers_have_room():
    rows = [{"mode": "cached", "prompt_tokens": tokens, "itl_s": 0.01} for tokens in (8, 16, 256, 1024)]
    even, doubling = (against(rows, "itl_s", "prompt_tokens", log=log).layout.xaxis for log in (False, True))
    assert list(even.tickvals) == [16, 256, 1024] and even.ticktext[-1] == "1,024"
    assert list(doubling.tickvals) == [8, 16, 256, 1024]


def test_a_line_near_zero_asks_for_a_logarithmic_axis():
    rows = [
        {"mode": mode, "prompt_tokens": 512, "itl_s": seconds}
        for mode, seconds in (("uncached", 0.2), ("cached", 0.01))
    ]
    assert not far_apart(rows, "itl_s", "prompt_tokens")
    assert far_apart([*rows, {**rows[1], "itl_s": 0.005}], "itl_s", "prompt_tokens")
