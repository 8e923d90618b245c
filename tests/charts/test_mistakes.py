"""The chart of a mistake beside the right loop."""

from kvviz.charts.mistakes import off_by


def test_no_line_leads_from_a_difference_of_exactly_0_to_one_above_0():
    right, wrong, *_ = off_by([1e-5, 2e-5, 1e-5, 2e-5], [0.0, 2.0, 0.0, 0.0]).data
    assert right.x == (1, 2, 3, 4) and None not in right.y, "nothing is 0, so nothing is broken"
    assert wrong.x == (1, None, 2, None, 3, 4) and wrong.meta["values"] == [0.0, None, 2.0, None, 0.0, 0.0]
    low, gap, high, *rest = wrong.y
    assert (gap, high, rest) == (None, 2.0, [None, low, low]) and 0 < low < 1e-5, "below all that are drawn"


def test_a_loop_without_a_token_has_no_line():
    assert all(not line.x for line in off_by([], []).data[:2])
