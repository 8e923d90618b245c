"""The bench of speculation: a draft of all layers is always right, and a draft shares the model's weights."""

import pytest

from bench.speculation import first_layers, line_of, measure
from kvviz.base.errors import KvvizError
from kvviz.experiments.comparison.spec import ComparisonSpec


def test_a_draft_has_the_first_layers_and_no_weights_of_its_own(load):
    model = load("tiny-qwen3").model
    layers = model.config.num_hidden_layers
    draft = first_layers(model, 1)
    assert draft.config.num_hidden_layers == len(draft.model.layers) == 1
    assert draft.model.layers[0].mlp.up_proj.weight is model.model.layers[0].mlp.up_proj.weight
    assert model.config.num_hidden_layers == len(model.model.layers) == layers > 1
    for wrong in (0, layers + 1):
        with pytest.raises(KvvizError, match=f"{wrong} is no number of layers for a draft: the model has {layers}"):
            first_layers(model, wrong)


@pytest.mark.long
def test_a_draft_of_all_layers_is_always_accepted(engine, load):
    layers = load("tiny-qwen3").model.config.num_hidden_layers
    work = ComparisonSpec("tiny-qwen3", prompt_tokens=8, new_tokens=8, repeats=1)
    (row,) = measure(engine, work, [layers])
    assert row["draft_layers"] == layers and row["identical"]
    assert row["accepted"] == row["tried"] > 0 and row["acceptance"] == 1 and row["tokens_per_forward"] > 1
    assert row["speedup"] > 0 and row["expected_speedup"] > 0
    assert f"100% of {row['tried']} tried accepted" in line_of(row)
