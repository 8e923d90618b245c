"""Traces from files: what is read, sorted, cut and refused; the sample is what its tool draws."""

import pytest

from kvviz.base.errors import KvvizError
from kvviz.experiments.batching.trace import SAMPLE, draw_trace, read_trace, trace_named
from tools.sample_trace import DRAWN, write

HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


@pytest.fixture
def file(tmp_path):
    """`file(text)` is a trace with these rows."""

    def file(text):
        path = tmp_path / "trace.csv"
        path.write_text(text, encoding="utf-8")
        return path

    return file


def test_azures_columns_are_read_in_any_order_with_seven_digits_of_a_second(file):
    found = read_trace(file(HEAD + "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.4799600,110,27\n"))
    assert found.arrivals_s == pytest.approx((0, 0.5)) and found.prompts == (4808, 110) and found.answers == (10, 27)
    other = "GeneratedTokens,TIMESTAMP,ContextTokens\n7,2024-05-10 00:00:01+00:00,5\n8,2024-05-10 00:00:03,6\n"
    found = read_trace(file(other), speed=4)
    assert (found.arrivals_s, found.prompts, found.answers, found.notes) == ((0, 0.5), (5, 6), (7, 8), ())


def test_a_trace_out_of_order_is_sorted_and_it_is_said(file):
    rows = ["2024-01-01 00:00:02,2,1", "2024-01-01 00:00:01,1,1", "2024-01-01 00:00:03,3,1"]
    found = read_trace(file(HEAD + "\n".join(rows)))
    assert found.prompts == (1, 2, 3) and found.arrivals_s == (0, 1, 2)
    assert found.notes == ("trace.csv goes back in time once: its requests are served in order of their time.",)


def test_the_first_requests_of_a_long_file(file, monkeypatch):
    path = file(HEAD + "2024-01-01 00:00:01,1,1\n" * 5)
    assert len(read_trace(path, requests=3).prompts) == 3 and not read_trace(path, requests=3).notes
    monkeypatch.setattr("kvviz.experiments.batching.trace.MOST_REQUESTS", 4)
    assert read_trace(path).notes == ("trace.csv has more than 4 requests; the first 4 are served.",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no column TIMESTAMP"),
        ("TIMESTAMP,ContextTokens\n", "has no column GeneratedTokens; a trace has TIMESTAMP, ContextTokens, Gen"),
        (HEAD, "has no request"),
        (HEAD + "2024-01-01,5\n", "line 2 of trace.csv is no time and two numbers"),
        (HEAD + "2024-01-01,5,2\nyesterday,5,1\n", "line 3 of trace.csv is no time and two numbers"),
        (HEAD + "2024-01-01,5,2.5\n", "line 2"),
        (HEAD + "2024-01-01,-5,2\n", "fewer than 0 tokens"),
    ],
)
def test_what_is_no_trace_is_refused_in_a_sentence(file, text, said):
    with pytest.raises(KvvizError, match=said):
        read_trace(file(text))


def test_what_a_command_may_ask_for(tmp_path):
    with pytest.raises(KvvizError, match="can't be read as a trace"):
        trace_named(str(tmp_path / "none.csv"))
    with pytest.raises(KvvizError, match="speed is 0"):
        trace_named("sample", speed=0)
    with pytest.raises(KvvizError, match="requests is 0"):
        trace_named("sample", requests=0)


def test_the_sample_is_what_its_tool_draws(tmp_path):
    write(tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_bytes() == SAMPLE.read_bytes()
    drawn, found = draw_trace(**DRAWN), trace_named("sample", speed=2)
    assert found.prompts == drawn.prompts and found.arrivals_s == pytest.approx(
        [at / 2 for at in drawn.arrivals_s], abs=1e-6
    )
    assert max(p + a for p, a in zip(found.prompts, found.answers, strict=True)) <= DRAWN["longest"]
