"""Which keys a query may read: a triangle in a prefill, all in a decode step, a moved triangle in a chunk."""

import pytest

from kvviz.charts.masks import CELL, HEAD, encoder_figure, mask_figure, masked, uncached_figure


@pytest.mark.parametrize(("held", "new", "hidden"), [(0, 5, 10), (5, 1, 0), (5, 3, 3)])
def test_what_is_hidden_is_what_comes_after_its_query(held, new, hidden):
    (drawn,) = mask_figure(held, new, 8).data
    square = [list(row) for row in drawn.z]
    assert square[:held] == [[None] * (held + new)] * held, "asked in earlier steps"
    rows = square[held:]
    assert [len(row) for row in rows] == [held + new] * new
    assert sum(row.count(2) for row in rows) == hidden == masked(new)
    assert all(row[:held] == [0] * held for row in rows), "whatever is cached is older than every query"
    assert all(row[held + i] == 1 for i, row in enumerate(rows)), "a token reads itself"


def test_an_encoder_computes_every_pair_again():
    (drawn,) = encoder_figure(5, 8).data
    assert [list(row) for row in drawn.z] == [[3] * 5 + [1]] * 5 + [[1] * 6], "each earlier row reads the new key"


def test_a_step_without_a_cache_computes_every_earlier_pair_again_and_one_new_row():
    (drawn,) = uncached_figure(2, 8).data
    assert [list(row) for row in drawn.z] == [[3, 2, 2], [3, 3, 2], [1, 1, 1]]


def test_figures_with_room_for_as_many_tokens_have_cells_of_one_size():
    of = ((mask_figure(0, 5, 8), 5), (mask_figure(5, 3, 8), 8), (uncached_figure(5, 8), 6), (encoder_figure(5, 8), 6))
    for figure, tokens in of:
        across, down = figure.layout.xaxis, figure.layout.yaxis
        assert across.range == down.range[::-1] == (-0.5, tokens - 0.5)
        assert down.domain == pytest.approx((1 - tokens / 8, 1)), "each row is an eighth of the height"
        assert (down.scaleanchor, across.constrain, across.constraintoward) == ("x", "domain", "left"), "square cells"
        assert figure.layout.height == HEAD + CELL * 8, "side by side, they end at one height"
