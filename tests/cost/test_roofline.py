"""The roofline in numbers: the roof, a forward's bytes, what bounds it, which batch outweighs the weights."""

from dataclasses import replace

import pytest

from kvviz.base.errors import KvvizError
from kvviz.cost.blocks import Attention
from kvviz.cost.ceilings import ESTIMATE, Ceilings, Machine, MatrixRate, with_rows
from kvviz.cost.flops import cached_step, moved, prefill
from kvviz.cost.roofline import (
    DECODE,
    PREFILL,
    Place,
    Roof,
    advertised,
    countable,
    judged,
    outweighs,
    point,
    raised,
    repeats,
    roof_of,
    row_roof,
    starting_seconds,
    weighed,
    work_of,
)
from kvviz.cost.shape import read_shape
from kvviz.experiments.inside.spec import AnatomySpec
from kvviz.experiments.registry import read_spec
from kvviz.experiments.roofline.spec import REACH, RoofSpec, foreseen, places
from kvviz.experiments.roofline.words import crosses, sentences, sides
from kvviz.models.catalog.rows import accelerators, model_row

GPT2 = read_shape(model_row("gpt2").config)
ROOF = Roof(read=1e10, flops=1e11)
CEILINGS = Ceilings(
    environment=Machine("cpu", "A test's processor", 3, 4, "2.0", "3.12", "somewhere"),
    measured_at="2026-01-02T03:04:05Z",
    buffer_bytes=2**28,
    read_bandwidth=2e10,
    read_by="largest",
    reads={"largest": 2e10},
    row_product={"float32": 1.5e10},
    matrix=(MatrixRate("float32", 512, 512, 512, 9e10), MatrixRate("float32", *ESTIMATE, 8e10)),
    launch=2e-6,
)


def test_a_roof_is_slanted_up_to_its_ridge_and_flat_behind():
    assert ROOF.ridge == 10
    assert [ROOF.at(x) for x in (1, 10, 100)] == [1e10, 1e11, 1e11]


def test_the_measured_roof_is_the_plain_read_and_the_highest_product():
    assert roof_of(CEILINGS, "float32") == Roof(2e10, 9e10)
    assert row_roof(CEILINGS, "float32") == Roof(1.5e10, 9e10)
    faster = replace(CEILINGS, row_product={"float32": 2.2e10})
    assert roof_of(faster, "float32").read == row_roof(faster, "float32").read == 2.2e10, "the fastest of all reads"
    lifted = with_rows(faster)
    assert (lifted.read_bandwidth, lifted.read_by) == (2.2e10, "row-product-float32") and with_rows(lifted) == lifted
    assert with_rows(CEILINGS) == CEILINGS
    with pytest.raises(KvvizError, match="no matrix product in float16 was measured"):
        roof_of(CEILINGS, "float16")


def test_a_data_sheet_gives_a_roof_where_it_tells_of_the_dtype():
    rows = accelerators()
    assert advertised(rows["a100-80gb"], "bfloat16") == Roof(2.039e12, 312e12)
    assert advertised(rows["a100-80gb"], "float32").flops == 19.5e12
    assert advertised(rows["t4"], "bfloat16") is None  # the chip knows none
    assert advertised(rows["apple-m1-16gb"], "float32") is None  # nothing was found


def test_the_ladder_doubles_up_to_what_was_asked():
    spec = RoofSpec("gpt2", tokens=100, batch=3)
    assert (spec.lengths, spec.batches) == ((16, 32, 64, 100), (1, 2, 3))
    found = places(spec)
    assert [p.tokens for p in found if p.phase == PREFILL] == [16, 32, 64, 100]
    assert [(p.tokens, p.batch) for p in found if p.batch > 1] == [(32, 2), (32, 3), (100, 2), (100, 3)]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("model", ["gpt2", "qwen3-0.6b", "tiny-gemma3"])
@pytest.mark.parametrize("place", [Place(PREFILL, 64), Place(DECODE, 64), Place(DECODE, 200, 4)])
def test_bytes_are_the_cost_models_without_the_scores(model, place):
    shape = read_shape(model_row(model).config)
    forward = (prefill if place.phase == PREFILL else cached_step)(shape, place.tokens, place.batch)
    whole, work = moved(shape, forward, "bfloat16"), work_of(shape, place, "bfloat16")
    attention = [(b, n) for b, n in shape.counts.items() if isinstance(b, Attention)]
    products = sum(n * b.flops(forward) / (2 * (b.key_dim + b.value_dim)) for b, n in attention)  # a score each
    every = whole.weights + whole.cache_read + whole.cache_written + whole.activations
    assert every - work["bytes"] == 2 * products * 2  # written and read again, two bytes
    assert (work["weight_bytes"], work["copied_bytes"]) == (whole.weights, whole.cache_copied)
    assert work["cache_bytes"] == whole.cache_read + whole.cache_written


def test_a_decode_step_does_half_a_flop_a_byte_in_float32_and_a_prefill_more_and_more():
    assert work_of(GPT2, Place(DECODE, 512), "float32")["intensity"] == pytest.approx(0.5, rel=0.02)
    assert work_of(GPT2, Place(DECODE, 512), "bfloat16")["intensity"] == pytest.approx(1.0, rel=0.02)
    grows = [work_of(GPT2, Place(PREFILL, n), "float32")["intensity"] for n in (16, 64, 256)]
    batches = [work_of(GPT2, Place(DECODE, 64, b), "float32")["intensity"] for b in (1, 4, 16)]
    assert grows == sorted(grows) and grows[2] > 5 * grows[0]
    assert batches == sorted(batches) and batches[2] > 5 * batches[0]


def test_repeats_have_a_middle_and_no_step_leaves_the_positions():
    counts = [repeats(Place(phase, 64), least) for phase in (PREFILL, DECODE) for least in (1e-4, 0.1, 3)]
    assert all(count % 2 and count >= 3 for count in counts)
    assert max(counts) // 2 <= REACH


def test_a_point_holds_its_rates():
    p = point(GPT2, Place(DECODE, 64, 4), "float32", (0.9, 1.0, 1.2), 5)
    assert p["flops_per_s"] == p["flops"] and p["tokens_per_s"] == 4
    assert p["bytes"] == p["weight_bytes"] + p["cache_bytes"] + p["activation_bytes"]
    assert (p["s_q1"], p["s"], p["s_q3"], p["repeats"]) == (0.9, 1.0, 1.2, 5)
    assert point(GPT2, Place(PREFILL, 64), "float32", (1, 2, 3), 3)["tokens_per_s"] == 32


def step(s, *, flops=1e6, nbytes=1e6, phase=DECODE, tokens=64, batch=1):
    return {
        **{"phase": phase, "tokens": tokens, "batch": batch, "flops": flops, "bytes": nbytes, "s": s},
        **{"intensity": flops / nbytes, "weight_bytes": nbytes, "tokens_per_s": batch / s},
    }


GAPS = (4e-4,)
PROFILE = {"forward": DECODE, "operations": 100, "classes": {"gaps": 4e-4}, "wall_s": 8e-4, "unprofiled_s": 7e-4}


@pytest.mark.parametrize(
    ("p", "bound", "share"),
    [
        (step(0.01, nbytes=8e7), "memory", 0.8),
        (step(0.01, flops=8e8), "compute", 0.8),
        (step(6e-4), "launch", 1 / 6),
        (step(0.01), "between", 0.01),
        (step(3e-4, nbytes=2.9e6), "memory", 2.9 / 3),  # its launches can't take the time in which it has to read
    ],
)
def test_the_largest_part_of_the_time_bounds_a_forward(p, bound, share):
    (found,) = judged([p], ROOF, ROOF, starting_seconds([p], GAPS))
    assert found["bound"] == bound
    assert found["roof_share"] == pytest.approx(share)


def test_starting_takes_no_longer_than_the_shortest_forward_or_the_gaps():
    assert starting_seconds([step(1.0), step(3e-4)], GAPS) == 3e-4
    assert starting_seconds([step(1.0)], GAPS) == 4e-4


def test_no_forward_lies_above_the_roof_unless_its_weights_stay_in_the_chip():
    points = [step(1e-3, nbytes=3e7, flops=1e6), step(0.01, flops=2e9, nbytes=1e7, phase=PREFILL)]
    points = [{**p, "flops_per_s": p["flops"] / p["s"]} for p in points]
    roof = raised(ROOF, points, 0)
    assert roof == Roof(3e10, 2e11) and all(p["roof_share"] <= 1 for p in judged(points, roof, roof, 1e-6))
    assert raised(ROOF, points, 10**9) == Roof(ROOF.read, 2e11), "those say nothing of the memory"
    assert raised(ROOF, [{**p, "flops_per_s": 1.0, "s": 9.0} for p in points], 0) == ROOF, "never lowered"


def test_reading_is_judged_by_the_row_line_and_shown_by_both():
    (found,) = judged([step(0.01, nbytes=4e7)], ROOF, Roof(5e9, 1e11), 4e-4)
    assert found["bound"] == "memory"
    assert (found["roof_share"], found["row_share"]) == (pytest.approx(0.4), pytest.approx(0.8))


@pytest.mark.parametrize("tokens", [64, 512, 1024])
def test_the_batch_that_outweighs_is_the_first_whose_caches_are_more_than_the_weights(tokens):
    batch = outweighs(GPT2, tokens, "float32")

    def heavier(batch):
        found = moved(GPT2, cached_step(GPT2, tokens, batch), "float32")
        return found.cache_read > found.weights

    assert heavier(batch) and not heavier(batch - 1)


def test_no_batch_outweighs_where_nothing_is_cached_for_a_token():
    shape = read_shape({**model_row("gpt2").config, "n_layer": 1})
    rows = weighed(shape, RoofSpec("gpt2", tokens=64, batch=2).lengths, "float32")
    assert [row["tokens"] for row in rows] == [16, 32, 64]
    assert rows[0]["batch"] > rows[2]["batch"] > 1


def test_the_time_is_foreseen_by_the_devices_rates():
    fast, slow = ({"read": r, "flops": 10 * r, "launch": 1e-6} for r in (1e10, 1e9))
    spec = RoofSpec("gpt2", tokens=256, batch=8)
    assert foreseen(GPT2, spec, slow) > 5 * foreseen(GPT2, spec, fast) > 5
    assert foreseen(GPT2, RoofSpec("gpt2", tokens=64, batch=1), slow) < foreseen(GPT2, spec, slow)


def test_what_the_points_say_is_said_with_their_figures():
    points = [
        step(6e-4, tokens=16),
        step(7e-4, tokens=64),
        step(8e-4, batch=4, flops=4e6),
        step(0.02, phase=PREFILL, flops=1.5e9),
    ]
    document = {
        "points": judged(points, ROOF, ROOF, starting_seconds(points, GAPS)),
        "profiles": [PROFILE],
        "roof": {"read": 1e10, "flops": 1e11},
        "launch": 2e-6,
        "fast_memory_bytes": 2e6,
    }
    said = " ".join(sentences(document))
    assert "10 FLOP/B" in said and "does 1 FLOP/B" in said
    assert "75% of the roof: **compute-bound**" in said
    assert "**100 operations** in 0.7 ms, one every 7 µs" in said and "is 2 µs" in said
    assert "976.6 KiB, fit into the chip's own cache of 1.9 MiB" in said
    assert "**4 sequences** at a context of 64 decode 3.5 times" in said
    quiet = sentences({**document, "fast_memory_bytes": 0})
    assert not any("cache of" in one for one in quiet)


@pytest.mark.parametrize(
    ("decode", "prefill", "said"),
    [
        (0.5, 106, "lies on the memory side of the ridge, a prefill on the arithmetic side"),
        (0.5, 2.0, "and a prefill both lie on the memory side of the ridge"),
        (12, 25, "and a prefill both lie on the arithmetic side of the ridge"),
    ],
)
def test_the_title_says_on_which_side_of_the_ridge_a_step_and_a_prefill_lie(decode, prefill, said):
    points = [
        {"phase": phase, "tokens": 64, "batch": 1, "intensity": intensity}
        for phase, intensity in ((DECODE, decode), (PREFILL, prefill))
    ]
    found = {"points": points, "roof": {"read": 1e10, "flops": 1e11}}
    assert sides(found) == f"A decode step of one sequence {said}"


@pytest.mark.parametrize(
    ("at", "batch"), [((0.5, 3, 12), 8), ((0.5, 3, 8), None), ((12, 24, 40), None), ((4, 11, 12), 4)]
)
def test_the_smallest_batch_past_the_ridge_is_named_where_one_sequence_is_not_past_it(at, batch):
    steps = [{"phase": DECODE, "tokens": 64, "batch": n, "intensity": i} for n, i in zip((1, 4, 8), at, strict=True)]
    found = {"points": steps, "roof": {"read": 1e10, "flops": 1e11}}
    assert crosses(found) == batch


def test_a_forward_that_the_profiler_found_faster_was_disturbed():
    quiet = {"forward": DECODE, "operations": 9, "classes": {"gaps": 4e-4}, "wall_s": 0.011, "unprofiled_s": 0.01}
    document = {
        "points": judged([step(0.01), step(0.01, phase=PREFILL)], ROOF, ROOF, 4e-4),
        "profiles": [quiet],
        "roof": {"read": 1e10, "flops": 1e11},
        "fast_memory_bytes": 0,
    }
    assert not any("Something else" in one for one in sentences(document))
    loud = {**quiet, "unprofiled_s": 1.2345}
    said = sentences({**document, "profiles": [loud]})[0]
    assert "the decode took 1,234 ms by itself and 11 ms a moment later under" in said


def test_models_with_an_encoder_are_refused():
    with pytest.raises(KvvizError, match="T5 reads its text with an encoder"):
        countable(model_row("t5-small").config, "T5")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tokens": 63}, "tokens is 63; it is a whole number of at least 64"),
        ({"tokens": "64"}, "tokens is '64'"),
        ({"tokens": 10**6}, "prompt tokens is 1000000"),
        ({"batch": 0}, "batch is 0"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
        ({"kind": "anatomy"}, "'roofline', not 'anatomy'"),
    ],
)
def test_what_cannot_be_asked_for_is_a_sentence(fields, said):
    with pytest.raises(KvvizError, match=said):
        RoofSpec.from_dict({"model": "gpt2", **fields})


def test_a_look_is_read_back_as_what_it_was():
    for spec in (RoofSpec("gpt2", batch=2), AnatomySpec("gpt2", "hello")):
        assert read_spec(spec.kind, spec.to_dict()) == spec
    with pytest.raises(KvvizError, match="no field colour"):
        read_spec("roofline", {**RoofSpec("gpt2").to_dict(), "colour": 1})
