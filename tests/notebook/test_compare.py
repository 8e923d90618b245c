"""What a notebook shows of a comparison: a row for each mode, marked where nothing undisturbed was measured."""

import copy
import re

import pytest

from kvviz import compare
from kvviz.notebook.compare import Comparison


@pytest.fixture(scope="module")
def comparison():
    return compare("tiny-gpt2", new_tokens=3, repeats=1)


def cells(comparison):
    rows = re.findall(r"<tr>(<td.*?)</tr>", comparison._repr_html_())
    return [re.sub(r"<[^>]*>", "|", row).strip("|").split("||") for row in rows]


def changed(comparison, **fields):
    document = copy.deepcopy(comparison.document)
    document["runs"][1].update(fields)
    return Comparison(document, comparison.records)


@pytest.mark.slow
def test_a_row_has_a_modes_times_tokens_and_bytes(comparison):
    first, second = cells(comparison)
    assert [first[0], second[0]] == ["uncached", "cached"] and len(first) == len(second) == 7
    assert first[-2:] == ["the reference", "0 B"] and second[-2] == "the same" and second[-1] != "0 B"


def test_what_was_measured_only_beside_other_work_is_marked(comparison):
    counts = {"clean": 0, "disturbed": 2, "stopped_because": ""}
    html = changed(comparison, passes=counts)._repr_html_()
    assert html.count("≈") > 4 and "disturbed every pass" in html
    calm = changed(changed(comparison, passes=None), passes={**counts, "clean": 1})
    calm.document["runs"][0]["passes"] = None
    assert "≈" not in calm._repr_html_()


def test_other_tokens_and_a_name_with_markup_are_shown_as_they_are(comparison):
    other = changed(comparison, identical=False, first_divergence=1, itl_s=None, speedup=None)
    other.document["model"] = "<b>mine"
    assert cells(other)[1][-2] == "differ from token 2 on" and cells(other)[1].count("–") == 2
    assert "&lt;b&gt;mine" in other._repr_html_()
