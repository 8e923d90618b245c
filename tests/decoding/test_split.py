"""A model split by accelerate: here over the processor and the disk, with the same tokens as in one place."""

import gc
import weakref
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kvviz.base.errors import KvvizError
from kvviz.base.paths import home
from kvviz.base.records import LONGEST_NOTE
from kvviz.decoding import loading, split
from kvviz.decoding.loaded_models import LoadedModels
from kvviz.decoding.loop import decode
from kvviz.decoding.requirements import Needs, needs
from kvviz.experiments.comparison.figures import finished
from kvviz.experiments.comparison.run import perform
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.models.sources import find_source

HALVES = ("cpu", "cpu", "disk", "disk")


def asked(model, **fields):
    return ComparisonSpec(model, prompt="once upon a time", new_tokens=4, repeats=1, device="split", **fields)


def models_with(work, share):
    """Models on a machine whose memory has room for this share of the weights, beside all else that the work needs."""
    wanted = needs(find_source(work.model, work.weights), work)
    return LoadedModels(free=lambda device: wanted.total - wanted.weights + int(share * wanted.weights))


@pytest.fixture(scope="module")
def halves():
    """A bundled model of which two layers of four stay on the disk."""
    work = asked("mini-gpt2", modes=("uncached", "cached", "static"))
    return work, models_with(work, 0.85).get(work, may_split=True)


def tokens(model, mode, prompt):
    return [step.token_ids.tolist() for step in decode(model, prompt, mode=mode, new_tokens=4)]


@pytest.mark.slow
def test_a_comparison_of_a_split_model(halves, load):
    work, loaded = halves
    document, records = finished(list(perform(work, loaded, comparison_id="halves")))
    whole = load("mini-gpt2")
    prompt = torch.tensor([whole.codec.encode(work.prompt)])
    for run in document["runs"]:
        assert [[token] for token in run["token_ids"]] == tokens(whole.model, run["mode"], prompt)
        assert run["identical"] and run["prediction_error"] is None and run["estimate"] is None
        assert run["peak_bytes"] is None and "no allocator" in run["memory"]["reasons"][-1]
        assert run["memory"]["formula"] == run["memory"]["tensors"]
        assert run["outliving_bytes"] is None, "weights that were read anew would count"
    assert [layer["device"] for layer in document["runs"][1]["layers"]] == list(HALVES)
    assert records[0]["model"]["layer_devices"] == list(HALVES) and "over cpu + disk" in records[0]["model"]["note"]
    assert not [record for record in records if record["t"] == "predicted"]
    place = document["environment"]
    assert place["device"] == "split" and place["device_name"].endswith("(cpu) + disk")
    assert loaded.params == whole.params, "tied weights count once"


@pytest.mark.slow
def test_layers_on_the_disk_keep_their_cache_where_they_compute(load):
    work = asked("mini-qwen3")
    loaded, whole = models_with(work, 0.85).get(work, may_split=True), load("mini-qwen3")
    prompt = torch.tensor([whole.codec.encode(work.prompt)])
    assert loaded.spread.layers == HALVES and loaded.spread.read_anew == ("disk",)
    assert tokens(loaded.model, "uncached", prompt) == tokens(whole.model, "cached", prompt)
    *_, last = decode(loaded.model, prompt, mode="cached", new_tokens=2)
    assert {str(layer.keys.device) for layer in last.cache.layers} == {"cpu"}


def test_drawn_weights_are_those_of_the_model_in_one_place(load):
    options = dict(dtype="float32", device="cpu", attn="sdpa", seed=0)
    source = find_source("tiny-gemma3", "random")
    parts = loading.load(source, **options, room={"cpu": int(0.85 * 4 * source.params)})
    assert parts.is_split and "disk" in parts.spread.layers
    prompt = torch.arange(5)[None]
    assert tokens(parts.model, "cached", prompt) == tokens(load("tiny-gemma3").model, "cached", prompt)


def test_a_model_that_fits_is_not_split(load):
    for model in ("mini-gpt2", "tiny-llama"):  # one that is stored, one that is drawn
        work = asked(model)
        loaded = LoadedModels().get(work, may_split=True)
        assert not loaded.is_split and set(loaded.spread.layers) == {"cpu"} and loaded.environment.device == "cpu"
        assert loaded.note.endswith("The whole model fits on cpu, so it was not split.")


def test_a_longer_prompt_loads_a_split_model_anew_with_more_of_it_on_the_disk():
    short, alive = asked("mini-gpt2"), []

    def held():
        models = [model for one in alive if (model := one()) is not None]
        return sum(each.nbytes for model in models for each in model.parameters() if not each.is_meta)

    every = models_with(short, 0.85)._memory("cpu")
    models = LoadedModels(free=lambda device: every - held())
    first = models.get(short, may_split=True)
    alive.append(weakref.ref(first.model))
    assert models.get(short, may_split=True) is first
    places = first.spread.layers
    del first
    anew = models.get(replace(short, batch=8), may_split=True)
    assert anew.spread.layers.count("disk") > places.count("disk")
    assert alive[0]() is None, "the first is no longer in memory"
    with pytest.raises(KvvizError, match="take a shorter run"):
        models.get(replace(short, batch=64), may_split=True)
    assert not models._loaded, "the next try finds the memory free"


def test_a_refused_split_evicts_nothing(monkeypatch):
    models = LoadedModels()
    kept = models.get(replace(asked("tiny-gpt2"), device="cpu"))
    monkeypatch.setattr(split, "find_spec", lambda name: None)
    with pytest.raises(KvvizError, match="needs accelerate"):
        models.get(asked("mini-gpt2"), may_split=True)
    assert list(models._loaded.values()) == [kept]


def test_weights_on_the_disk_lie_under_kvviz_home_until_their_process_ends():
    folder, lock = split._aside()
    assert Path(folder.name).parent == home() / "cache"
    stale = home() / "cache" / "kvviz-split-of-a-dead-process"
    stale.mkdir()
    for name in (split.LOCK, "index.json"):
        (stale / name).touch()
    other, other_lock = split._aside()
    assert Path(folder.name).is_dir() and not stale.exists()
    split._remove(other, other_lock)
    split._remove(folder, lock)
    assert not Path(folder.name).exists()


def test_the_folder_goes_with_its_model(load):
    before = set((home() / "cache").glob("*"))
    models = models_with(asked("tiny-llama"), 5)
    models.get(asked("tiny-llama"), may_split=True)
    assert len(set((home() / "cache").glob("*")) - before) == 1
    models.forget()
    gc.collect()
    assert set((home() / "cache").glob("*")) <= before


def test_notes_that_are_joined_are_no_longer_than_an_import_allows():
    note = loading._joined("Its tokenizer is missing.", "", "It lies on cuda:0 and cuda:1. " * 40)
    assert note.startswith("Its tokenizer is missing. It lies") and note.endswith(" …")
    assert len(note) <= LONGEST_NOTE and loading._joined("One.", "", "Two.") == "One. Two."


def test_ones_own_split_model_is_measured_where_it_lies(halves):
    own = loading.adopt(halves[1].model)
    assert (own.device, own.devices, own.params) == ("cpu", ("cpu", "disk"), halves[1].params)


def test_a_map_over_cards(load, monkeypatch):
    monkeypatch.setattr(split, "devices", lambda: ["cuda:0", "cuda:1", "cpu"])
    monkeypatch.setattr(split, "device_name", lambda device: "AMD" if device == "cpu" else "NVIDIA")
    model = load("tiny-llama").model
    plan = {"model.embed_tokens": 0, "lm_head": 0, "model.layers.0": 0, "model.layers.1": 1, "model.norm": "cpu"}
    monkeypatch.setattr(model, "hf_device_map", plan, raising=False)
    found = split.spread_of(model, 3)
    assert (found.main, found.layers) == ("cuda:0", ("cuda:0", "cuda:1", "")), "no third layer, no place"
    assert found.name == "2 × NVIDIA (cuda:0, cuda:1) + AMD (cpu)" and found.read_anew == ("cpu",)


NEEDS = Needs(weights=1000, caches=60, logits=30, working=10)
FREE = {"cuda:0": 500, "cuda:1": 90, "cuda": 500, "mps": 500, "cpu": 800}


@pytest.mark.parametrize(
    ("there", "room"),
    [
        (["cuda:0", "cuda:1", "cpu"], {"cuda:0": 400, "cpu": 800}),  # the second card has no room for the caches
        (["cuda", "cpu"], {"cuda": 400, "cpu": 800}),
        (["mps", "cpu"], {"mps": 400}),  # which has the processor's memory
        (["cpu"], {"cpu": 700}),
    ],
)
def test_the_devices_that_compute_keep_room_for_the_work(there, room, monkeypatch):
    monkeypatch.setattr(split, "devices", lambda: there)
    assert split.room_for(NEEDS, FREE.__getitem__, 1.0) == room
    with pytest.raises(KvvizError, match=r"need 100 B on a device, and .* are free: take a shorter run"):
        split.room_for(NEEDS, FREE.__getitem__, 0.1)


def test_what_can_not_be_split_is_refused_in_a_sentence(monkeypatch):
    with pytest.raises(KvvizError, match="compiled can't decode a model that is split over several devices; uncached,"):
        asked("mini-gpt2", modes=("cached", "compiled"))
    with pytest.raises(KvvizError, match=r"only a comparison .* takes the device split"):
        LoadedModels().get(asked("mini-gpt2"))
    with pytest.raises(KvvizError, match="the host's memory has"):
        models_with(asked("tiny-llama"), 0.05).get(asked("tiny-llama"), may_split=True)
    with monkeypatch.context() as patch:
        patch.setattr(split, "named_worker", lambda: "cuda:0")
        with pytest.raises(KvvizError, match="a worker for each device"):
            LoadedModels().get(asked("mini-gpt2"), may_split=True)
    monkeypatch.setattr(split, "find_spec", lambda name: None)
    with pytest.raises(KvvizError, match=r"needs accelerate: pip install 'kvviz\[split\]'"):
        LoadedModels().get(asked("mini-gpt2"), may_split=True)
