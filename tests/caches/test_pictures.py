"""Real caches' memory as HTML: what is reserved, left behind, free and found again is drawn as what it is."""

import re

import pytest
import torch

from kvviz.caches.concat import Concat
from kvviz.caches.paged import Paged, Prefix
from kvviz.caches.prealloc import Prealloc
from kvviz.caches.quantized import Int4, Int8
from kvviz.caches.random_choice import Random
from kvviz.caches.ring import Ring
from kvviz.charts.pictures import picture_html, slots_of, strips_html


def append(cache, tokens, batch=1):
    k = torch.randn(batch, 2, tokens, 8)
    cache.append(k, k)


def drawn(cache, title="A layer"):
    sizes = {"nbytes": cache.nbytes, "allocated": cache.allocated, "copied": cache.copied, "gathered": cache.gathered}
    return picture_html({**sizes, **cache.picture()}, title)


def cells(html, kind):
    return len(re.findall(rf'"kvp-s kvp-{kind}"', html))


def test_a_windows_view_leaves_slots_behind():
    cache = Concat(window=8)
    append(cache, 20)
    html = drawn(cache)
    assert (cells(html, "none"), cells(html, "new"), cells(html, "old")) == (13, 7, 0)
    assert "left behind by the window" in html and "reserved" not in html


def test_a_buffer_without_a_maximum_says_that_it_doubles():
    cache = Prealloc()
    append(cache, 17)
    append(cache, 1)
    html = drawn(cache)  # full with 17, so that all are written again
    assert (cells(html, "old"), cells(html, "new"), cells(html, "none")) == (0, 18, 34 - 18)
    append(cache, 1)
    html = drawn(cache)
    assert (cells(html, "old"), cells(html, "new"), cells(html, "none")) == (18, 1, 34 - 19)
    assert "doubles when it is full" in html
    assert "host's memory" in picture_html({**cache.picture(), "host": True, "nbytes": 1, "allocated": 1, "copied": 0,
                                            "gathered": 0}, "x")  # fmt: skip


def test_free_blocks_are_in_the_free_list_and_drawn_as_free():
    cache = Paged()
    append(cache, 40)
    cache.crop(20)
    html = drawn(cache)
    assert html.count("kvp-box kvp-free") == 1 and html.count("× 1") == 2
    assert '<span class="kvp-chip kvp-gone">2</span>' in html and ">empty<" not in html
    assert html.count('class="kvp-new"') == 1 and html.count('class="kvp-old"') == 19


def test_blocks_that_would_be_found_again_are_marked():
    cache = Prefix()
    cache.note([list(range(40))])
    append(cache, 40)
    cache.crop(30)
    html = drawn(cache)
    assert '<span class="kvp-chip kvp-gone">1*</span>' in html and "found again by a like beginning" in html


def test_a_windows_blocks_that_are_gone_are_counted():
    cache = Paged(window=8)
    append(cache, 40)
    assert "(2 left behind)" in drawn(cache)


def test_a_ring_shows_where_the_next_token_goes_and_what_is_empty():
    cache = Ring(window=6)
    append(cache, 4)
    html = drawn(cache)
    assert html.count("kvp-n kvp-none") == 2 and '"kvp-n kvp-none kvp-next"' in html and "0 tokens were let go" in html
    append(cache, 5)
    html = drawn(cache)
    assert "3 tokens were let go" in html and '"kvp-n kvp-new">8<' in html and '"kvp-n kvp-old kvp-next">3<' in html
    assert "kept for good" not in html


def test_tokens_are_drawn_as_kept_or_evicted():
    cache = Random(budget=8)
    append(cache, 20)
    append(cache, 1)
    html = drawn(cache)
    assert (cells(html, "gone"), cells(html, "old"), cells(html, "new")) == (13, 7, 1) and "8 of 21 tokens" in html


def test_codes_are_as_wide_as_their_bytes():
    cache = Int4()
    append(cache, 100)
    html, picture = drawn(cache), cache.picture()
    assert html.count("32 tokens</span>") == 2 and cells(html, "old") + cells(html, "new") == 36
    widths = [int(width) for width in re.findall(r"flex:(\d+) 0 0", html)]
    assert widths == [picture["codes_bytes"], picture["scale_bytes"], picture["residual_bytes"]]


def slots_written(cache, steps):
    """How many slots each of some decode steps is drawn to write, with the cache's bytes at that step."""
    for step in range(1, steps + 1):
        append(cache, 1)
        slots = slots_of({"step": step, "copied": cache.copied, **cache.picture()})
        yield slots.count("new"), len(slots)


@pytest.mark.parametrize("design", [Int8, Int4])
def test_a_strips_codes_are_as_high_as_their_bits(design):
    cache, joined = design(), Concat()
    rows = {}
    for title, each in (("Codes", cache), ("Concatenated", joined)):
        append(each, 70)
        rows[title] = {**each.picture(), "step": 1, "nbytes": 1, "allocated": 1, "copied": 0, "gathered": 0}
    found = re.findall(r"--kvp-bits:(\d+)", strips_html(rows, {}))
    assert found == [str(design.bits)], "the other design's row has none"


def test_a_step_that_rounds_a_group_is_drawn_to_write_all_codes():
    cache, all_of_them = Int4(), []
    append(cache, 100)
    for written, held in slots_written(cache, 40):
        everything = cache.copied == cache.nbytes
        assert (written, held) == (held if everything else cache.picture()["residual"], cache.held)
        all_of_them += [held] if everything else []
    assert all_of_them == [128]


@pytest.mark.parametrize("at_once", [1, 8])
def test_tokens_that_move_to_make_room_are_drawn_as_written(at_once):
    cache = Random(budget=32, at_once=at_once)
    append(cache, 100)
    written = [(count, cache.copied / cache.step_bytes) for count, _ in slots_written(cache, 20)]
    assert all(drawn == counted for drawn, counted in written)
    assert max(drawn for drawn, _ in written) == (1 if at_once == 1 else 1 + at_once)


def test_a_title_is_text_and_an_unknown_kind_is_not_drawn():
    cache = Ring(window=6)
    append(cache, 4)
    assert "<b>&lt;i&gt;</b>" in drawn(cache, "<i>")
    with pytest.raises(KeyError):
        picture_html({"kind": "x"}, "x")
