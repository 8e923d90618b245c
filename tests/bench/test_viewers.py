"""The bench of viewers: its client speaks to a real server, and its books notice what is lost, doubled or different."""

import asyncio
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from bench.checking import judge
from bench.classroom import Classroom
from bench.lasting import slope
from bench.screens import Book
from bench.served import Server
from kvviz import compare
from kvviz.experiments.comparison.spec import ComparisonSpec

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
WORK = ComparisonSpec(model="tiny-gpt2", prompt="Once upon a time", new_tokens=64, repeats=1)


@pytest.fixture(scope="module")
def told():
    """A comparison's document and its records, as texts."""
    done = compare("tiny-llama", new_tokens=6, repeats=2)
    return done.document, [json.dumps(record) for record in done.records]


def screen(texts):
    """A book that was told all of it, a record a message."""
    book = Book()
    for number, text in enumerate(texts):
        assert book.take(number, [json.loads(text)], len(text), float(number))
    return book


@pytest.mark.slow
def test_a_screen_with_everything_on_it_has_lost_and_doubled_nothing(told):
    document, texts = told
    verdict = judge(screen(texts), document, texts)
    assert (verdict.lost, verdict.doubled, verdict.differs) == (0, 0, False)
    assert verdict.updates_per_s == pytest.approx(1)


def test_what_is_missing_twice_or_different_is_found(told):
    document, texts = told
    place = next(i for i, text in enumerate(texts) if json.loads(text)["t"] == "times")
    without, twice = texts[:place] + texts[place + 1 :], [*texts[: place + 1], *texts[place:]]
    steps = len(json.loads(texts[place])["s"])
    assert judge(screen(without), document, texts).lost == steps
    assert judge(screen(twice), document, texts).doubled == steps
    changed = [
        json.dumps({**one, "s": [2 * s for s in one["s"]]} if "s" in one else one) for one in map(json.loads, texts)
    ]
    assert judge(screen(changed), document, texts).differs
    assert judge(screen(changed), document, changed).differs, "the figures are not those of the document"


def test_a_book_takes_up_what_is_new_and_says_where_something_is_missing():
    book = Book()
    first, second, third = ({"t": "proof", "i": i, "modes": {}, "at": i / 10} for i in range(3))
    assert book.take(0, [first, second], 100, 1.0)
    assert not book.take(3, [third], 100, 2.0)
    assert book.take(1, [second, third], 100, 3.0)
    assert (book.records, book.again) == ([first, second, third], 1)
    assert book.arrivals == [(1.0, 0.1), (3.0, 0.2)]


def test_a_slope_is_what_each_further_value_adds():
    assert slope([5, 8, 11, 14]) == pytest.approx(3)
    assert slope([7, 7, 7]) == 0


@pytest.mark.long
@LINUX
def test_a_small_class_on_a_real_server_loses_its_network_and_nothing_else(tmp_path):
    async def scene():
        with Server(tmp_path) as server:
            classroom = Classroom(server, WORK, viewers=2, calculators=1, every=0.3)
            seen = await classroom.watched(cut=True)
            return seen, server.complaints(), server.resident_bytes()

    with ThreadPoolExecutor(1) as pool:  # the browser tests keep a loop running in this thread
        seen, complaints, resident = pool.submit(asyncio.run, scene()).result()
    assert (seen.troubles, complaints, seen.wrong, len(seen.link_ends)) == ((), [], 0, 2)
    assert [(v.lost, v.doubled, v.differs) for v in seen.verdicts] == [(0, 0, False)] * 2
    assert min(v.updates_per_s for v in seen.verdicts) > 0
    assert len(seen.reruns) > 0
    assert resident > os.sysconf("SC_PAGE_SIZE")
