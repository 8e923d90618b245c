"""The factors between two caches: their product is the whole ratio, and each has its name."""

import math

import pytest

from kvviz.memory.formula import kv_memory
from kvviz.memory.levers import attention, fraction, largest_lever, levers
from kvviz.models.catalog.rows import models
from kvviz.models.spec import ModelSpec
from tests.draws import spread


def of(name, tokens=8192, **case):
    spec = ModelSpec.from_config(models()[name].config)
    return spec, kv_memory(spec, tokens, **case)


@pytest.mark.parametrize("name", spread(models(), 25))
@pytest.mark.parametrize("tokens", [1000, 40_000])
def test_the_factors_multiply_to_the_whole_ratio(name, tokens):
    one, another = of("gemma-3-12b", tokens), of(name, tokens)
    found = levers(*one, *another)
    if not found:
        holds_tokens = any(layer.kv_heads for layer in another[0].layers)
        assert name == "gemma-3-12b" or not holds_tokens, "another model with a cache of tokens has factors"
        return
    ratio = another[1].total_bytes / one[1].total_bytes
    assert math.prod(lever.factor for lever in found) == pytest.approx(ratio, rel=0.02)
    assert sorted(found, key=lambda lever: -abs(math.log(lever.factor))) == list(found)


@pytest.mark.parametrize(
    ("first", "second", "largest"),
    [
        ("llama-3.1-405b", "deepseek-v3", "GQA-8 to MLA: 1/3.6"),
        ("llama-7b", "llama-3-8b", "MHA-32 to GQA-8: 1/4"),
        ("gpt2", "gpt2-xl", "12 to 48 layers: 4×"),
        ("llama-3.1-8b", "gemma-3-12b", "only a window kept in 40 of 48 layers: 1/3.7"),
    ],
)
def test_the_largest_factor_is_named(first, second, largest):
    assert str(levers(*of(first), *of(second))[0]) == largest


def test_a_model_against_itself_or_one_without_tokens_in_its_cache_has_none():
    assert levers(*of("gpt2"), *of("gpt2")) == ()
    assert levers(*of("gpt2"), *of("mamba-130m")) == ()
    assert largest_lever(*of("mamba-130m")) is None


@pytest.mark.parametrize(
    ("name", "tokens", "lever"),
    [
        ("llama-3.1-8b", 8192, "GQA-8 to MQA: 1/8"),
        ("llama-3.1-8b", 131_072, "windows of 4,096: 1/32"),
        ("falcon-7b", 1024, "bfloat16 to nvfp4: 1/3.6"),
    ],
)
def test_the_largest_lever_of_one_model(name, tokens, lever):
    assert str(largest_lever(*of(name, tokens))) == lever


def test_names_and_fractions():
    kinds = {name: attention(of(name)[0]) for name in ("gpt2", "llama-3-8b", "falcon-7b", "deepseek-v3", "mamba-130m")}
    assert list(kinds.values()) == ["MHA-12", "GQA-8", "MQA", "MLA", ""]
    factors = (0.28, 1.0, 2.44, 0.97, 1.03, 1 / 128, 126)
    assert [fraction(x) for x in factors] == ["1/3.6", "1×", "2.4×", "1/1.03", "1.03×", "1/130", "130×"]
