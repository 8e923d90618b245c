"""Spec against probe: the closed form and the model itself, for every kind of layer that there is."""

import pytest
import transformers
from transformers.utils import logging

from bench.decoders import compared, counted, difference, markdown
from bench.default_configs import decoders, default_config, encoder_decoders
from kvviz.base.errors import ConfigError
from kvviz.decoding.meta_probe import position_limit
from kvviz.memory.formula import kv_memory
from kvviz.models.spec import ModelSpec
from tests.draws import ORDINARY, spread
from tests.tiny_configs import READ, TINY

FIRST = {"tokens": 1, "batch": 1, "dtype": "float32"}
SHORT = {"tokens": 8, "batch": 1, "dtype": "float16"}  # as long as the windows
LONG = {"tokens": 23, "batch": 2, "dtype": "float32"}
ENDS = {name for name in READ if any(layer.window for layer in ModelSpec.from_config(TINY[name]).layers)}
CASES = [*((name, LONG) for name in READ), *((name, SHORT) for name in READ if name in ENDS or not ORDINARY)]
CASES += [("llama", SHORT), ("llama", FIRST), ("jamba", FIRST)]
OF_THEIR_OWN = ("deepseek_v4", "minimax_m3_vl_text", "qwen4_exp_text", "reformer", "t5gemma", "xlnet")
CASES += [*((name, case) for name in OF_THEIR_OWN for case in (SHORT, LONG)), ("deepseek_v4", FIRST)]
REFUSED = {"blt": "patches"}  # with a word of the reason


@pytest.fixture(autouse=True, scope="module")
def _quiet():
    logging.set_verbosity_error()


@pytest.mark.slow
@pytest.mark.parametrize(("model_type", "case"), spread(CASES, 24))
def test_the_closed_form_is_what_the_model_keeps(model_type, case):
    config = TINY[model_type]
    case = {**case, "tokens": min(case["tokens"], position_limit(config) or case["tokens"])}
    ours, theirs, why = difference(ModelSpec.from_config(config), config, case)
    assert (why, ours) == ("", theirs)


@pytest.mark.slow
def test_at_full_size():
    config = default_config("granitemoehybrid")
    ours, theirs, why = difference(ModelSpec.from_config(config), config, {**LONG, "tokens": 5000})
    assert (why, ours) == ("", theirs)


@pytest.mark.slow
def test_a_type_in_all_cases():
    row = compared("gpt2", alone=True)
    assert (row["outcome"], row["why"], row["spec_bytes"]) == ("exact", "", row["probe_bytes"])


def test_an_encoder_is_as_long_as_one_says():
    spec = ModelSpec.from_config(TINY["t5"])
    case = {"tokens": 9, "batch": 2, "dtype": "float32", "source_tokens": 31}
    ours, theirs, why = difference(spec, TINY["t5"], case)
    assert (why, ours) == ("", theirs)
    assert ours > kv_memory(spec, 9, batch=2, dtype="float32", view="hf-dynamic", source_tokens=9).total_bytes


@pytest.mark.slow
def test_every_registered_type_is_read_or_refused_with_its_reason():
    """With a later transformers the message lists what `python -m tools.families` and the tables have to learn."""
    assert len(decoders()) > 150 and len(encoder_decoders()) > 30
    unread = {}
    for name, alone in [*((name, True) for name in decoders()), *((name, False) for name in encoder_decoders())]:
        try:
            assert ModelSpec.from_config(default_config(name, alone=alone)).layers
        except ConfigError as error:
            unread[name] = str(error)
    unknown = {name: why for name, why in unread.items() if REFUSED.get(name, "no reason") not in why}
    assert not unknown, f"transformers {transformers.__version__} has types that kvviz can't read: {unknown}"
    assert unread.keys() == REFUSED.keys()


@pytest.mark.long
@pytest.mark.parametrize("alone", [True, False])
def test_every_registered_type_is_exact(alone):
    names = [name for name in (decoders() if alone else encoder_decoders()) if name not in REFUSED]
    rows = [compared(name, alone=alone) for name in names]
    assert {row["model_type"]: row["why"] for row in rows if row["outcome"] != "exact"} == {}


@pytest.mark.long
def test_every_type_that_also_sees_or_hears_is_read():
    """But for those whose default config has no text decoder of a known kind, or heads that do not divide its width."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as TYPES

    unread = {}
    for name in TYPES:
        try:
            ModelSpec.from_config(default_config(name))
        except ConfigError as error:
            unread[name] = str(error)
    assert len(TYPES) > 90 and len(unread) < 9, unread


@pytest.mark.slow
def test_latents_without_a_rotary_key_beside_states():
    """GLM-5.3-Flash: Kimi delta attention, and an indexer with gates; the tower for images keeps nothing."""
    config = default_config("glm5_next")
    text = {name: value[:4] if isinstance(value, list) else value for name, value in config["text_config"].items()}
    config["text_config"] = {**text, "num_hidden_layers": 4, "n_routed_experts": 8}
    ours, theirs, why = difference(ModelSpec.from_config(config), config, LONG)
    assert (why, ours) == ("", theirs)


@pytest.mark.parametrize("model_type", ["gemma4_assistant", "gemma4_unified_assistant"])
def test_a_draft_head_keeps_none(model_type):
    row = compared(model_type, alone=True)
    assert (row["outcome"], row["spec_bytes"], row["probe_bytes"]) == ("exact", 0, 0)


def test_a_head_dim_that_the_code_rounds_down():
    """96 heads of a hidden size of 4,096, as the config class has it, and of 5,120 with a head dim, as GLM-4.5 has."""
    by_class = {**default_config("glm4_moe"), "num_hidden_layers": 2, "n_routed_experts": 8}
    del by_class["head_dim"]
    published = {**by_class, "hidden_size": 5120, "head_dim": 128}
    for config, head_dim in ((by_class, 42), (published, 128)):
        ours, theirs, why = difference(ModelSpec.from_config(config), config, LONG)
        assert (why, ours) == ("", theirs)
        assert ours == 2 * 2 * LONG["batch"] * 8 * LONG["tokens"] * head_dim * 4


def test_what_one_side_refuses_is_not_counted_as_right(monkeypatch):
    def refuse(config, **case):
        raise ConfigError("not this one")

    monkeypatch.setattr("bench.decoders.position_limit", refuse)
    row = compared("llama", alone=True)
    assert (row["outcome"], row["why"]) == ("refused by probe", "not this one")
    assert counted([row]) == {"exact": 0, "wrong": 0, "refused": 1}


def test_a_wrong_byte_is_found(monkeypatch):
    config = TINY["llama"]
    spec = ModelSpec.from_config({**config, "head_dim": 8})
    ours, theirs, why = difference(spec, config, LONG)
    assert ours * 2 == theirs
    assert why.startswith("layer 0: ")


def test_the_table_says_who_refused():
    row = {"model_type": "x", "outcome": "refused by spec", "spec_bytes": None, "probe_bytes": None, "why": "a|b"}
    about = {"transformers": "5", "torch": "2"}
    page = markdown({"environment": about, "rows": [row], "encoder_decoders": {"rows": []}})
    assert "| x | refused by spec |  | a/b |" in page
