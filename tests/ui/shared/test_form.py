"""The readers of a link's texts: what a field takes, and what counts as not said."""

import pytest

from kvviz.ui.shared.form import one_of, some_of, whole


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (one_of("a", "b"), "b", "b"),
        (one_of(0.25, 1.0), "1.0", 1.0),
        (some_of("a", "b", "c"), "c,a", ["c", "a"]),
        (some_of("a"), "", []),
        (whole, "0042", 42),
    ],
)
def test_what_is_read(read, text, value):
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (one_of("a"), "A"),
        (one_of(1.0), "1"),
        (some_of("a"), "a,a"),
        (some_of("a"), "a,b"),
        (whole, ""),
        (whole, "-1"),
        (whole, "10000"),
        (whole, "٣"),
    ],
)
def test_what_is_not(read, text):
    with pytest.raises(ValueError, match=None):
        read(text)
