"""The types of records and documents: each one that stands for a dataclass has its fields."""

from dataclasses import fields
from typing import Annotated, Literal, NotRequired, TypedDict

import pytest

from kvviz.base.checks import Absent, Unfit, check_of, whole
from kvviz.device.allocator import Account
from kvviz.experiments.comparison import records
from kvviz.experiments.comparison.spec import ComparisonSpec

PAIRS = [
    (records.AllocatorAccount, Account),
    (records.SpecFields, ComparisonSpec),
]


@pytest.mark.parametrize(("form", "value"), PAIRS, ids=lambda kind: kind.__name__)
def test_a_record_has_the_fields_of_the_value_that_it_carries(form, value):
    of_the_class = {"kind"} if hasattr(value, "kind") else set()
    assert set(form.__annotations__) == {field.name for field in fields(value)} | of_the_class


class Sample(TypedDict):
    t: Literal["sample"]
    count: Annotated[int, whole(1, 9)]
    note: NotRequired[Annotated[int, whole()] | None]
    flags: Annotated[list[bool], Absent([])]


def test_a_check_is_read_off_a_type():
    check = check_of(Sample)
    assert check({"t": "sample", "count": 3, "more": 1}, "it") == {"t": "sample", "count": 3, "flags": []}
    assert check({"t": "sample", "count": 3, "note": None, "flags": [True]}, "it")["flags"] == [True]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"t": "other", "count": 3}, "t has to be sample"),
        ({"t": "sample", "count": 10}, "count"),
        ({"t": "sample"}, "lacks count"),
        ({"t": "sample", "count": 3, "flags": [1]}, "flags"),
        ({"t": "sample", "count": 3, "note": -1}, "note"),
    ],
)
def test_a_value_of_another_type_is_refused(value, says):
    with pytest.raises(Unfit, match=says):
        check_of(Sample)(value, "it")


def test_a_type_without_a_check_is_a_mistake_of_ours():
    with pytest.raises(TypeError, match="has no check"):
        check_of(list[int])
