"""What is handed out of an attention layer, and that the listing tells the truth about the code."""

import math
import sys
from pathlib import Path

import pytest
import torch

from kvviz.decoding.scratch.listing import SOURCE, listing
from kvviz.decoding.scratch.observe import observed
from tests.decoding.scratch.conftest import FAMILIES, token_ids

NAMES = ["project", "split", "norm", "turn", "append", "share", "score", "lean", "mask", "softmax", "mix", "merge"]


PLACES = {
    "q": ("turn", "q"),
    "keys": ("share", "keys"),
    "values": ("share", "values"),
    "scores": ("mask", "masked"),
    "weights": ("softmax", "weights"),
    "output": ("mix", "mixed"),
}


@torch.no_grad()
def look(model, layers=None, batch=2, before=6, new=3):
    """What a chunk of new tokens makes of a cache with some before it."""
    ids, caches = token_ids(batch, before + new), model.new_caches()
    with observed(model, layers) as seen:
        model(ids[:, :before], caches)
        model(ids[:, before:], caches)
    return seen


def test_every_stage_is_in_the_listing_in_order():
    stages = listing().stages
    assert [stage.name for stage in stages] == [*NAMES, "output"]
    assert all(stage.words and stage.makes for stage in stages)
    lines = SOURCE.read_text().splitlines()
    assert list(listing().lines) == lines[listing().start - 1 : listing().start - 1 + len(listing().lines)]
    assert "def forward" in listing().lines[0] and listing().lines[-1].strip().startswith("return")
    assert "softmax(" in lines[listing().stage("softmax").first - 1]
    assert listing().at(listing().stage("mask").last).name == "mask" and listing().at(1) is None


def test_the_file_can_be_read_aloud():
    assert len(SOURCE.read_text().splitlines()) <= 90
    assert sum(bool(line.strip()) and not line.strip().startswith("#") for line in listing().lines) <= 16


@pytest.mark.parametrize(("new", "before"), [(3, 6), (1, 8)])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_shapes_at_the_end_of_the_lines_are_true(pair, name, new, before):
    model = pair(name).ours
    seen = look(model, before=before, new=new)
    design = model.design
    sizes = {"B": 2, "T": new, "T_total": before + new}
    sizes |= {"H": design.heads, "Hkv": design.kv_heads, "D": design.head_dim, "W": design.width}

    def in_numbers(shape):
        return tuple(math.prod(sizes[letter] for letter in part.strip().split("*")) for part in shape.split(","))

    assert list(seen) == list(range(model.design.layers))
    for stages in seen.values():
        assert list(stages) == [stage.name for stage in listing().stages]
        for stage in listing().stages:
            assert {made: tuple(value.shape) for made, value in stages[stage.name].items()} == {
                made: in_numbers(shape) for made, shape in stage.makes.items()
            }


@pytest.mark.parametrize("name", FAMILIES)
def test_the_values_hold_together(pair, name):
    design, (stages,) = pair(name).ours.design, look(pair(name).ours, layers=[1]).values()
    group = design.heads // design.kv_heads
    for head in range(design.heads):
        one = {name: stages[stage][value][:, head] for name, (stage, value) in PLACES.items()}
        assert one["keys"].equal(stages["append"]["keys"][:, head // group])
        assert one["q"].shape == (2, 3, design.head_dim) and one["keys"].shape == (2, 9, design.head_dim)
        assert torch.allclose(one["scores"].softmax(-1), one["weights"])
        assert torch.allclose(one["weights"].sum(-1), torch.ones(2, 3))
        assert torch.allclose(one["weights"] @ one["values"], one["output"], atol=1e-6)
        assert one["scores"].isinf().sum(dim=(-1, -2)).tolist() == [3, 3], "2 and 1 and 0 of the new ones come later"
        products = one["q"] @ one["keys"].mT / design.head_dim**0.5
        assert torch.allclose(products, stages["score"]["scores"][:, head], atol=1e-5)


@torch.no_grad()
def test_what_is_seen_is_what_the_run_computed(pair):
    model, ids, caches = pair("qwen3").ours, token_ids(1, 7), pair("qwen3").ours.new_caches()
    unseen = model(ids)
    with observed(model) as seen:
        watched = model(ids, caches)
    assert watched.equal(unseen)
    for layer, cache in enumerate(caches):
        assert seen[layer]["append"]["keys"] is cache.k and seen[layer]["append"]["values"] is cache.v


@torch.no_grad()
def test_a_stage_that_fails_is_not_among_the_seen(pair):
    model = pair("gpt2").ours

    def too_small(T, T_total, device):
        return torch.ones(T, T, dtype=torch.bool)

    caches = model.new_caches()
    model(token_ids(1, 5), caches)
    with observed(model) as seen, pytest.raises(RuntimeError):
        model(token_ids(1, 3), caches, mask=too_small)
    assert list(seen) == [0] and list(seen[0]) == NAMES[: NAMES.index("mask")]


def test_whoever_traced_before_goes_on_afterwards(pair):
    def tracer(frame, event, arg):
        return None

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        with pytest.raises(ZeroDivisionError), observed(pair("gpt2").ours):
            _ = 1 / 0
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)


def test_a_server_can_read_the_listing_without_torch():
    """A page shows the source; the process that serves it has no torch."""
    for name in ("listing.py", "design.py"):
        text = (Path(SOURCE).parent / name).read_text()
        assert "torch" not in "".join(line for line in text.splitlines() if "import" in line)
