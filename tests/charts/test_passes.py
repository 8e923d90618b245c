"""Bars of runs with a dot for each pass: what is written at them, and what the passes bear out."""

import pytest

from kvviz.charts.claims import of_passes, of_trust, parted
from kvviz.charts.passes import Timed, passes_figure


def timed(name, *passes, base=None, **more):
    typical = sorted(passes)[len(passes) // 2] if passes else 1.0
    return Timed(name, "#0072B2", typical, passes, base.typical / typical if base else None, **more)


SLOW = timed("No cache", 1.0, 1.1, 1.2)
FAST = timed("KV cache", 0.2, 0.22, 0.24, base=SLOW)
NEAR = timed("Like it", 0.9, 1.0, 1.15, base=SLOW)


@pytest.mark.parametrize(
    ("others", "claim", "trust"),
    [
        (
            [FAST],
            "KV cache is 5.0 times as fast as No cache",
            "More than noise: the slowest pass of KV cache took 240 ms",
        ),
        (
            [NEAR],
            "Too close to tell: Like it is 1.1 times as fast as No cache",
            "Within the noise: the slowest pass of",
        ),
        ([NEAR, FAST], "KV cache is 5.0 times as fast as No cache, Like it 1.1 times", "More than noise"),
        ([timed("One", 0.5, base=SLOW)], "One is 2.2 times as fast as No cache", "Fewer than two passes"),
        (
            [timed("Late", 2.2, 2.2, base=SLOW)],
            "Late is 0.5 times as fast",
            "More than noise: the slowest pass of No cache",
        ),
        ([], "", ""),
    ],
)
def test_the_claim_and_what_the_passes_say_for_it(others, claim, trust):
    assert of_passes(SLOW, others).startswith(claim) and of_trust(SLOW, others).startswith(trust)
    assert bool(of_trust(SLOW, others)) == bool(others)


@pytest.mark.parametrize(("interval", "told"), [((1.05, 1.15), True), ((0.97, 1.2), False), ((0.8, 0.9), True)])
def test_an_interval_tells_where_passes_overlap(interval, told):
    run = timed("Like it", 0.9, 1.0, 1.15, base=SLOW, interval=interval)
    assert parted(SLOW, run) is told and parted(SLOW, NEAR) is False
    assert of_trust(SLOW, [run]).startswith("Some passes overlap" if told else "Within the noise")


def test_what_is_written_at_a_bar():
    rough = timed("KV cache", 0.2, 0.22, 0.24, base=SLOW, about="≈ ", interval=(4.5, 5.5))
    figure = passes_figure({"Here\nof this": [SLOW, rough], "There": [timed("No cache", 0.5)]}, "time of the whole run")
    written = [label.text for label in figure.layout.annotations]
    assert written == [
        *("<b>Here</b><br>of this", "<b>No cache</b>", "1.1 s, 3 passes ±9.1%"),
        *("<b>KV cache: ≈ 5.0× as fast</b>", "≈ 220 ms, 3 passes ±9.1%, 95% interval 4.5 to 5.5"),
        *("<b>There</b><br>", "<b>No cache</b>", "500 ms, one pass"),
    ]
    bars, dots = figure.data
    assert list(bars.x) == [1.1, 0.22, 0.5] and list(dots.x) == [1.0, 1.1, 1.2, 0.2, 0.22, 0.24, 0.5]
    assert list(bars.marker.pattern.shape) == ["", "/", ""], "hatched: every pass was disturbed"
    assert [symbol == "circle-open" for symbol in dots.marker.symbol] == [False] * 3 + [True] * 3 + [False]
    assert len(set(bars.y)) == 3, "two runs of one name have a bar each"


def test_two_runs_of_one_name_in_no_group_have_a_bar_each():
    bars, _ = passes_figure({"": [SLOW, timed("No cache", 2.0, base=SLOW)]}, "time").data
    assert len(set(bars.y)) == 2
