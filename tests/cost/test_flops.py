"""FLOPs and bytes against sums worked out by hand, the estimates on top of them, and `kvviz cost`."""

from types import SimpleNamespace

import pytest

from kvviz.base.errors import ConfigError
from kvviz.cost.blocks import Attention, Forward, Matrix
from kvviz.cost.flops import (
    Rates,
    cache_bytes_read,
    cache_bytes_written,
    cached_step,
    document,
    estimated,
    flops,
    moved,
    prefill,
    square_equals_linear,
    total_flops,
    weight_bytes_read,
)
from kvviz.cost.shape import read_shape
from kvviz.cost.step_estimate import OPERATIONS_PER_LAYER, Model
from kvviz.decoding.modes import LARGEST, mode_named
from kvviz.decoding.requirements import Work, each_pass
from kvviz.memory.formula import kv_memory
from kvviz.models.catalog.rows import model_row, models
from tests.cli.conftest import call
from tests.tiny_configs import TINY

RATES = Rates(read=2e10, flops=8e10, launch=2e-6)


def shape(name):
    return read_shape(model_row(name).config, name=name)


def test_gpt_2_by_hand():
    d, layers, vocabulary, n = 768, 12, 50257, 100
    whole = flops(shape("gpt2"), prefill(shape("gpt2"), n))
    assert whole == {
        "projections": layers * 2 * n * 4 * d * d,
        "attention": layers * 4 * n * n * d,
        "mlp": layers * 2 * n * 8 * d * d,
        "head": 2 * d * vocabulary,
    }
    step = flops(shape("gpt2"), cached_step(shape("gpt2"), n, batch=3))
    assert step == {
        "projections": 3 * layers * 8 * d * d,
        "attention": 3 * layers * 4 * n * d,
        "mlp": 3 * layers * 16 * d * d,
        "head": 3 * 2 * d * vocabulary,
    }


def test_grouped_queries_narrow_keys_and_values_and_nothing_else():
    whole = flops(shape("llama-3.1-8b"), prefill(shape("llama-3.1-8b"), 10))
    assert whole["projections"] == 32 * 2 * 10 * (2 * 4096 * 4096 + 2 * 4096 * 1024)
    assert whole["attention"] == 32 * 4 * 10 * 10 * 4096
    assert whole["mlp"] == 32 * 2 * 10 * 3 * 4096 * 14336


def test_a_token_passes_its_experts_and_no_others():
    step = flops(shape("mixtral-8x7b"), cached_step(shape("mixtral-8x7b"), 50))
    assert step["mlp"] == 32 * 2 * 2 * 3 * 4096 * 14336
    assert step["router"] == 32 * 2 * 4096 * 8


def test_a_window_bounds_a_step_and_not_a_prefill():
    one = Attention(heads=4, key_dim=16, value_dim=16, window=8)
    assert one.pairs(Forward(1, held=100)) == 4 * 8
    assert one.pairs(Forward(1, held=3)) == 4 * 4
    assert one.pairs(Forward(100)) == 4 * 100 * 100


def test_a_latent_is_expanded_again_at_every_step():
    v3 = shape("deepseek-v3")
    ups = 61 * 2 * 512 * 128 * (128 + 128)
    grown = total_flops(v3, cached_step(v3, 101)) - total_flops(v3, cached_step(v3, 100))
    assert grown == ups + 61 * 2 * 128 * (192 + 128)


def test_expected_experts():
    experts = Matrix("mlp", 10, 10, copies=8, used=2)
    assert experts.weights_read(Forward(1)) == 200
    assert experts.weights_read(Forward(1, batch=2)) == pytest.approx(100 * 8 * (1 - 0.75**2))
    assert experts.weights_read(Forward(1000)) == pytest.approx(800)
    assert Matrix("cross", 10, 10, over="source").weights_read(Forward(1, held=4, source=9)) == 0


@pytest.mark.parametrize("name", ["gpt2", "llama-3.1-8b", "qwen3-4b", "gemma-3-12b", "olmo-2-7b"])
def test_a_dense_step_reads_its_parameters_but_for_norms_and_tables(name):
    row, own = model_row(name), shape(name)
    read = weight_bytes_read(own, cached_step(own, 10), "float16")
    table = 0 if row.config.get("tie_word_embeddings") is not False else own.hidden * own.spec.vocab_size
    tables = 2 * (table + (1024 * 768 if name == "gpt2" else 0))
    assert 0.998 <= (read + tables) / (2 * row.params) <= 1.0002


def test_the_cache_read_is_the_cache_that_calc_knows():
    for name in ("llama-3.1-8b", "gemma-3-12b", "mamba-130m", "deepseek-v3", "falcon-h1-7b"):
        own = shape(name)
        assert cache_bytes_read(own, 5000, 2) == kv_memory(own.spec, 5000, batch=2).total_bytes


def test_shared_keys_and_values_are_read_once_more_by_each_layer_that_shares_them():
    own = shape("gemma-3n-e2b")
    kept = kv_memory(own.spec, 100)
    assert len(own.givers) == 10
    rows = [row.nbytes for row in kept.layers]
    assert cache_bytes_read(own, 100) == sum(rows) + sum(rows[i] for i in own.givers) > kept.total_bytes


def test_what_a_step_writes():
    llama = shape("llama-3.1-8b")
    assert cache_bytes_written(llama, cached_step(llama, 100, 3)) == 3 * 131_072
    assert cache_bytes_written(llama, prefill(llama, 100)) == 100 * 131_072
    indexed = read_shape(
        TINY["deepseek_v32"]
    )  # of one token, what is written is what the cache then holds, quantized too
    for dtype in ("bfloat16", "fp8"):
        assert cache_bytes_written(indexed, prefill(indexed, 1), dtype) == cache_bytes_read(indexed, 1, 1, dtype)
    mamba = shape("mamba-130m")
    state = kv_memory(mamba.spec, 9).total_bytes
    assert cache_bytes_written(mamba, cached_step(mamba, 9)) == state, "a state is written as a whole"


def test_bytes_of_a_step_and_of_a_prefill():
    own = shape("gpt2")
    step, whole = moved(own, cached_step(own, 101), "float32"), moved(own, prefill(own, 101), "float32")
    assert step.cache_read == 101 * 73_728 and step.cache_copied == 2 * 100 * 73_728
    assert whole.cache_read == whole.cache_copied == 0 and whole.cache_written == 101 * 73_728
    assert whole.weights - step.weights == 100 * 768 * 4, "the rows of the embedding table"
    assert whole.activations > 50 * step.activations


def test_where_the_square_overtakes():
    assert square_equals_linear(shape("gpt2")) == 6 * 768
    assert square_equals_linear(shape("mamba-130m")) is None
    own = shape("qwen3-0.6b")
    at = square_equals_linear(own)
    for tokens, more in ((at - 1, False), (at, True)):
        terms = flops(own, prefill(own, tokens))
        assert (terms["attention"] >= terms["projections"] + terms["mlp"]) == more


@pytest.mark.slow
def test_every_model_of_the_catalog_is_counted():
    for row in models().values():
        found = document(read_shape(row.config, name=row.id), 64)
        assert 0 < found["cached_step_flops"] < found["uncached_step_flops"] == found["prefill_flops"]
        assert found["weight_bytes_read"] < 2 * row.params * 1.55, row.id  # zamba2 reads its shared blocks again


def model(name, *, counted=True):
    """What an estimate knows of a catalog model, with its work block by block if `counted`."""
    own = shape(name)
    return Model(own.spec, model_row(name).params, own if counted else None)


def test_estimates_know_attention_and_experts():
    size = (6000, 2, "bfloat16", RATES)
    exact, by_size = (model("llama-2-7b", counted=c).pass_seconds(*size, caches=False) for c in (True, False))
    assert 1.15 < exact / by_size < 1.3, "attention's products, 6,000 / 24,704 of the rest, on top"
    size = (500, 2, "bfloat16", RATES)
    exact, by_size = (model("mixtral-8x7b", counted=c).pass_seconds(*size, caches=False) for c in (True, False))
    assert exact < 0.35 * by_size, "2 of 8 experts"


@pytest.mark.parametrize("caches", [True, False])
def test_a_long_pass_is_estimated_like_the_sum_of_its_steps(caches):
    gpt2, rest = model("gpt2"), (1, "float32", RATES)
    steps = [gpt2.pass_seconds(50, *rest, caches=caches)]  # the prefill
    for i in range(1, 300):
        two = [gpt2.pass_seconds(49 + i, n, *rest[1:], caches=caches) for n in (1, 2)]
        steps.append(two[1] - two[0])
    assert gpt2.pass_seconds(50, 300, "float32", RATES, caches=caches) == pytest.approx(sum(steps), rel=0.01)


def test_a_step_of_one_call_starts_once():
    gpt2, size = model("gpt2"), (512, 1, "float32", RATES)
    eager, once = (gpt2.step(*size, caches=True, calls=calls) for calls in (None, mode_named("compiled").calls))
    assert once.starting_s == RATES.launch and eager.starting_s == 12 * OPERATIONS_PER_LAYER * RATES.launch
    assert (once.weights_s, once.scan_s) == (eager.weights_s, eager.scan_s)
    both = [gpt2.pass_seconds(8, 3, "float32", RATES, caches=True, calls=calls) for calls in (None, 1)]
    assert both[0] - both[1] == pytest.approx(3 * (eager.starting_s - once.starting_s))


@pytest.mark.parametrize(
    ("batch", "device", "dtype", "calls"),
    [
        (LARGEST, "cpu", "float32", 1),
        (LARGEST + 1, "cpu", "float32", None),
        (1, "cpu", "bfloat16", None),
        (LARGEST + 1, "cuda", "bfloat16", 1),
    ],
)
def test_a_compiled_step_is_one_call_where_it_does_not_go_through_torchs_operations(batch, device, dtype, calls):
    assert mode_named("compiled").calls_of(batch, device, dtype) == calls
    assert mode_named("cached").calls_of(batch, device, dtype) is None
    gpt2 = model_row("gpt2")
    source = SimpleNamespace(spec=shape("gpt2").spec, params=gpt2.params, config=gpt2.config)
    rates = {"read": 1e30, "flops": 1e30, "launch": 1.0, "half": 1e30}
    work = Work("gpt2", ("compiled",), prompt_tokens=8, new_tokens=3, batch=batch, device=device, dtype=dtype)
    found = each_pass(source, work, {"rates": rates, "device": device})
    assert found["compiled"] == pytest.approx(3 * (calls or 12 * OPERATIONS_PER_LAYER))


def test_what_can_not_be_counted_is_still_estimated():
    assert estimated({"model_type": "jetmoe", "num_hidden_layers": 4}) is None
    assert estimated(None) is None
    assert estimated(model_row("gpt2").config) is not None


def test_refusals_say_why():
    with pytest.raises(ConfigError, match="can't count jetmoe because"):
        read_shape({"model_type": "jetmoe", "num_hidden_layers": 4})
    with pytest.raises(ConfigError, match="dtype is 'q8_0'"):
        document(shape("gpt2"), 10, dtype="q8_0")


def test_the_command_prints_one_document():
    found = call("cost", "gpt2", "--tokens", "1024", "--batch", "2", "--dtype", "float32", "--json").document
    assert (found["tokens"], found["batch"], found["square_equals_linear_at_tokens"]) == (1024, 2, 4608)
    assert found["cached_step_flops"] == 2 * 284_812_800
    assert found["cache_bytes_read"] == 2 * 1024 * 73_728
    assert found["prefill_flops"] == found["uncached_step_flops"] == sum(found["uncached_step_flops_by_term"].values())
    assert "746.7 times as many" in call("cost", "gpt2").out


@pytest.mark.parametrize(
    ("arguments", "stdin", "says"),
    [
        (["gpt2", "--tokens", "0"], "", "tokens is 0"),
        (["no-such-model"], "", "catalog id"),
        (["-"], '{"model_type": "jetmoe", "num_hidden_layers": 4}', "can't count jetmoe because"),
    ],
)
def test_bad_input_is_one_sentence(arguments, stdin, says):
    done = call("cost", *arguments, stdin=stdin)
    assert (done.status, done.out) == (2, "")
    assert says in done.err and done.err.count("\n") == 1
