"""Every mistake is really made: its line stands in the loop, and the harm that its sentence tells of is there."""

import math
from functools import cache

import pytest
import torch

from kvviz.base.errors import KvvizError
from kvviz.decoding.scratch import mistakes
from kvviz.decoding.scratch.load import from_transformers
from kvviz.decoding.scratch.mistakes import CHUNK
from kvviz.decoding.scratch.pitfalls import PITFALLS, pitfall_named
from kvviz.experiments.inside.anatomy import dissect
from kvviz.experiments.inside.mistakes import Mistakes
from kvviz.experiments.inside.mistiming import mistime, verdict
from kvviz.experiments.inside.run import anatomy, mistake
from kvviz.experiments.inside.spec import AnatomySpec, MistakeSpec
from kvviz.models.text import ByteCodec

pytestmark = pytest.mark.slow  # they decode with real models

NEW = 6
PROMPT = torch.arange(5, 5 + 2 * CHUNK + 3)[None] * 7 % 200


@pytest.fixture(scope="module", params=["tiny-gpt2", "tiny-qwen3"])
def broken(request, load):
    """`broken(name)`: the mistake made on a small model."""
    decodes = Mistakes(from_transformers(load(request.param).model), ByteCodec(512), PROMPT, new_tokens=NEW)
    return cache(lambda name: decodes.make(pitfall_named(name)))


@pytest.mark.parametrize("name", PITFALLS)
def test_the_line_at_fault_stands_in_the_loop_as_shown(name):
    mistake = PITFALLS[name]
    lines = [line.strip() for line in mistake.source.splitlines()]
    assert mistake.wrong in lines
    assert mistake.mend not in lines


@pytest.mark.parametrize("name", [name for name, row in PITFALLS.items() if row.shows != "clock"])
def test_the_right_loop_tells_the_truth(broken, name):
    right = broken(name)["right"]
    assert right["crash"] is None
    assert len(right["ids"]) == NEW
    assert max(right["deltas"]) < 1e-3
    assert right["text"] == broken(name)["truth"]


def test_what_stays_alive_of_the_right_loop_is_its_cache(broken, load, request):
    """Nothing that observes the loop keeps a tensor of it."""
    right, model = broken("positions")["right"], load(request.node.callspec.params["broken"]).model
    per_layer = [2 * 4 * math.prod(shape) for shape in right["shapes"]]
    assert right["alive"] == [model.config.num_hidden_layers * nbytes for nbytes in per_layer]


def test_a_prefill_is_as_many_multiply_adds_as_the_anatomy_counts(broken, load, request):
    """The head over the last position alone, on both pages."""
    model = from_transformers(load(request.node.callspec.params["broken"]).model)
    walked = dissect(model, ByteCodec(512), PROMPT, new_tokens=2, layer=0, head=0)["steps"]
    assert [step["multiply_adds"] for step in walked] == broken("positions")["right"]["multiply_adds"][:2]


@pytest.mark.parametrize(
    "name", ["positions", "mask-offset", "twice", "anew", "stale", "one-token-prompt", "prompt-again"]
)
def test_what_blurs_the_context_changes_the_logits_and_then_the_text(broken, name):
    found = broken(name)
    assert found["wrong"]["crash"] is None
    assert max(found["wrong"]["deltas"]) > 0.1
    assert found["first_difference"] is not None
    assert found["alone"] != found["truth"]


def test_positions_spare_the_first_token(broken):
    wrong = broken("positions")["wrong"]
    assert wrong["deltas"][0] < 1e-3 < wrong["deltas"][1]


def test_the_square_mask_is_harmless_until_the_second_piece_of_the_prompt(broken):
    wrong = broken("square-mask")["wrong"]
    assert wrong["fed"] == [CHUNK]
    assert (wrong["crash"]["forward"], wrong["crash"]["stage"]) == (1, "mask")
    assert str(2 * CHUNK) in wrong["crash"]["message"]


def test_appending_twice_doubles_the_cache(broken):
    found = broken("twice")
    assert [shape[2] for shape in found["wrong"]["shapes"]] == [2 * shape[2] for shape in found["right"]["shapes"]]


def test_a_cache_made_anew_holds_one_token(broken):
    assert {shape[2] for shape in broken("anew")["wrong"]["shapes"][1:]} == {1}


def test_a_cache_that_is_not_passed_on_is_right_and_costs_what_none_costs(broken):
    found = broken("not-passed-on")
    assert found["first_difference"] is None
    assert sum(found["wrong"]["multiply_adds"]) > 4 * sum(found["right"]["multiply_adds"])


def test_gradients_keep_far_more_alive_and_change_no_token(broken):
    found = broken("gradients")
    wrong, right = found["wrong"]["alive"], found["right"]["alive"]
    assert found["first_difference"] is None
    assert wrong[-1] > 3 * right[-1]
    assert wrong[-1] - wrong[0] > 3 * (right[-1] - right[0])


def test_the_prompt_fed_again_piles_up(broken):
    held = [shape[2] for shape in broken("prompt-again")["wrong"]["shapes"]]
    prompt = PROMPT.shape[1]
    assert held == [sum(prompt + i for i in range(n + 1)) for n in range(NEW)]


def test_a_mistake_that_is_none_is_named():
    with pytest.raises(KvvizError, match="no mistake 'x'"):
        pitfall_named("x")


def test_the_stopwatch_that_does_not_wait_never_waits(load):
    model, waits = from_transformers(load("tiny-gpt2").model), []
    list(mistakes.not_synchronised(model, PROMPT, 3, lambda: waits.append(1)))
    assert waits == []
    list(mistakes.synchronised(model, PROMPT, 3, lambda: waits.append(1)))
    assert len(waits) == 6  # before and after each step


def test_a_warm_up_is_a_pass_that_is_thrown_away(load):
    model, waits = from_transformers(load("tiny-gpt2").model), []
    assert len(list(mistakes.with_warm_up(model, PROMPT, 3, lambda: waits.append(1)))) == 3
    assert len(waits) == 12


@pytest.mark.parametrize(
    ("wrong", "right", "said"),
    [
        ([], [], "nothing to see on a CPU"),
        ([9.0, 1.0, 1.1], [1.0, 1.0, 1.1], "prefill took 9.0 times"),
        ([1.0, 0.2, 0.2], [1.0, 1.0, 1.0], "0.20 times that by the right one"),
        ([0.2, 1.0, 1.0], [1.0, 1.0, 1.0], "20% of its time by the wrong stopwatch"),
        ([1.0, 1.1, 1.0], [1.0, 1.0, 1.1], "nothing to see here this time"),
    ],
)
def test_the_verdict_says_what_was_measured(wrong, right, said):
    assert said in verdict(wrong, right)


def test_the_anatomy_and_a_mistake_count_the_same_work_alike(bench):
    """Both compute the head for the last position alone."""
    asked = {"model": "tiny-gpt2", "prompt": "Once upon", "new_tokens": 3}
    taken_apart = next(record for record in anatomy(AnatomySpec(**asked), bench()) if "steps" in record)
    broken = next(record for record in mistake(MistakeSpec(**asked), bench()) if "right" in record)
    assert broken["right"]["multiply_adds"] == [step["multiply_adds"] for step in taken_apart["steps"]]


@pytest.mark.parametrize("right", [[1.0, 1.45, 1.45], [9.0, 1.0, 1.0]])
def test_a_cold_start_that_seems_quicker_was_disturbed(right):
    assert "Other work disturbed this measurement" in verdict([1.0, 1.0, 1.0], right, cold=True)
    assert "3.0 times as long" in verdict([3.0, 1.0, 1.0], [1.0, 1.0, 1.0], cold=True)


@pytest.mark.long
def test_no_warm_up_is_measured_in_a_new_process(load):
    spec = MistakeSpec("tiny-gpt2", "hello there", new_tokens=4, clock="no-warm-up")
    found = mistime("no-warm-up", spec, load("tiny-gpt2"))
    assert len(found["wrong"]) == len(found["right"]) == 4
    assert min(found["wrong"] + found["right"]) > 0


def test_on_a_cpu_there_is_nothing_to_wait_for(load):
    spec = MistakeSpec("tiny-gpt2", "hello there", new_tokens=4, clock="no-sync")
    assert "nothing to see on a CPU" in mistime("no-sync", spec, load("tiny-gpt2"))["verdict"]


def test_all_mistakes_but_those_of_the_clock_are_made_at_once(bench):
    _, *made, _ = mistake(MistakeSpec("tiny-gpt2", "hello there", new_tokens=3), bench())
    assert [one["mistake"] for one in made] == [name for name, row in PITFALLS.items() if row.shows != "clock"]
