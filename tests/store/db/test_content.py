"""Columns: whatever numbers go in come out, bit by bit."""

import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.store.db.content import pack, take_columns, unpack
from tests.draws import draws

WHOLE = st.integers(-(2**63), 2**63 - 1)
FLOAT = st.floats(allow_nan=False)


def lists(numbers):
    flat = st.lists(numbers, min_size=1)
    wide = st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(numbers, min_size=n, max_size=n), min_size=1))
    return flat | wide


@draws(40)
@given(st.dictionaries(st.text(max_size=5), lists(WHOLE) | lists(FLOAT)))
def test_round_trip(columns):
    back = unpack(pack(columns))
    assert back == columns and repr(back) == repr(columns), "also -0.0, and 1 is not 1.0"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@draws(40)
@given(st.dictionaries(st.text(max_size=3), ANYTHING))
def test_what_is_no_column_stays_json(fields):
    rest, columns = take_columns(fields)
    whole = {**json.loads(json.dumps(rest)), **unpack(pack(columns))}
    assert repr(whole) == repr(fields)


@pytest.mark.parametrize("value", [[], [1, 2.0], [True, False], [[1], [1, 2]], [[]], [2**63], "text", [None], [[[1]]]])
def test_no_column(value):
    assert take_columns({"x": value}) == ({"x": value}, {})
    with pytest.raises(ValueError):
        pack({"x": value})


def test_the_bytes_are_little_endian_on_every_machine():
    blob = pack({"a": [1, 256]})
    assert zlib.decompress(blob) == b'{"a": ["q", [2]]}\n' + b"\1" + bytes(7) + b"\0\1" + bytes(6)
