"""Watching someone else's run, and the notebook's front door."""

import json
from statistics import median

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, DynamicCache

import kvviz
from kvviz import KvvizError, compare, watch
from kvviz.decoding.loading import hf_config
from kvviz.device.cores import share_of_cores, usable_cores
from kvviz.store.files import reading
from tests.tiny_configs import TINY

pytestmark = pytest.mark.slow  # they decode with real models

IDS = torch.randint(0, 256, (1, 20), generator=torch.Generator().manual_seed(2))


def read(text):
    """The records of a file."""
    return reading.read(text).records


def written(records):
    """A recording that holds whatever it is given."""
    return json.dumps({"kvviz": "recording", "version": 1, "records": records})


def hooks(model):
    """How many hooks of kvviz a model carries; transformers leaves some of its own once weights were asked for."""
    found = (
        hook for m in model.modules() for kind in (m._forward_hooks, m._forward_pre_hooks) for hook in kind.values()
    )
    return sum(hook.__module__.startswith("kvviz.") for hook in found)


def by_hand(model, new_tokens=6):
    cache, new = DynamicCache(config=model.config), IDS
    for _ in range(new_tokens):
        with torch.inference_mode():
            logits = model(input_ids=new, past_key_values=cache, use_cache=True).logits
        new = logits[:, -1].argmax(-1, keepdim=True)


@pytest.mark.parametrize("name", ["tiny-gpt2", "tiny-gemma3", "tiny-qwen3"])
def test_generate_is_seen_step_by_step(load, name):
    model = load(name).model
    with watch(model) as trace:
        assert hooks(model) > 0
        model.generate(IDS, max_new_tokens=6, do_sample=False)
    assert hooks(model) == 0
    assert [step.phase for step in trace.steps] == ["prefill"] + ["decode"] * 5
    assert [step.layers[-1].seen for step in trace.steps] == [20, 21, 22, 23, 24, 25]
    assert all(step.seconds > 0 for step in trace.steps)
    with torch.inference_mode():
        cache = DynamicCache(config=model.config)
        model(IDS, past_key_values=cache, use_cache=True)
    assert trace.steps[0].cache_bytes == sum(
        t.numel() * 4 for layer in cache.layers for t in (layer.keys, layer.values)
    )


def test_a_loop_by_hand_is_seen(load):
    model = load("tiny-mistral").model
    with watch(model) as trace:
        by_hand(model)
    frame = trace.frame()
    assert list(frame["fed_tokens"]) == [20, 1, 1, 1, 1, 1]
    assert list(frame["phase"]) == ["prefill"] + ["decode"] * 5
    assert (frame["cache_bytes"] == 4 * 2 * 2 * 15 * 16 * 4).all(), "a window of 16 keeps 15 tokens"
    assert trace.figure().data[0].y[0] == pytest.approx(trace.steps[0].seconds * 1000)


def test_assisted_generation_is_seen(load):
    """The watched model checks several tokens at once: each forward is a step, fed more than one token."""
    model, assistant = load("tiny-llama").model, load("tiny-llama", attn="eager").model
    plain = model.generate(IDS, max_new_tokens=12, do_sample=False)
    with watch(model) as trace:
        assisted = model.generate(IDS, max_new_tokens=12, do_sample=False, assistant_model=assistant)
    assert torch.equal(plain, assisted)
    assert hooks(model) == hooks(assistant) == 0
    assert 1 <= len(trace.steps) < 12
    assert max(len(step.fed[0]) for step in trace.steps[1:]) > 1


def test_hooks_go_when_the_run_breaks(load):
    model = load("tiny-gpt2").model
    with pytest.raises(RuntimeError, match="mine"), watch(model) as trace:
        model(IDS)
        raise RuntimeError("mine")
    assert hooks(model) == 0
    assert len(trace.steps) == 1


@pytest.mark.parametrize("family", ["mamba", "t5", "qwen3_next"])
def test_states_and_the_caches_of_an_encoder_decoder_are_read(family):
    config = hf_config(TINY[family])
    kind = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    model = kind.from_config(config, attn_implementation="eager").eval()
    with watch(model) as trace:
        model.generate(IDS % 96, max_new_tokens=4, do_sample=False, eos_token_id=None)
    assert [step.phase for step in trace.steps] == ["prefill"] + ["decode"] * 3
    assert all(step.cache_bytes > 0 for step in trace.steps)


def test_two_texts_in_two_rows_count_every_token_and_each_prefill_once(load, tmp_path):
    model, ids = load("tiny-gpt2").model, IDS.repeat(2, 1)
    with watch(model) as trace:
        for _ in range(2):
            model.generate(ids, max_new_tokens=3, do_sample=False)
        model(inputs_embeds=model.get_input_embeddings()(ids))
    assert [step.phase for step in trace.steps] == [*["prefill", "decode", "decode"] * 2, "prefill"]
    assert list(trace.frame()["fed_tokens"]) == [20, 1, 1, 20, 1, 1, 20]
    (figures,) = read(trace.save(tmp_path / "mine.json").read_text())[-2]["runs"]
    seconds = {phase: [step.seconds for step in trace.steps if step.phase == phase] for phase in ("prefill", "decode")}
    assert figures["itl_s"] == pytest.approx(median(seconds["decode"]))
    assert figures["ttft_s"] == pytest.approx(seconds["prefill"][0])
    assert figures["tokens_per_s"] == pytest.approx(7 * 2 / sum(step.seconds for step in trace.steps))


def test_a_run_without_cache_shows_none(load):
    model = load("tiny-gpt2").model
    with watch(model) as trace:
        model.generate(IDS, max_new_tokens=3, do_sample=False, use_cache=False)
    assert [step.cache_bytes for step in trace.steps] == [0, 0, 0]


def test_a_trace_is_a_recording_that_opens(load, tmp_path):
    model = load("tiny-qwen3").model
    with watch(model) as trace:
        model.generate(IDS, max_new_tokens=5, do_sample=False)
    records = read(trace.save(tmp_path / "mine.json").read_text())
    kinds = [record["t"] for record in records]
    assert kinds == ["started"] + ["proof"] * 5 + ["times", "figures", "done"]
    assert records[-3]["s"] == [step.seconds for step in trace.steps]
    assert records[0]["prompt"]["tokens"] == 20


def test_a_recording_of_a_watched_run_claims_nothing_that_nobody_observed(load, tmp_path):
    model = load("tiny-gpt2").model
    with watch(model) as trace:
        model.generate(IDS, max_new_tokens=3, do_sample=False)
    found = reading.read(trace.save(tmp_path / "mine.json").read_text())
    assert found.document is None, "no comparison was made"
    records = found.records
    steps = [record["modes"]["watched"] for record in records if record["t"] == "proof"]
    assert [step["outliving"] for step in steps] == [step["delta"] for step in steps] == [None] * 3
    (figures,) = records[-2]["runs"]
    assert figures["identical"] is None and figures["speedup"] is None and figures["max_abs_logit_diff"] is None


def older(records):
    """The same recording as it was before the fields of a layer had names."""
    copy = json.loads(json.dumps(records))
    for record in copy:
        for step in record["modes"].values() if record["t"] == "proof" else ():
            step["layers"] = [list(group.values()) for group in step["layers"]]
    return copy


def test_layers_of_recordings_made_before_their_fields_had_names_are_read_alike(good):
    named = read(written(good))
    assert read(written(older(good))) == named
    group = named[2]["modes"]["cached"]["layers"][0]
    assert (group["indices"], group["kind"], group["key_shape"][0], group["nbytes"] > 0) == (
        [0, 1, 2, 3],
        "full",
        1,
        True,
    )


@pytest.mark.parametrize("change", [lambda group: group[:8], lambda group: [*group, 1], lambda group: group[::-1]])
def test_layers_in_another_order_or_number_are_refused(good, change):
    broken = older(good)
    layers = broken[2]["modes"]["cached"]["layers"]
    layers[:] = [change(group) for group in layers]
    with pytest.raises(KvvizError, match=r"layers|indices"):
        read(written(broken))


def test_compare_by_name(tmp_path):
    result = compare("tiny-gpt2", new_tokens=5, repeats=2, modes=["uncached", "cached"])
    assert result.document["identical"]
    figure = result.figure()
    assert [trace.name for trace in figure.data if trace.name] == ["No cache", "KV cache"]
    assert list(figure.data[3].y) == [s * 1000 for s in result.document["runs"][1]["step_s"]]
    assert [row["mode"] for row in result.verdict()["modes"]] == ["uncached", "cached"]
    frame = result.frame()
    assert len(frame) == 10
    assert list(frame[frame["mode"] == "cached"]["token_id"]) == result.document["runs"][1]["token_ids"]
    saved = reading.read(result.save(tmp_path / "c.json").read_text())
    assert saved.document == result.document and saved.records[0]["model"]["id"] == "tiny-gpt2"


def test_compare_a_model_of_ones_own():
    model = AutoModelForCausalLM.from_config(hf_config(dict(OWN)), dtype=torch.float32).eval()
    result = compare(model, new_tokens=4, repeats=1, prompt_tokens=9)
    assert (result.document["weights"], result.document["identical"]) == ("given", True)
    assert hooks(model) == 0


OWN = {"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 300}


def test_a_family_that_kvviz_does_not_know_is_compared():
    from transformers import LlamaConfig, LlamaForCausalLM

    class Unheard(LlamaConfig):
        model_type = "unheard"

    model = LlamaForCausalLM(Unheard(**{**OWN, "intermediate_size": 64})).eval()
    run = compare(model, new_tokens=3, repeats=1, prompt_tokens=9).document["runs"][1]
    assert [layer["kv_heads"] for layer in run["layers"]] == [None, None] and run["cache_bytes"][-1] > 0


def test_a_model_of_ones_own_keeps_what_it_has_and_loses_its_dropout_for_the_measurement():
    model = AutoModelForCausalLM.from_config(hf_config({**TINY["gpt2"], "attn_pdrop": 0.5, "resid_pdrop": 0.5}))
    model.train().transformer.h[0].eval()
    before = [module.training for module in model.modules()]
    assert compare(model, new_tokens=5, repeats=1, prompt_tokens=9).document["identical"]
    assert [module.training for module in model.modules()] == before
    with pytest.raises(KvvizError, match="your own model keeps its attn"):
        compare(model, attn="eager")


@pytest.mark.parametrize("threads", [None, 1])
def test_compare_takes_a_workers_share_of_the_machine_and_gives_it_back(threads):
    before = torch.get_num_threads(), usable_cores()
    result = compare("tiny-gpt2", new_tokens=2, repeats=1, threads=threads)
    here = result.document["environment"]
    share = len(share_of_cores()[0])
    assert (here["threads"], here["cores"]) == ((share, share) if threads is None else (threads, before[1]))
    assert (torch.get_num_threads(), usable_cores()) == before
    assert repr(result).startswith("<Comparison of tiny-gpt2, 2 new tokens: uncached ") and "cached" in repr(result)


def test_a_batch_is_saved_and_opened_as_the_comparison_that_it_is(tmp_path):
    result = compare("tiny-gpt2", new_tokens=4, repeats=1, batch=2)
    assert reading.read(result.save(tmp_path / "two.json").read_text()).document == result.document


def test_compare_says_what_is_wrong():
    with pytest.raises(KvvizError, match="the prompt is no text"):
        compare(prompt="\ud800", model="tiny-gpt2")
    with pytest.raises(KvvizError, match="no model"):
        compare("nonsense")


def test_public_names():
    assert kvviz.__all__ == sorted(kvviz.__all__)
    assert all(getattr(kvviz, name) for name in kvviz.__all__)
    with pytest.raises(AttributeError, match="compare, memory, watch"):
        _ = kvviz.nonsense


# --- recordings that do not fit --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def good():
    return compare("tiny-gpt2", new_tokens=3, repeats=1).records


def changed(records, path, value):
    """A deep copy with one field changed; `path` is a list of keys."""
    copy = json.loads(json.dumps(records))
    place = copy
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return copy


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ([0, "t"], "proof"),
        ([0, "modes", 0, "name"], "__proto__"),
        ([0, "modes", 0, "title"], "x" * 1000),
        ([0, "spec", "new_tokens"], -1),
        ([0, "spec", "new_tokens"], "many"),
        ([0, "model", "layers"], 10**9),
        ([0, "environment", "device"], {"a": 1}),
        ([0, "prompt", "pieces"], "abc"),
        ([2, "modes"], {"other": {}}),
        ([2, "modes", "cached", "layers"], [[1, 2]]),
        ([2, "modes", "cached", "delta"], "NaN"),
        ([1, "t"], "script"),
        ([1, "step_s"], {"other": [1.0]}),
        ([1, "paces", "start"], -1.0),
    ],
)
def test_a_recording_that_does_not_fit_gets_one_sentence(good, path, value):
    with pytest.raises(KvvizError) as caught:
        read(written(changed(good, path, value)))
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "text",
    ["", "[]", "nope", '{"kvviz": "recording"}', '{"a":' * 5000, '{"kvviz": "recording", "version": NaN}', b"\xff"],
)
def test_what_is_no_recording_gets_one_sentence(text):
    with pytest.raises(KvvizError):
        read(text)


def test_fields_that_are_not_known_are_dropped(good):
    records = read(written(changed(good, [0, "evil"], "<script>")))
    assert "evil" not in records[0]
    assert read(written(records)) == records
