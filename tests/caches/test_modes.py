"""The designs as modes: the whole proof with its accounts, refusals, what goes into a file and comes back."""

import pytest

from kvviz import compare
from kvviz.base.errors import KvvizError
from kvviz.caches.designs import DESIGNS
from kvviz.caches.formula import kept_bytes
from kvviz.decoding.loaded_models import LoadedModels
from kvviz.decoding.modes import MODES, check_modes
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.models.spec import ModelSpec
from kvviz.store.files.reading import read, to_json
from tests.tiny_configs import TINY

LEFT_OUT = {"unpassed", "tova", "snapkv", "random"}  # the last three share all but their choice with h2o
HERE = tuple(name for name, mode in MODES.items() if mode.batches and not mode.accelerator and name not in LEFT_OUT)


@pytest.fixture(scope="module")
def done():
    return compare("tiny-qwen3", modes=HERE, prompt_tokens=92, new_tokens=4, repeats=1, batch=2)


def run_of(done, mode):
    return next(run for run in done.document["runs"] if run["mode"] == mode)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [mode for mode in HERE if MODES[mode].caches])
def test_three_accounts_of_a_mode_agree_or_say_why(done, mode):
    run = run_of(done, mode)
    assert run["exact"] == MODES[mode].exact and run["repeatable"]
    assert run["identical"] or not run["exact"]
    memory = run["memory"]
    assert memory["tensors"] == run["cache_bytes"][-1] and memory["storages"] == run["allocated_bytes"][-1]
    scales = 2 * 4 * len(run["layers"]) if mode == "quantized" else 0  # one number each for all keys, all values
    assert run["outliving_bytes"][-1] == memory["storages"] + scales
    beside = memory["allocator"]["kept"] - memory["storages"]
    if mode in ("quantized", "static"):  # transformers' own: a scale for all numbers, a counter of tokens
        assert 0 < beside < 4096 and any("of its own counters and scales" in said for said in memory["reasons"])
    else:
        assert beside == 0
    assert memory["formula"] == memory["tensors"]
    if memory["storages"] > memory["tensors"]:
        assert any("lie in storages of" in sentence for sentence in memory["reasons"])


def test_a_longer_prefill_of_the_allocators_account_is_named():
    """A block that only a longer prompt makes a window need is no counter and no scale of the cache object's."""
    done = compare("tiny-mistral", modes=("cached", "paged"), prompt_tokens=32, new_tokens=4, repeats=1)
    memory = run_of(done, "paged")["memory"]
    block = 4 * 2 * 16 * 2 * 16 * 4  # layers x K and V x slots x KV heads x D x bytes
    assert memory["allocator"]["kept"] - memory["storages"] == block
    (said,) = [said for said in memory["reasons"] if "allocator" in said or "counters" in said]
    assert "prefills all tokens but the last at once, whose storages take 16,384 B more" in said


def test_a_budget_is_that_of_the_whole_run_and_the_accounts_know_it():
    done = compare("tiny-qwen3", modes=("cached", "h2o", "expected"), prompt_tokens=60, new_tokens=4, repeats=1,
                   cache_budget="25%", pyramid=True)  # fmt: skip
    whole, *others = (run_of(done, mode) for mode in ("cached", "h2o", "expected"))
    for run in others:
        assert run["memory"]["formula"] == run["memory"]["tensors"] < 0.4 * whole["memory"]["tensors"]
        held = [layer["held"] for layer in run["layers"]]
        assert held[0] > held[-1] and sum(held) <= 4 * 16
    with pytest.raises(KvvizError, match="none of these modes keeps a budget of tokens; those that do are sinks, h2o"):
        compare("tiny-qwen3", cache_budget="25%")
    with pytest.raises(KvvizError, match="percentage such as 25%, not 'lots'"):
        compare("tiny-qwen3", modes=("h2o",), cache_budget="lots")


@pytest.mark.slow
def test_a_lossy_mode_says_where_it_first_differs_and_by_how_much(done):
    run = run_of(done, "int4")
    assert run["max_abs_logit_diff"] > 1e-3 and not run["exact"]
    assert (run["first_divergence"] is None) == run["identical"] == (run["divergence_margin"] is None)
    assert done.document["identical"], "the document speaks of the exact modes alone"
    lost = run_of(done, "sinks")
    assert lost["first_divergence"] is not None and lost["divergence_margin"] >= 0


@pytest.mark.slow
def test_shared_beginnings_of_a_batch_are_kept_once_and_said_so():
    done = compare("tiny-qwen3", modes=("uncached", "prefix"), prompt="The same text for all. " * 3, batch=3, repeats=1,
                   new_tokens=4)  # fmt: skip
    run = run_of(done, "prefix")
    memory = run["memory"]
    assert run["identical"] and memory["tensors"] < 0.6 * memory["formula"]
    assert memory["storages"] == memory["allocator"]["kept"] == run["outliving_bytes"][-1]
    assert any("Shared blocks are kept once" in sentence for sentence in memory["reasons"])


@pytest.mark.slow
def test_the_reasons_travel_in_a_file(done):
    again = read(to_json(done.records, done.document))
    assert [run["memory"] for run in again.document["runs"]] == [run["memory"] for run in done.document["runs"]]


@pytest.mark.slow
def test_an_early_end_has_reserved_for_the_whole_run():
    fields = {"modes": ("static", "prealloc"), "prompt_tokens": 20, "new_tokens": 12, "repeats": 1}
    text = compare("tiny-qwen3", **fields).document["runs"][0]["text"]
    done = compare("tiny-qwen3", **fields, stop_text=text[4:8])
    for run in done.document["runs"]:  # 2 (K, V) x 2 heads x 32 dims x 4 bytes a token and layer
        assert len(run["token_ids"]) < 12 and set(run["allocated_bytes"]) == {32 * len(run["layers"]) * 512}
        assert run["repeatable"] and 0 <= run["memory"]["allocator"]["kept"] - run["memory"]["storages"] < 4096


def test_offloading_needs_a_device_to_offload_from():
    with pytest.raises(KvvizError, match="runs in the host's memory already: take cached, or a machine with a GPU"):
        LoadedModels().get(ComparisonSpec(model="tiny-qwen3", prompt="x", modes=("offloaded",), device="cpu"))
    check_modes(["offloaded"], None, "cuda:0")


@pytest.mark.parametrize(
    ("mode", "config", "sentence"),
    [
        ("sinks", {"model_type": "mistral", "sliding_window": 16}, "window of 16 tokens of its own"),
        ("int8", {"model_type": "mistral", "sliding_window": 16}, "look back further than 64 tokens"),
        ("quantized", {"model_type": "mistral", "sliding_window": 16}, "layers of kind sliding: take int8"),
        ("paged", {"model_type": "mamba"}, "take cached"),
        ("paged", TINY["falcon_h1"], "a recurrent state beside their keys and values"),
    ],
)
def test_a_model_that_a_design_is_not_for_is_refused_before_it_is_loaded(mode, config, sentence):
    with pytest.raises(KvvizError, match=sentence):
        check_modes([mode], {**config, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8})


def test_the_formula_of_each_design_by_hand():
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
              "num_key_value_heads": 2, "vocab_size": 99}  # fmt: skip
    spec = ModelSpec.from_config(config)
    token = 3 * 2 * 2 * 16 * 4  # layers x K and V x heads x D x bytes

    def kept(mode):
        return kept_bytes(MODES[mode].account, spec, 100, 2, "float32")

    assert {kept(name) for name in ("cached", "concat", "prealloc", "paged", "static")} == {2 * 100 * token}
    shares = [
        kept_bytes(MODES["int8"].account, spec, tokens, 1, "bfloat16") / (tokens * token / 2)
        for tokens in (200, 20_000)
    ]
    assert shares[0] > 0.6 and shares[1] == pytest.approx(0.56, abs=0.06), "half, but for scales and newest tokens"
    assert kept("sinks") == 2 * 64 * token
    assert kept("quantized") == 2 * 100 * token // 4
    codes = 64 * (16 + 16) + 2 * 4 * 16 + 64 * 4  # 64 tokens in 2 groups, scales of channels, scales of tokens
    assert kept("int8") == 2 * (3 * 2 * codes + 36 * token)


def test_no_design_shares_its_name_or_colour():
    from kvviz.charts import palette

    assert set(DESIGNS) <= set(MODES) <= set(palette.LIGHT) | set(palette.DARK)
    looks = [(palette.DASH[name], palette.MARKER[name]) for name in MODES]
    assert len(set(looks)) == len(looks) and len({palette.LIGHT[name] for name in MODES}) == len(MODES)
