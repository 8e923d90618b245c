"""The loop: every exact mode gives the same tokens, and a run leaves nothing behind."""

import pytest
import torch

from kvviz.base.errors import KvvizError
from kvviz.base.records import Sampling
from kvviz.caches.designs import DESIGNS
from kvviz.decoding import loading
from kvviz.decoding.loop import check_context, chooser, decode
from kvviz.decoding.modes import MODES, check_modes, mode_named
from kvviz.decoding.read_cache import layer_states
from kvviz.memory.formula import kv_memory
from kvviz.models.catalog.rows import models
from kvviz.models.sources import Source
from kvviz.models.spec import ModelSpec
from tests.conftest import TINY, can
from tests.tiny_configs import TINY as TINY_CONFIGS

SPECS = {row.config["model_type"]: ModelSpec.from_config(row.config) for row in models().values()}
RECURRENT = [family for family, spec in SPECS.items() if any(layer.states for layer in spec.layers)]

PROMPT, NEW = 40, 32  # longer than two windows of 16


def prompt_ids(batch=1, length=PROMPT):
    return torch.randint(0, 256, (batch, length), generator=torch.Generator().manual_seed(1))


def tokens(loaded, mode, sampling=Sampling(), batch=1):
    loop = decode(loaded.model, prompt_ids(batch), mode=mode, new_tokens=NEW, choose=chooser(sampling))
    return [step.token_ids.tolist() for step in loop]


EXACT = [mode.name for mode in MODES.values() if mode.exact and mode.name != "uncached"]
BOTH_KINDS = ("tiny-qwen3", "tiny-gemma3")  # without windows and with them


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "attn"), [*((model, "sdpa") for model in TINY), *((model, "eager") for model in BOTH_KINDS)]
)
def test_exact_modes_give_identical_tokens(load, model, attn):
    """tests/caches has the designs under every kind of model; here they stand under two."""
    loaded = load(model, attn=attn)
    expected = tokens(loaded, "uncached")
    assert len({row[0] for row in expected}) >= 8, "a text that repeats one token would prove nothing"
    modes = [mode for mode in EXACT if can(mode, model) and (mode not in DESIGNS or model in BOTH_KINDS)]
    assert modes and {mode: tokens(loaded, mode) for mode in modes} == dict.fromkeys(modes, expected)


def of_family(family):
    """A model of a few thousand parameters, with random weights."""
    source = Source(family, family, "random", config=TINY_CONFIGS[family])
    return loading.load(source, dtype="float32", device="cpu", attn=loading.attention_of(source.config or {}, "sdpa"))


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(set(RECURRENT) - {"recurrent_gemma"}))
def test_every_recurrent_family_of_the_catalog_keeps_its_state_from_step_to_step(family):
    """Some repeat one token whatever they computed, so the logits are compared too."""
    loaded, prompt = of_family(family), prompt_ids(2, 13) % 96
    runs = [decode(loaded.model, prompt, mode=mode, new_tokens=12) for mode in ("uncached", "cached")]
    for without, step in zip(*runs, strict=True):
        assert (step.token_ids == without.token_ids).all()
        assert torch.allclose(step.logits, without.logits, atol=1e-3)
    held = sum(row.nbytes for row in layer_states(step.cache))
    assert held == kv_memory(loaded.spec, 13 + 11, batch=2, dtype="float32", view="hf-dynamic").total_bytes


def test_a_model_that_keeps_its_state_itself_is_decoded_without_a_cache_alone():
    config = next(row.config for row in models().values() if row.config["model_type"] == "recurrent_gemma")
    check_modes(["uncached"], config)
    with pytest.raises(KvvizError, match="keeps its states in the model itself"):
        check_modes(["cached"], config)


@pytest.mark.slow
def test_a_model_that_takes_no_such_cache_is_refused():
    prompt = prompt_ids(length=4) % 96
    for family, mode, says in (("openai-gpt", "cached", "no cache that could"), ("minimax", "static", "but its own")):
        with pytest.raises(KvvizError, match=says):
            decode(of_family(family).model, prompt, mode=mode, new_tokens=2)


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [Sampling(1.0, seed=3), Sampling(0.8, top_k=20), Sampling(1.2, top_p=0.7)])
def test_draws_are_the_same_in_every_mode(load, sampling):
    loaded = load("tiny-llama")
    exact = [mode for mode in ("uncached", *EXACT) if can(mode, "tiny-llama")]
    drawn = {mode: tokens(loaded, mode, sampling, batch=3) for mode in exact}
    assert all(tokens == drawn["uncached"] for tokens in drawn.values())
    assert drawn["cached"] != tokens(loaded, "cached", Sampling(1.0, seed=99), batch=3)


def test_top_k_and_top_p_keep_to_their_sets():
    logits = torch.tensor([[4.0, 3.0, 2.0, 1.0, 0.0]]).repeat(64, 1)
    for sampling, allowed in ((Sampling(1.0, top_k=2), {0, 1}), (Sampling(1.0, top_p=0.6), {0})):
        drawn = {t for i in range(50) for t in chooser(sampling)(logits, i).tolist()}
        assert drawn <= allowed
    assert chooser(Sampling(1e-310))(logits.flip(-1), 0).tolist() == [4] * 64, "as greedy, whatever the logits are"
    shares = torch.cat([chooser(Sampling(1.0))(logits, i) for i in range(100)])
    observed = shares.bincount(minlength=5) / len(shares)
    assert torch.allclose(observed, logits[0].softmax(0), atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("model", TINY)
def test_the_cache_grows_by_one_until_a_window_is_full(load, model):
    loaded = load(model)
    config = loaded.model.config
    for step in decode(loaded.model, prompt_ids(length=5), mode="cached", new_tokens=30):
        seen = 5 + step.index
        for spec, row in zip(loaded.spec.layers, layer_states(step.cache), strict=True):
            held = min(seen, spec.window - 1) if spec.window else seen
            assert row.key_shape == row.value_shape == (1, spec.kv_heads, held, spec.key_dim)
            assert (row.seen, row.held, row.kind) == (seen, held, spec.kind)
            assert row.nbytes == 2 * spec.kv_heads * held * spec.key_dim * 4
    assert {spec.kv_heads for spec in loaded.spec.layers} == {getattr(config, "num_key_value_heads", 4)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny-mistral", "tiny-qwen3"])
def test_a_run_leaves_nothing_on_the_model(load, name):
    model = load(name).model

    def marks():
        hooks = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
        return hooks, sorted(model.__dict__), [sorted(m.__dict__) for m in model.modules()]

    before = marks()
    for mode in [mode for mode in MODES if can(mode, name)]:
        list(decode(model, prompt_ids(), mode=mode, new_tokens=3))
    assert marks() == before


def test_the_context_limit_is_named():
    check_context(1024, 960, 64)
    check_context(None, 10**6, 64)
    with pytest.raises(KvvizError, match=r"1,024 positions: ask for at most 63"):
        check_context(1024, 961, 64)
    with pytest.raises(KvvizError, match=r"1,024 positions: take a shorter prompt"):
        check_context(1024, 1024, 1)


def test_an_unknown_mode_is_refused():
    with pytest.raises(KvvizError, match="uncached, cached, unpassed"):
        mode_named("fast")
