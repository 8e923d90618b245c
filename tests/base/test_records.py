"""The values that a run is asked for with: what is none of them is refused in a sentence."""

import pytest

from kvviz.base.errors import KvvizError
from kvviz.base.records import Sampling

HUGE = 10**400  # a whole number that is too large for a float


@pytest.mark.parametrize("field", ["temperature", "top_k", "top_p", "seed"])
@pytest.mark.parametrize("value", [-1, True, float("nan"), float("inf"), "1", [1]])
def test_a_sampling_that_is_none_is_refused(field, value):
    with pytest.raises(KvvizError, match=f"^{field} is "):
        Sampling(**{field: value})


@pytest.mark.parametrize("field", ["temperature", "top_p", "seed"])
@pytest.mark.parametrize("value", [HUGE, -HUGE], ids=["above", "below"])
def test_a_whole_number_beyond_all_floats_is_refused_like_any_other(field, value):
    with pytest.raises(KvvizError, match=f"^{field} is "):
        Sampling(**{field: value})


def test_what_is_one_is_taken():
    assert Sampling(temperature=1, top_k=40, top_p=0.9, seed=2**32 - 1).top_k == 40
    assert Sampling() == Sampling(0.0, None, None, 0)
