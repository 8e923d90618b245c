"""The catalog's rows: sourced, whole, and against the library that would build them."""

import json

import pytest

from kvviz.base.errors import KvvizError
from kvviz.decoding.loading import count_params
from kvviz.models.catalog.rows import HERE, accelerators, examples, models, presets, references
from kvviz.models.sources import find_source

READERS = {
    "models": models,
    "accelerators": accelerators,
    "references": references,
    "examples": examples,
    "sweeps": presets,
}
VIEWS = ("architecture", "hf-dynamic", "hf-static", "vllm", "llama.cpp")
DTYPES = ("float32", "float16", "bfloat16", "q8_0", "int8", "int4")


def smallest_of_each_type():
    """One published row for each model_type: the one with fewest parameters, which builds in well under a second."""
    rows = sorted(models().values(), key=lambda row: -row.params)
    return {
        row.config["model_type"]: row for row in rows if row.family != "kvviz" and not row.id.startswith("tiny-")
    }.values()


@pytest.mark.parametrize("name", READERS)
def test_every_row_is_read_and_ids_are_unique(name):
    document = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
    ids = [row["id"] for row in document[name]]
    assert len(set(ids)) == len(ids) == len(READERS[name]())
    assert document["note"]


@pytest.mark.parametrize("row", models().values(), ids=lambda row: row.id)
def test_every_model_is_sourced(row):
    made_here = row.id.startswith("tiny-")
    if row.family == "kvviz":
        assert (HERE.parents[2] / row.source).is_file()
    else:
        assert row.source.startswith("kvviz: " if made_here else "https://")
    assert row.title and row.family and row.params > 0
    assert isinstance(row.config["model_type"], str)


def test_menus_begin_with_the_trained_models_and_gpt2_llama_and_qwen():
    families = list(dict.fromkeys(row.family for row in models().values()))
    assert families[:4] == ["kvviz", "GPT-2", "LLaMA", "Qwen"]


def test_encoder_decoders_say_so():
    assert {row.family for row in models().values() if row.has_encoder} == {"T5", "BART", "Whisper"}


@pytest.mark.slow
@pytest.mark.parametrize("row", smallest_of_each_type(), ids=lambda row: row.id)
def test_parameters_are_those_of_the_model_that_transformers_builds(row):
    assert count_params(row.config) == row.params


@pytest.mark.parametrize("model", ["mini-gpt2", "mini-qwen3", "mini-recall"])
def test_the_trained_models_come_with_kvviz(model):
    row, found = models()[model], find_source(model)
    assert (found.weights, row.hub) == ("bundled", None)
    assert row.params == count_params(row.config) == count_params(found.config)
    assert all(found.config[key] == value for key, value in row.config.items())


def test_tiny_models_are_tiny():
    tiny = [row for row in models().values() if row.id.startswith("tiny-")]
    assert tiny and all(row.params == count_params(row.config) < 1_000_000 for row in tiny)


@pytest.mark.parametrize("row", accelerators().values(), ids=lambda row: row.id)
def test_every_accelerator_says_how_its_memory_was_read(row):
    assert row.source.startswith("https://")
    assert row.title and row.vendor in ("NVIDIA", "AMD", "Apple")
    assert row.memory_note.endswith(".")
    assert 2**33 < row.memory_bytes < 2**40
    assert row.bandwidth_bytes_per_s is None or 10**10 < row.bandwidth_bytes_per_s < 10**13


@pytest.mark.parametrize("row", accelerators().values(), ids=lambda row: row.id)
def test_an_advertised_peak_has_a_source_or_is_left_out(row):
    assert bool(row.flops_per_s) == bool(row.flops_source) == bool(row.flops_note)
    assert set(row.flops_per_s) <= {"float32", "bfloat16", "float16"}
    assert all(10**12 < rate < 10**16 for rate in row.flops_per_s.values())
    if row.flops_source:
        assert row.flops_source.startswith("https://") and row.flops_note.endswith(".")


def test_memory_that_a_driver_prints_is_what_is_kept():
    for row in accelerators().values():
        if row.memory_note.startswith("nvidia-smi prints a total of "):
            mebibytes = int(row.memory_note.split("MiB")[0].rsplit(" ", 1)[1])
            assert row.memory_bytes == mebibytes * 2**20, row.id


def test_unified_memory_is_not_promised_to_the_gpu():
    apple = [row for row in accelerators().values() if row.vendor == "Apple"]
    assert apple and all("can't use all of it" in row.memory_note for row in apple)


@pytest.mark.parametrize("row", references(), ids=lambda row: row.id)
def test_every_reference_is_sourced_and_points_at_a_model(row):
    assert row.source.startswith("https://")
    assert (row.model is None) != (row.config is None)
    assert row.model_config["model_type"]
    assert row.title and row.printed
    assert row.view in VIEWS and row.dtype in DTYPES
    assert row.tokens > 0 and row.batch > 0 and row.bytes > 0
    assert 0 <= row.tolerance_bytes < row.bytes
    assert row.method in ("published figure", "arithmetic on the published config")
    assert row.agrees(row.bytes) and not row.agrees(row.bytes + row.tolerance_bytes + 1)


def test_a_slip_is_told_in_a_sentence_and_never_taken_as_the_figure():
    slips = [row for row in references() if row.slip]
    assert len(slips) >= 4
    for row in slips:
        assert row.slip.endswith(".") and row.method == "arithmetic on the published config"


@pytest.mark.parametrize("row", examples(), ids=lambda row: row.id)
def test_every_example_names_models_of_the_catalog(row):
    assert 1 <= len(row.models) <= 6 and all(model in models() for model in row.models)
    assert row.title and row.shows.endswith(".")
    assert row.tokens and all(count > 0 for count in row.tokens) and row.batch > 0
    assert row.dtype in DTYPES and row.view in VIEWS
    assert row.weights_dtype and all(dtype in DTYPES for dtype in row.weights_dtype)


def test_an_unknown_model_is_refused_with_near_ids():
    with pytest.raises(KvvizError, match="gpt2"):
        find_source("gtp2")


@pytest.mark.parametrize(
    ("model", "weights", "says"),
    [
        ("gpt2", "bundled", "does not come with kvviz"),
        ("gpt2", "local", "folder"),
        ("tiny-gpt2", "hub", "no Hugging Face id"),
        ("someone/something", "auto", "--weights hub"),
        ("a\0b", "auto", "null"),
    ],
)
def test_impossible_weights_get_one_sentence(model, weights, says):
    with pytest.raises(KvvizError, match=says):
        find_source(model, weights)


def test_auto_never_uses_the_network():
    assert find_source("gpt2").weights == "random"
    assert find_source("gpt2", "hub").hub == "openai-community/gpt2"
