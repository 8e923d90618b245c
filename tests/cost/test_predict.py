"""The predicted curve: the work counted, each kind at its pace; and a prediction that has seen the run is refused."""

import dataclasses
import itertools
import json
import time
from types import SimpleNamespace

import pytest
import torch

from kvviz.base.errors import KvvizError
from kvviz.cost.blocks import Matrix
from kvviz.cost.flops import cached_step, moved, prefill
from kvviz.cost.predict import AGAIN, JOINED, Paces, bias, foretold, off_by, predict, step_of, step_parts
from kvviz.cost.shape import read_shape
from kvviz.decoding import measure_paces as pacing
from kvviz.device.clock import timed
from kvviz.device.disturbance import Disturbance
from kvviz.device.remembered import Remembered
from kvviz.experiments.comparison import comparison_run
from kvviz.experiments.comparison import run as perform
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.memory.formula import kv_memory
from kvviz.models.catalog.rows import models
from kvviz.store.files import reading

pytestmark = pytest.mark.usefixtures("own_paces")

NOTHING = {
    **{"dtype": "float32", "rows": (1, 4), "streamed": (0.0, 0.0), "resident": (0.0, 0.0), "cache_bytes": 0},
    **dict.fromkeys(("queries", "cached", "elementwise_rows"), (1,)),
    **dict.fromkeys(("attending", "looking", "joining", "elementwise_s", "starting"), (0.0,)),
    **{"start": 0.0, "moved": (0,)},
}
SOME = {"streamed": (1e-9, 4e-9), "resident": (1e-10, 1e-9), "attending": (1e-11,), "starting": (1e-6,)}
PACES = Paces(**{**NOTHING, **SOME})


def paces(**changed):
    return Paces(**{**NOTHING, **changed})


def shape(name="tiny-gpt2"):
    return read_shape(models()[name].config)


def parts(which, forward, name="tiny-gpt2", operations=0):
    return step_parts(shape(name), forward(shape(name)), which, operations)


def test_products_lie_on_lines_between_the_measured_rows_and_go_on_as_the_last():
    known = paces(streamed=(1.0, 4.0), resident=(0.5, 2.0))
    assert [known.product(rows, 10) for rows in (1, 2.5, 4, 8)] == [10, 25, 40, 80]
    assert known.product(1, 10, resident=True) == 5


def test_the_head_has_paces_of_its_own():
    config = models()["tiny-gpt2"].config
    head = config["n_embd"] * config["vocab_size"]
    known = {"streamed": (1.0, 4.0), "head_rows": (1, 4), "head": (2.0, 6.0)}
    for batch, own, as_any in ((1, 2, 1), (4, 6, 4), (8, 12, 8)):
        step = lambda s, b=batch: cached_step(s, 20, b)  # noqa: E731
        apart = parts(paces(**known), step)["products"] - parts(paces(streamed=(1.0, 4.0)), step)["products"]
        assert apart == pytest.approx(head * (own - as_any))
    told = foretold(shape(), cached_step(shape(), 20), paces(**known), 0)
    assert told.weights_s == parts(paces(**known), lambda s: cached_step(s, 20))["products"]


def test_what_fits_into_the_processors_cache_is_read_at_the_caches_own_rate():
    known = paces(streamed=(4e-10, 1e-9), resident=(1e-10, 1e-9), cache_bytes=1000, head=(1e-9,), head_rows=(1,))
    assert (known.near(1000).read, known.near(1001).read) == pytest.approx((4e10, 1e10))
    assert known.near(1000).launch == known.rates.launch
    assert dataclasses.replace(known, resident=(0.0, 0.0)).near(10) == known.rates, "a pace that was not measured"


def test_one_row_reads_every_matrix_once():
    """12 d^2 a layer, and the head: d x vocabulary."""
    config = models()["tiny-gpt2"].config
    d, layers = config["n_embd"], config["n_layer"]
    elements = layers * 12 * d * d + d * config["vocab_size"]
    step = parts(paces(streamed=(1.0, 4.0)), lambda s: cached_step(s, 20))
    assert step["products"] == elements and sum(step.values()) >= elements
    whole = parts(paces(streamed=(1.0, 4.0)), lambda s: prefill(s, 4))
    assert whole["products"] == layers * 12 * d * d * 4 + d * config["vocab_size"], "the head sees the last row alone"


def test_each_other_kind_by_its_own_count():
    config = models()["tiny-gpt2"].config
    d, layers = config["n_embd"], config["n_layer"]
    held = kv_memory(shape().spec, 19, dtype="float32").total_bytes
    assert parts(paces(joining=(1.0,)), lambda s: cached_step(s, 20))["joining"] == 2 * held
    assert parts(paces(joining=(1.0,)), lambda s: prefill(s, 20))["joining"] == 0
    assert parts(paces(attending=(1.0,)), lambda s: prefill(s, 3))["attention"] == layers * 4 * 3 * 3 * d
    assert parts(paces(looking=(1.0,)), lambda s: prefill(s, 3))["attention"] == 0
    assert parts(paces(looking=(1.0,)), lambda s: cached_step(s, 20))["attention"] == layers * 4 * 20 * d
    assert parts(paces(starting=(0.5,)), lambda s: prefill(s, 3), operations=7)["starting"] == 3.5


def test_a_pace_lies_on_lines_between_the_sizes_it_was_measured_at():
    layers, d = models()["tiny-gpt2"].config["n_layer"], models()["tiny-gpt2"].config["n_embd"]
    text = paces(queries=(2, 6), attending=(3.0, 1.0))
    of = lambda tokens: parts(text, lambda s: prefill(s, tokens))["attention"] / (layers * 4 * tokens**2 * d)  # noqa: E731
    assert [of(tokens) for tokens in (1, 2, 4, 6, 60)] == [3, 3, 2, 1, 1], "beyond the last one it stays"
    alone = paces(queries=(2048,), attending=(2.0,), cached=(2**15,), looking=(1.0,), joining=(1.0,))
    work = parts(alone, lambda s: prefill(s, 64))
    assert work["attention"] == 2 * layers * 4 * 64**2 * d, "one measured size, as on a GPU, stands for the others"
    assert parts(alone, lambda s: cached_step(s, 64))["joining"] > 0
    grown = paces(cached=(10, 30), looking=(1.0, 3.0), joining=(1.0, 3.0))
    one, both = (parts(grown, lambda s, b=b: cached_step(s, 20, b)) for b in (1, 2))
    assert both["attention"] == one["attention"] * 2 * 3 / 2, "the cached tokens of all sequences count"
    assert both["joining"] == one["joining"] * 2 * 3 / 2
    rows = paces(elementwise_rows=(1, 11), elementwise_s=(0.0, 5.0))
    of_rows = lambda tokens, batch: parts(rows, lambda s: prefill(s, tokens, batch))["elementwise"]  # noqa: E731
    assert [of_rows(1, 1), of_rows(3, 2), of_rows(11, 2)] == [0, 2.5, 10], "beyond the last one it is proportional"
    assert parts(rows, lambda s: cached_step(s, 20, 6))["elementwise"] == 2.5


def test_a_launch_takes_longer_the_more_each_product_moves():
    slower = paces(moved=(0, 2**40), starting=(1.0, 2.0))
    short, long, many = (
        parts(slower, lambda s, t=tokens, b=batch: cached_step(s, t, b), operations=10)["starting"]
        for tokens, batch in ((2, 1), (200, 1), (200, 8))
    )
    assert 10 < short < long < many < 20


def test_a_forward_over_a_whole_text_launches_more_slowly():
    slower = paces(starting=(1.0,), again=0.5)
    assert parts(slower, lambda s: prefill(s, 9), operations=10)["starting"] == 15
    assert parts(slower, lambda s: cached_step(s, 9), operations=10)["starting"] == 10


def test_a_step_of_several_sequences_launches_more_slowly():
    slower = paces(starting=(1.0,), several=0.5)
    one, many, whole = (make(shape(), 9, batch) for make, batch in ((cached_step, 1), (cached_step, 2), (prefill, 2)))
    assert [parts(slower, lambda _, f=f: f, operations=10)["starting"] for f in (one, many, whole)] == [10, 15, 10]


def test_a_cache_that_is_joined_anew_evicts_by_its_old_and_its_new_bytes_and_each_once():
    held = kv_memory(shape().spec, 199, dtype="float32").total_bytes
    products = sum(count for block, count in shape().counts.items() if isinstance(block, Matrix))
    rising = paces(moved=(0, 2**40), starting=(0.0, float(2**40)))
    step = moved(shape(), cached_step(shape(), 200), "float32")
    starting = parts(rising, lambda s: cached_step(s, 200), operations=products)["starting"]
    assert starting == pytest.approx(step.weights + step.activations + step.cache_written + 2 * held)


def test_what_a_step_moves_pushes_resident_weights_away():
    config = models()["tiny-gpt2"].config
    elements = 12 * config["n_layer"] * config["n_embd"] ** 2 + config["n_embd"] * config["vocab_size"]
    known = {"moved": (0, 2**40), "starting": (0.0, 0.0), "evicting": (0.0, 1.0)}
    few, many, memory = (
        parts(paces(**known, cache_bytes=size), lambda s, t=tokens: cached_step(s, t))["products"]
        for size, tokens in ((2**30, 20), (2**30, 200), (0, 200))
    )
    assert 0 < few < many < elements and memory == 0, "weights that come from memory anyway lose nothing"


def test_figures_that_can_only_rise_are_smoothed_without_being_pulled_down():
    assert pacing._rising([1.0, 2.0, 2.0, 5.0]) == (1.0, 2.0, 2.0, 5.0)
    assert pacing._rising([3.0, 1.0, 2.0, 6.0, 4.0]) == (2.0, 2.0, 2.0, 5.0, 5.0)


def test_small_models_stay_in_the_processors_cache():
    step = lambda size: parts(  # noqa: E731
        paces(streamed=(1.0, 1.0), resident=(0.25, 0.25), cache_bytes=size), lambda s: cached_step(s, 20)
    )
    assert step(10**9)["products"] == step(0)["products"] / 4


def test_of_experts_only_those_that_are_chosen():
    name = next(row.id for row in models().values() if row.config.get("model_type") == "mixtral")
    known = paces(streamed=(1.0, 4.0))
    one, many = (parts(known, lambda s, n=n: prefill(s, n), name=name)["products"] for n in (1, 64))
    dense = sum(count * block.weights_read(prefill(shape(name), 10**6)) for block, count in shape(name).counts.items())
    assert one < dense / 2 and many >= dense


def test_the_curve_climbs_without_a_cache_and_not_with_one():
    size = {"operations": 10, "prompt_tokens": 8, "new_tokens": 40, "batch": 1, "queues": False}
    found = predict(shape(), PACES, {"uncached": AGAIN, "cached": JOINED}, **size)
    again, once = found["uncached"], found["cached"]
    assert again[0] == once[0] and len(again) == len(once) == 40
    assert all(b > a for a, b in itertools.pairwise(again))
    assert once[-1] < 1.1 * once[1] < again[1]


@pytest.mark.parametrize("work", [AGAIN, JOINED])
@pytest.mark.parametrize(
    "name", ["tiny-gpt2", next(r.id for r in models().values() if "num_experts_per_tok" in r.config)]
)
def test_the_parts_that_a_verdict_names_add_up_to_the_dashed_line(work, name):
    other = {"looking": (2e-11,), "joining": (1e-10,), "elementwise_rows": (1, 9), "elementwise_s": (0.0, 1e-6)}
    known = paces(streamed=(1e-9, 3e-9), attending=(1e-11,), starting=(1e-6,), **other)
    found = predict(shape(name), known, {"m": work}, operations=9, prompt_tokens=8, new_tokens=6, batch=2, queues=False)
    told = foretold(shape(name), step_of(shape(name), work, 11, 2), known, 9)
    parts = (told.weights_s, told.computing_s, told.starting_s, told.scan_s)
    assert told.tokens == 11 and sum(parts) == pytest.approx(found["m"][3], rel=1e-5) and min(parts) >= 0
    assert told.starting_s == 9e-6 and bool(told.scan_s) == (work == JOINED)


def test_where_a_device_queues_its_work_the_longer_of_the_two_counts():
    size = {"operations": 10**6, "prompt_tokens": 8, "new_tokens": 4, "batch": 1}
    apart, over = (predict(shape(), PACES, {"m": JOINED}, **size, queues=q)["m"] for q in (False, True))
    assert over == [1.0] * 4 and all(a > 1.0 for a in apart)


def test_how_far_off_leaves_the_prefill_out_and_takes_the_middle():
    assert off_by([9.0, 1.1, 0.8, 1.0], [1.0, 1.0, 1.0, 1.0]) == pytest.approx(0.1)
    assert bias([9.0, 0.5, 0.5], [1.0, 1.0, 1.0]) == -0.5
    assert off_by([1.0], [1.0]) is None is bias([], [])


# --- measured ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured():
    return pacing.measure_paces("cpu", "float32")


@pytest.fixture
def no_memory(monkeypatch):
    """Small tensors, where no pace is looked at."""
    small = dataclasses.replace(pacing.ON_CPU, queries=(5, 9), cached=(8,), rows=(1, 7, 14))
    monkeypatch.setattr(pacing, "ON_CPU", small)
    monkeypatch.setattr(pacing, "MOVED", (0, 2**12))


@pytest.mark.slow
def test_measured_paces(measured):
    assert len(measured.streamed) == len(measured.resident) == len(measured.rows)
    assert all(pace > 0 for pace in measured.streamed)
    assert measured.start == 0 and not measured.queries, "they are measured for each model"
    assert measured.streamed[-1] > 3 * measured.streamed[0], "hundreds of rows compute, one reads"
    written = json.loads(json.dumps(measured.to_dict()))
    assert written == measured.to_dict() and written["streamed"] == list(measured.streamed)


@pytest.mark.slow
@pytest.mark.parametrize("attn", ["sdpa", "eager"])
def test_attention_is_measured_with_the_heads_of_a_model(attn, no_memory):
    assert pacing.heads_of(shape("qwen3-4b")) == pacing.Heads(32, 8, 128, 128, 36)
    assert pacing.heads_of(shape("tiny-gpt2")).queries == pacing.heads_of(shape("tiny-gpt2")).shared
    assert pacing.heads_of(None) == pacing.Heads() == pacing.heads_of(shape("mamba-130m"))
    assert pacing.heads_of(shape("deepseek-v3")).shared == 128, "latents are expanded to keys and values of every head"
    found = pacing.attention_paces("cpu", "float32", attn, pacing.Heads(4, 2, 8, 8, 3))
    assert found.queries == (5, 9) and found.cached == (8,) and found.joining[0] > 0
    assert (len(found.attending), len(found.looking)) == (2, 1)


def test_a_small_models_products_are_measured_in_its_own_sizes(load, monkeypatch):
    held = dataclasses.replace(PACES, cache_bytes=2**30)
    sizes = pacing.resident_sizes(shape(), held)
    d, vocabulary = models()["tiny-gpt2"].config["n_embd"], models()["tiny-gpt2"].config["vocab_size"]
    assert sizes.count((4 * d, d)) == models()["tiny-gpt2"].config["n_layer"]
    assert pacing.head_size(shape()) == (d, vocabulary) and sizes.count((d, vocabulary)) == sizes.count((d, 4 * d))
    assert pacing.head_size(None) is None
    assert pacing.resident_sizes(shape(), dataclasses.replace(held, cache_bytes=9)) == ()
    few = [rows for rows in pacing.ROWS if rows < pacing.FEW]
    monkeypatch.setattr(pacing, "STREAMED", 2**20)
    monkeypatch.setattr(pacing, "MOVED", (0, 2**12))
    away = pacing.evicting_paces("cpu", "float32", sizes)
    assert away[0] == 0.0 <= away[1]
    assert len(pacing.head_paces("cpu", "float32", (d, vocabulary))) == len(few)
    monkeypatch.setattr(pacing, "ROWS", (1, 4, 67))
    model = load("tiny-gpt2").model
    lying = pacing._as_they_lie(model, sizes)
    assert lying == ((d, 3 * d), (d, d), (d, 4 * d), (4 * d, d)) * models()["tiny-gpt2"].config["n_layer"]
    assert pacing._as_they_lie(model, sizes[1:]) == sizes[1:], "weights that lie elsewhere, as those of experts"
    layers, head = pacing.resident_paces(model.config, "cpu", "float32", lying, (d, vocabulary))
    assert (len(layers), len(head)) == (3, 2) and layers[-1] > layers[0]


@torch.inference_mode()
def test_a_small_models_products_are_timed_between_the_operations_of_a_narrow_model(load, monkeypatch):
    twin, said = pacing._narrow(load("tiny-gpt2").model.config), []
    forward, now = twin.transformer.h[0].mlp.act.forward, [0.0]
    monkeypatch.setattr(twin.transformer.h[0].mlp.act, "forward", lambda x: said.append("other") or forward(x))
    monkeypatch.setattr(pacing.time, "perf_counter", lambda: now[0])

    def call(name, seconds):
        said.append(name)
        now[0] += seconds

    between = pacing._Between(twin, "cpu")
    found = between.seconds([lambda: call("one", 1.0), lambda: call("two", 2.0), lambda: call("three", 3.0)], times=3)
    assert found == [1.0, 2.0, 3.0]
    ours = [name for name in said if name != "other"]
    assert ours[:6] == ["one", "two", "three"] * 2 and "other" in said[: said.index("three", 3)]
    monkeypatch.setattr(pacing, "decode", lambda *_, **__: [])
    assert len(between.seconds([lambda: None] * 2)) == 2, "a model whose products are no modules ends too"


def test_what_is_read_beside_a_small_models_products_leaves_most_of_the_memory_free(monkeypatch):
    made, ones = [], torch.ones
    monkeypatch.setattr(pacing, "MOVED", (0, 2**12))
    monkeypatch.setattr(pacing.torch, "ones", lambda *shape, **how: made.append(shape) or ones(*shape, **how))
    for free, slices in ((2**40, 5), (8 * 2 * 2**12, 2), (0, 1)):
        monkeypatch.setattr(pacing, "device_memory", lambda device, free=free: (free, 2**40))
        made.clear()
        assert len(pacing.evicting_paces("cpu", "float32", [(8, 16)] * 5)) == 2
        assert made[-2:] == [(5 if free else 1, 0), (slices, 2**10)]


def test_a_difference_near_0_does_not_have_a_small_models_paces_measured_for_ever():
    alike = pacing._small._alike
    assert alike(((1e-10,), (0.0, 1e-15)), ((1.02e-10,), (0.0, 0.0))), "noise beside what a product takes"
    assert not alike(((1e-10,), (0.0, 1e-15)), ((1e-10,), (0.0, 5e-11)))
    assert not alike(((1e-10,), (0.0, 0.0)), ((2e-10,), (0.0, 0.0)))


@pytest.mark.slow
def test_the_rates_of_estimates_follow_from_them(measured):
    measured = dataclasses.replace(measured, start=4e-6)
    assert measured.rates.launch == 2e-6
    assert measured.rates.read == 4 / measured.streamed[0]
    assert measured.rates.flops == pytest.approx(128 / measured.product(64, 1))


def test_rows_that_would_take_too_long_are_not_tried(monkeypatch):
    monkeypatch.setattr(pacing, "LONGEST", 0.0)
    found = pacing.measure_paces("cpu", "float32")
    assert (len(found.rows), len(found.streamed)) == (1, 1)
    assert found.product(10, 1.0) == pytest.approx(10 * found.streamed[0])


@pytest.mark.slow
def test_starts_are_those_of_a_narrow_model_of_the_same_make(load):
    for name in ("tiny-gpt2", "tiny-qwen3", "tiny-gemma3", "tiny-mamba2"):
        model = load(name).model
        twin = pacing._narrow(model.config)
        assert type(twin) is type(model) and twin.config.get_text_config().hidden_size == 16
        assert pacing.count_operations(twin) == pacing.count_operations(model)
        assert sum(p.numel() for p in twin.parameters()) < 100_000
    found, operations = pacing.paces_of(load("tiny-gpt2"))
    assert 0 < found.start < 1e-3 and pacing.paces_of(load("tiny-gpt2")) == (found, operations)
    assert operations == pacing.count_operations(load("tiny-gpt2").model)


@pytest.mark.slow
@torch.inference_mode()
def test_before_each_product_memory_is_read_off_the_clock(load, monkeypatch):
    twin = pacing._narrow(load("tiny-gpt2").model.config)
    products = 4 * twin.config.n_layer + 1
    reads, now = pacing._Reads(twin), [0.0]
    monkeypatch.setattr(pacing.time, "perf_counter", lambda: now.__setitem__(0, now[0] + 1.0) or now[0])
    for size, seconds in ((4096, products), (0, 0.0)):
        reads.read_for_each_product(size)
        assert reads.pool.nbytes == size * products
        twin(torch.zeros(1, 2, dtype=torch.long))
        assert (reads.taken(), reads.taken()) == (seconds, 0.0)


@pytest.mark.slow
@torch.inference_mode()
def test_what_a_hook_costs_is_no_part_of_a_launch(load, monkeypatch):
    config, slow = load("tiny-gpt2").model.config, 1e-3
    usual = pacing._starts_of(config, "cpu", "float32")

    def waiting(reads):
        end = time.perf_counter() + slow
        while time.perf_counter() < end:
            pass

    monkeypatch.setattr(pacing._Reads, "_read", waiting)
    found = pacing._starts_of(config, "cpu", "float32")
    added = slow * (4 * config.n_layer + 1) / found.operations  # by each hook of a step, for each of its launches
    assert abs(found.starting[0] - usual.starting[0]) < 0.2 * added


@pytest.mark.slow
def test_a_family_that_can_not_be_so_narrow_takes_the_starts_of_a_narrow_llama(load, monkeypatch):
    made = pacing.AutoModelForCausalLM.from_config

    def refusing(config, **settings):
        if config.model_type != "llama":
            raise ValueError("too narrow")
        return made(config, **settings)

    monkeypatch.setattr(pacing.AutoModelForCausalLM, "from_config", refusing)
    twin = pacing._narrow(load("tiny-gpt2").model.config)
    assert twin.config.model_type == "llama"
    assert twin.config.num_hidden_layers == load("tiny-gpt2").model.config.n_layer


@pytest.mark.slow
def test_operations_of_a_step_are_counted(load):
    few, many = (pacing.count_operations(load(name).model) for name in ("tiny-gpt2", "tiny-qwen3"))
    assert 20 < few < many < 1000 and few == pacing.count_operations(load("tiny-gpt2").model)


@pytest.mark.slow
def test_the_model_itself_makes_no_step_for_a_prediction(load, monkeypatch):
    loaded = load("tiny-gpt2")
    monkeypatch.setattr(pacing, "_starts", Remembered(lambda one, other: True))
    monkeypatch.setattr(loaded.model, "forward", None)
    assert pacing.paces_of(loaded)[1] > 20


# --- made before the run -------------------------------------------------------------------------------------------

WORK = ComparisonSpec(model="tiny-gpt2", weights="random", prompt="abc", new_tokens=6, repeats=1)


def records(engine):
    return list(perform.perform(WORK, engine.get(WORK), comparison_id="c"))


@pytest.mark.slow
def test_it_is_sent_before_any_step_is_made(engine, monkeypatch):
    made = []
    for module, name in ((perform, "check_equivalence"), (comparison_run, "timed")):
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, real=real, name=name: made.append(name) or real(*a))
    for record in perform.perform(WORK, engine.get(WORK), comparison_id="c"):
        if record["t"] == "predicted":
            assert not made
            break
    else:
        raise AssertionError("nothing was predicted")


@pytest.mark.slow
@pytest.mark.parametrize("disturbed", [0.0, 0.5])
def test_it_does_not_know_how_long_the_steps_take(engine, monkeypatch, disturbed):
    """Steps by a clock that runs a hundred times as fast: the measured times follow it, the prediction does not."""
    doubts: list[bool] = []
    monkeypatch.setattr(perform, "doubt_figures", lambda begun: doubts.append(True))
    before = records(engine)[-1]["document"]["runs"]
    doubts.clear()  # these steps may have missed their prediction too
    ticks = iter(range(10**6))
    slow = lambda steps, sync: timed(steps, sync, clock=lambda: float(next(ticks)))  # noqa: E731
    monkeypatch.setattr(comparison_run, "timed", slow)
    monkeypatch.setattr(perform, "Watch", lambda: SimpleNamespace(read=lambda: Disturbance(waited=disturbed), beat=int))
    after = records(engine)[-1]["document"]["runs"]
    assert [run["predicted_s"] for run in after] == [run["predicted_s"] for run in before]
    assert all(run["itl_s"] == 1.0 for run in after) and all(run["prediction_error"] > 0.9 for run in after)
    assert bool(doubts) == (disturbed == 0), "an undisturbed measurement casts doubt on the paces, another does not"


@pytest.fixture(scope="module")
def whole(engine):
    found = records(engine)
    return found, found[-1]["document"]


@pytest.mark.slow
def test_the_document_holds_what_was_sent(whole):
    found, document = whole
    said = next(record for record in found if record["t"] == "predicted")
    assert found.index(said) == 1 and document["paces"] == said["paces"]
    for run in document["runs"]:
        assert run["predicted_s"] == said["step_s"][run["mode"]]
        assert run["prediction_error"] == off_by(run["predicted_s"], run["step_s"])
    assert reading.read(reading.to_json(found, document)).document == document


@pytest.mark.slow
def test_one_that_may_have_seen_the_run_is_refused(whole):
    found, document = whole
    others = [record for record in found if record["t"] != "predicted"]
    checked = max(i for i, r in enumerate(others) if r["t"] == "proof") + 1
    after_the_check = [*others[:checked], found[1], *others[checked:]]
    assert reading.read(reading.to_json(after_the_check, document)).document == document
    timed = next(i for i, r in enumerate(others) if r["t"] == "pass") + 1
    with pytest.raises(KvvizError, match="before the first timed pass"):
        reading.read(reading.to_json([*others[:timed], found[1], *others[timed:]], document))
    twice = [found[0], found[1], *found[1:]]
    with pytest.raises(KvvizError, match="before the first timed pass"):
        reading.read(reading.to_json(twice, document))


@pytest.mark.slow
def test_one_that_was_changed_afterwards_is_refused(whole):
    found, document = whole
    run = document["runs"][0]
    better = {**run, "predicted_s": run["step_s"], "prediction_error": 0.0, "prediction_bias": 0.0}
    with pytest.raises(KvvizError, match="predictions"):
        reading.read(reading.to_json(found, {**document, "runs": [better, *document["runs"][1:]]}))
    with pytest.raises(KvvizError, match="prediction_error"):
        reading.read(json.dumps({**document, "runs": [{**run, "prediction_error": 0.0}, *document["runs"][1:]]}))
    with pytest.raises(KvvizError, match="paces"):
        reading.read(json.dumps({**document, "paces": None}))


@pytest.mark.slow
def test_a_model_that_can_not_be_counted_has_none(engine, monkeypatch):
    monkeypatch.setattr(perform, "estimated", lambda config: None)
    found = records(engine)
    assert all(record["t"] != "predicted" for record in found)
    assert found[-1]["document"]["paces"] is None and found[-1]["document"]["runs"][0]["predicted_s"] is None
    assert found[-1]["document"]["rates"] is not None


@pytest.mark.slow
@torch.inference_mode()
@pytest.mark.long
def test_a_few_passes_of_a_larger_shape_are_foretold_to_a_factor(engine):
    """A law with much room: the fastest step, which no other process has slowed, is within a factor of three."""
    work = ComparisonSpec(model="gpt2", weights="random", prompt_tokens=48, new_tokens=4, repeats=1)
    document = list(perform.perform(work, engine.get(work), comparison_id="c"))[-1]["document"]
    for run in document["runs"]:
        assert 1 / 3 < run["predicted_s"][2] / min(run["step_s"][1:]) < 3
