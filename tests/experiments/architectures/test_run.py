"""What the walks record: the same logits in each way, the bytes and the work that the formulas give."""

import itertools
import math

import pytest
import torch

from kvviz.base.errors import KvvizError
from kvviz.experiments.architectures.run import run
from kvviz.experiments.architectures.spec import ArchitectureSpec


@pytest.fixture(scope="module")
def walked(engine):
    """`walked("latent")` is what the walk of that scene records."""
    from kvviz.base.settings import Limits
    from kvviz.experiments.kind import Bench

    done = {}

    def walk(scene):
        if scene not in done:
            about, done[scene], end = run(ArchitectureSpec(scene, "abcdef", 3), Bench("x", engine, Limits()))
            assert (about["t"], end["t"], done[scene]["t"]) == ("look", "done", "architecture")
        return done[scene]

    return walk


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"scene": "x"}, "no scene 'x'; they are latent, delta, mamba, indexer, shared"),
        ({"new_tokens": 1}, "from 2 to 12"),
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt": "x" * 41}, "41 bytes, each of which is a token here; a walk takes 40"),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(fields, said):
    with pytest.raises(KvvizError, match=said):
        ArchitectureSpec(**{"scene": "latent", **fields})


def test_latent_attention_gives_the_same_logits_for_the_bytes_and_the_work_that_it_says(walked):
    found = walked("latent")
    design, steps = found["design"], found["steps"]
    heads, slim = design["heads"], design["latent"] + design["rotated"]
    wide = design["plain"] + design["rotated"] + design["value"]
    assert [step["total"] for step in steps] == [6, 7, 8]
    for step in steps:
        assert max(step["difference"].values()) < 1e-4
        rows = step["total"] * design["layers"] * 4
        assert step["expanded"]["cache_bytes"] == rows * heads * wide
        assert step["absorbed"]["cache_bytes"] == step["transformers"]["cache_bytes"] == rows * slim
    one, two = steps[1:]  # a token more to read in each layer
    for way, each in (("expanded", wide), ("absorbed", slim + design["latent"])):
        assert two[way]["multiply_adds"] - one[way]["multiply_adds"] == design["layers"] * heads * each
    assert two["expanded"]["multiply_adds"] < two["absorbed"]["multiply_adds"] < two["transformers"]["multiply_adds"]

    head, row = 3, 7
    query = torch.tensor(found["q_latent"][head][row] + found["q_rotated"][head][row])
    latents = torch.tensor([kept + turned for kept, turned in zip(found["latent"], found["rotated"], strict=True)])
    scores = latents @ query / math.sqrt(design["plain"] + design["rotated"])
    assert torch.allclose(scores, torch.tensor(found["scores"][head][row]), rtol=5e-3, atol=5e-3)
    keys = torch.tensor(found["k"][head]) @ torch.tensor(found["q"][head][row] + found["q_rotated"][head][row])
    assert torch.allclose(keys, scores * math.sqrt(design["plain"] + design["rotated"]), rtol=5e-3, atol=2e-2)


def test_a_gated_delta_layer_holds_the_same_bytes_after_every_token_and_attention_more(walked):
    found = walked("delta")
    steps, design = found["steps"], found["design"]
    assert [step["total"] for step in steps] == list(range(1, 9)), "the prompt is read token by token too"
    assert max(found["difference"], *(step["difference"] for step in steps)) < 1e-4
    state = steps[0]["state_bytes"]
    assert all(step["state_bytes"] == state for step in steps)
    assert state["matrix"] == design["heads"] * design["key_dim"] * design["value_dim"] * 4
    linear, attention = 0, 3
    assert len({step["multiply_adds"][linear] for step in steps}) == 1
    work = [step["multiply_adds"][attention] for step in steps]
    assert work == sorted(set(work))
    for before, after in itertools.pairwise(steps):  # S = keep S + k (strength (v - k keep S))
        for head in range(design["heads"]):
            faded = torch.tensor(before["written"][head]) * after["keep"][head][0][0]
            key, value = torch.tensor(after["k"][head][0]), torch.tensor(after["v"][head][0])
            written = faded + torch.outer(key, after["strength"][head][0][0] * (value - key @ faded))
            assert torch.allclose(written, torch.tensor(after["written"][head]), atol=2e-3)
    own, jamba = found["stacks"]
    assert [kind == "linear" for kind in own["kinds"]] == [True, True, True, False]
    for stack in (own, jamba):
        for layer, kind in enumerate(stack["kinds"]):
            held = [step[layer] for step in stack["bytes"]]
            assert len({tuple(row) for row in held}) == (1 if kind == "linear" else len(steps))
    assert own["bytes"][0][linear] == [sum(state.values())] * 2, "as transformers holds it"


def test_a_mamba_layer_leaves_the_same_token_by_token_and_at_once_in_the_bytes_that_the_formula_gives(walked):
    found = walked("mamba")
    steps, design, at_once = found["steps"], found["design"], found["parallel"]
    assert max(found["difference"], *at_once["difference"].values(), *(step["difference"] for step in steps)) < 1e-4
    size = {"matrix": design["heads"] * design["rows"] * design["head_dim"] * 4}
    size["window"] = sum(design["parts"]) * design["window"] * 4
    own, llama = found["stacks"]
    for step, states, cache in zip(steps, own["bytes"], llama["bytes"], strict=True):
        assert step["state_bytes"] == size
        assert states == [[sum(size.values())] * 2] * design["layers"], "as transformers holds it, all of it a state"
        assert cache == [[2 * design["width"] * 4 * step["total"], 0]] * design["layers"], "as wide and as deep"
        assert step["multiply_adds"] == steps[0]["multiply_adds"]
    for before, after in itertools.pairwise(steps):  # h = a h + b (step x), read by c
        for head in range(design["heads"]):
            b, c, x = (torch.tensor(after[name][head][0]) for name in "bcx")
            written = torch.tensor(before["written"][head]) * after["keep"][head][0][0]
            written += torch.outer(b, after["step"][head][0][0] * x)
            assert torch.allclose(written, torch.tensor(after["written"][head]), atol=2e-3)
            assert torch.allclose(c @ written, torch.tensor(after["answer"][head][0]), atol=5e-3)
    head, last = 1, len(steps) - 1  # the last token's answer is the sum of all x, each times its weight
    summed = sum(
        weight * torch.tensor(step["added"][head][0])
        for weight, step in zip(at_once["weights"][head][last], steps, strict=True)
    )
    assert torch.allclose(summed, torch.tensor(steps[last]["answer"][head][0]), atol=5e-3)


def test_the_indexer_picks_the_best_few_and_attention_reads_no_others(walked):
    found = walked("indexer")
    most = found["design"]["most"]
    for step in found["steps"]:
        assert step["difference"] < 1e-4
        assert len(step["picked"]) == min(most, step["total"])
        best = torch.tensor(step["scores"]).topk(len(step["picked"])).values
        assert sorted(step["scores"][at] for at in step["picked"]) == pytest.approx(sorted(best.tolist()), abs=1e-3)
        assert {at for at, share in enumerate(step["shares"]) if share} == set(step["picked"])
        assert sum(step["shares"]) == pytest.approx(1, abs=1e-3)
    assert found["steps"][-1]["total"] > most, "some are left out"


def test_layers_that_keep_nothing_read_the_last_layer_of_their_kind_that_does(walked):
    found = walked("shared")
    gemma, yoco = found["models"]
    kinds, own = gemma["kinds"], [layer for layer, source in enumerate(gemma["reads"]) if source == layer]
    assert own == [0, 1, 2, 3, 4, 5] and len(kinds) == 9
    for layer in range(6, 9):
        assert gemma["reads"][layer] == max(other for other in own if kinds[other] == kinds[layer])
    assert yoco["reads"] == [0, 1, 2, 3, 4, 4, 4, 4, 4], "the one global cache stands fifth, and four layers read it"
    for model, owners in ((gemma, own), (yoco, [0, 1, 2, 3, 4])):
        for step, rows, sizes in zip(found["steps"], model["held"], model["bytes"], strict=True):
            for row, (held, size) in enumerate(zip(rows, sizes, strict=True)):
                most = model["window"] - 1 if model["kinds"][row] == "sliding" else step["total"]
                assert held == (min(step["total"], most) if row in owners else 0)
                assert size == held * 2 * 2 * 16 * 4  # K and V of 2 heads of 16 numbers, 4 B each
    assert yoco["difference"] < 1e-4 and yoco["prefill"]["early"] < yoco["prefill"]["all"]
