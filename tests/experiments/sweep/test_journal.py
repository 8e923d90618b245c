"""A sweep's journal: what is whole is read back, a torn line is dropped, what does not fit is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.base.errors import KvvizError
from kvviz.experiments.sweep.journal import foreign, is_journal, read, spec_of, usable, write
from kvviz.experiments.sweep.spec import SweepSpec
from tests.experiments.sweep.test_spec import ANYTHING, GRID, elsewhere, proof, sample, timed

STARTED = {"t": "sweep_started", "spec": GRID.to_dict(), "environment": {}}


def test_what_is_written_is_read_back(tmp_path):
    path = tmp_path / "sweep.jsonl"
    records = [STARTED, *sample(GRID), {"t": "progress", "done": 1}, {"t": "done", "document": {}}]
    for record in records:
        write(path, record)
    assert read(path) == records[:-2], "progress and the document are worked out again"
    assert spec_of(read(path)) == GRID
    assert usable(read(path), GRID) == sample(GRID)


@pytest.mark.parametrize("cut", [1, 5, 20, 60])
def test_a_torn_last_line_is_dropped_and_written_past(tmp_path, cut):
    path = tmp_path / "sweep.jsonl"
    for record in (STARTED, proof(GRID, 0), timed(0, "cached", 0, [1.0] * 3)):
        write(path, record)
    path.write_bytes(path.read_bytes()[:-cut])
    write(path, timed(0, "cached", 1, [2.0] * 3))
    rounds = [r["round"] for r in read(path) if r["t"] == "cell_pass"]
    assert rounds[-1] == 1 and usable(read(path), GRID)


@pytest.mark.parametrize("text", ["hello\n", '{"t": "cell_pass"}\n', "[1]\n", '{"a": 1}\n', "[" * 5000 + "\n"])
def test_another_file_is_not_taken_for_a_journal(tmp_path, text):
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(KvvizError, match="not the journal"):
        read(path)


def test_what_can_not_be_read_is_a_sentence(tmp_path):
    with pytest.raises(KvvizError, match="can't be read"):
        read(tmp_path / "nowhere")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(KvvizError, match="can't be read"):
        read(tmp_path / "binary")
    (tmp_path / "empty").touch()
    assert read(tmp_path / "empty") == [] and spec_of([]) is None


PASS = timed(0, "cached", 0, [1.0] * 3)


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({**PASS, "cell": 2}, "its cell"),
        ({**PASS, "cell": "0"}, "cell has to be"),
        ({**PASS, "cell": True}, "cell has to be"),
        ({**PASS, "mode": "unpassed"}, "its mode"),
        ({**PASS, "mode": ["cached"]}, "mode has to be"),
        ({**PASS, "round": -1}, "round"),
        ({**PASS, "s": [1.0]}, "3 steps"),
        ({**PASS, "s": [1.0, float("nan"), 1.0]}, "s has to be a number"),
        ({**PASS, "s": [1.0, -1.0, 1.0]}, "s has to be a number"),
        ({**PASS, "s": "abc"}, "s has to be a list"),
        ({**PASS, "same": 1}, "same"),
        ({**proof(GRID, 0), "modes": {}}, "each mode"),
        ({**proof(GRID, 0), "weights_bytes": "many"}, "weights_bytes"),
        (proof(GRID, 0, peak_kind="<script>"), "peak_kind"),
        (proof(GRID, 0, cache_bytes=-1), "cache_bytes"),
        ({**STARTED, "spec": SweepSpec(("gpt2",)).to_dict()}, "other work"),
        ({**STARTED, "spec": None}, "a sweep is an object"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(record, says):
    with pytest.raises(KvvizError, match=says):
        usable([STARTED, proof(GRID, 0), record], GRID)


FIELDS = sorted({*PASS, *proof(GRID, 0)})


@given(field=st.sampled_from(FIELDS), value=ANYTHING, which=st.integers(0, 2))
def test_whatever_a_record_holds_it_is_taken_or_refused(field, value, which):
    records = [dict(STARTED), proof(GRID, 0), dict(PASS)]
    records[which][field] = value
    try:
        json.dumps(usable(records, GRID), allow_nan=False)
    except KvvizError as error:
        assert str(error)


@given(ANYTHING)
def test_records_that_are_no_objects_are_passed_over(value):
    assert usable([value], GRID) == []


# --- from elsewhere ------------------------------------------------------------------------------------------------

FAILED = {"t": "cell_failed", "cell": 1, "message": "out of memory"}


def test_a_journal_from_elsewhere_says_how_much_of_it_is_there():
    whole = foreign(elsewhere(GRID))
    assert (whole.spec, whole.done, whole.planned) == (GRID, 8, 8) and is_journal(elsewhere(GRID))
    part = foreign(elsewhere(GRID)[:-30])
    assert (part.done, part.planned) == (7, 8), "its last line is torn"
    failed = foreign(elsewhere(GRID, [proof(GRID, 0), *sample(GRID)[1:5], FAILED]))
    assert (failed.done, failed.planned) == (4, 4), "a cell that failed is not waited for"
    resumed = foreign(elsewhere(GRID, [FAILED]) + elsewhere(GRID))
    assert (resumed.done, resumed.planned) == (8, 8), "the second start could do it"
    assert whole.renamed("abc").id == "abc"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"environment": {}}, "environment lacks"),
        ({"plan": {"repeats": 10**9}}, "repeats has to be"),
        ({"spec": {"models": ["../../etc"] * 2}}, "that of no sweep"),
        ({"rates": {"read": "fast"}}, "rates"),
    ],
)
def test_a_start_that_does_not_fit_is_one_sentence(change, says):
    with pytest.raises(KvvizError, match=says) as refused:
        foreign(elsewhere(GRID, **change))
    assert "\n" not in str(refused.value)
    with pytest.raises(KvvizError, match="more than 100 times"):
        foreign(101 * elsewhere(GRID, []))


@given(field=st.sampled_from(["spec", "environment", "rates", "plan", "cell", "message"]), value=ANYTHING)
def test_whatever_a_journal_from_elsewhere_holds_it_is_taken_or_refused(field, value):
    changed = {field: value}
    try:
        data = elsewhere(GRID, [{**FAILED, **changed}], **changed)
        json.dumps(foreign(data).records, allow_nan=False)
    except KvvizError as error:
        assert str(error)
