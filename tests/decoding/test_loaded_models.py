"""Loading once, making room, running out of memory, downloading."""

import subprocess
import sys

import pytest

from kvviz.base.errors import KvvizError
from kvviz.base.records import Sampling
from kvviz.decoding import loading as module
from kvviz.decoding.loaded_models import LoadedModels
from kvviz.decoding.loading import load
from kvviz.decoding.requirements import needs, usual_dtype
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.models.sources import find_source, looks_like_hub_id


def work(model, **fields):
    return ComparisonSpec(model=model, prompt="x", new_tokens=4, **fields)


@pytest.mark.slow
def test_a_model_is_loaded_once():
    models = LoadedModels()
    assert models.get(work("tiny-gpt2")) is models.get(work("tiny-gpt2"))
    assert models.get(work("tiny-gpt2")) is not models.get(work("tiny-gpt2", attn="eager"))
    assert models.get(work("tiny-gpt2")) is not models.get(work("tiny-gpt2", sampling=Sampling(seed=1)))


@pytest.mark.slow
def test_the_least_recently_used_goes_when_memory_is_short():
    free = 3_000_000
    sizes = {"tiny-gpt2": 1_127_936, "tiny-llama": 657_664, "tiny-qwen3": 855_296, "tiny-gemma3": 1_022_976}
    models = LoadedModels(
        free=lambda device: free - sum(sizes[loaded.source.model] for loaded in models._loaded.values())
    )

    first = models.get(work("tiny-gpt2"))
    models.get(work("tiny-llama"))
    assert models.get(work("tiny-gpt2")) is first
    models.get(work("tiny-gemma3"))
    assert [loaded.source.model for loaded in models._loaded.values()] == ["tiny-llama", "tiny-gpt2", "tiny-gemma3"]
    models.get(work("tiny-qwen3"))
    assert [loaded.source.model for loaded in models._loaded.values()] == ["tiny-gemma3", "tiny-qwen3"]


@pytest.mark.slow
def test_a_mode_that_a_model_can_not_do_is_refused_before_it_is_loaded(monkeypatch):
    models = LoadedModels()
    kept = models.get(work("tiny-mistral"))
    monkeypatch.setattr("kvviz.decoding.loaded_models.load", lambda *args, **settings: pytest.fail("it was loaded"))
    for model in ("tiny-gemma3", "tiny-mistral"):
        with pytest.raises(KvvizError, match="sliding window of 16 tokens"):
            models.get(work(model, modes=("cached", "scratch")))
    assert models.get(work("tiny-mistral")) is kept, "what was loaded stays"


@pytest.mark.slow
def test_what_does_not_fit_is_refused_and_what_is_loaded_stays():
    left = {"free": 10**9}
    models = LoadedModels(free=lambda device: left["free"])
    kept = models.get(work("tiny-gpt2"))
    left["free"] = 100_000
    with pytest.raises(KvvizError, match="free"):
        models.get(work("tiny-gpt2", batch=64))
    left["free"] = 10**9
    assert models.get(work("tiny-gpt2")) is kept, "a loaded model whose run does not fit stays loaded"


@pytest.mark.slow
def test_others_go_before_a_run_is_refused():
    models = LoadedModels(free=lambda device: 0 if models._loaded else 10**9)
    models.get(work("tiny-gpt2"))
    models.get(work("tiny-llama"))
    assert [loaded.source.model for loaded in models._loaded.values()] == ["tiny-llama"]


OOM = """
import resource, sys
from kvviz.decoding.loaded_models import LoadedModels
from kvviz.experiments.comparison.run import perform
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.worker.loop import why_it_failed
def work(prompt, new):
    return ComparisonSpec(
        model="tiny-gpt2", prompt_tokens=prompt, new_tokens=new, batch=64, modes=("cached",), repeats=1
    )
loaded = LoadedModels().get(work(900, 4))
list(perform(work(16, 2), loaded, comparison_id="warm"))
for prompt, new, more in ((900, 4, 70_000_000), (16, 900, 25_000_000)):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + more, resource.RLIM_INFINITY))
    try:
        list(perform(work(prompt, new), loaded, comparison_id="c"))
    except Exception as error:
        print(why_it_failed(error, "comparison"))
"""


@pytest.mark.slow
@pytest.mark.worker
@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")
@pytest.mark.long
def test_a_real_failure_of_allocation_is_named():
    """The process may take no more memory than a bit: the allocator itself says no."""
    done = subprocess.run([sys.executable, "-c", OOM], capture_output=True, text=True)
    prefill, step = done.stdout.splitlines() or [done.stderr[-2000:]] * 2
    assert "ran out of memory during the prefill" in prefill
    assert "ran out of memory during decode step" in step


def test_a_download_is_reported_and_then_loaded_from_its_folder(monkeypatch, tmp_path):
    load(find_source("tiny-llama"), dtype="float32", device="cpu", attn="sdpa").model.save_pretrained(tmp_path)
    asked = {}

    def download(repo, *, allow_patterns, local_files_only, tqdm_class):
        asked.update(repo=repo, patterns=allow_patterns)
        with tqdm_class(total=1000, unit="B", unit_scale=True, mininterval=0) as bar:
            for _ in range(4):
                bar.update(250)
                bar.refresh()
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    monkeypatch.setattr(module, "fetched", lambda source: find_source("tiny-llama"))
    told = []
    source = find_source("someone/tiny", "hub")
    loaded = load(source, dtype="float32", device="cpu", attn="sdpa", progress=told.append)
    assert (loaded.source.weights, loaded.params) == ("hub", 164_416)
    assert told[-1] == {"t": "download", "bytes": 1000, "of": 1000}
    assert asked["repo"] == "someone/tiny"
    assert not any(pattern.endswith((".bin", ".py", ".pt")) for pattern in asked["patterns"])


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Qwen/Qwen3-4B", True), ("a/b/c", False), ("./a/b", False), ("a/../b", False), ("x" * 400 + "/b", False)],
)
def test_the_form_of_a_hub_id(name, expected):
    assert looks_like_hub_id(name) is expected


@pytest.mark.parametrize("name", ["x" * 5000, "~no-such-user-at-all/model", "a/" * 300])
def test_a_hopeless_path_is_one_sentence(name):
    with pytest.raises(KvvizError):
        find_source(name)


@pytest.mark.parametrize(
    ("params", "capability", "dtype"),
    [
        (4 * 10**9, "9.0", "bfloat16"),
        (4 * 10**9, "7.5", "float32"),
        (4 * 10**9, None, "float32"),
        (10**8, "9.0", "float32"),
    ],
)
def test_a_large_model_starts_in_bfloat16_where_the_card_computes_in_it(params, capability, dtype):
    assert usual_dtype(params, capability) == dtype


def test_intermediate_results_count_among_what_has_to_fit():
    source = find_source("gpt2", "random")
    short, long = (needs(source, ComparisonSpec("gpt2", prompt_tokens=n)) for n in (16, 960))
    eager = needs(source, ComparisonSpec("gpt2", prompt_tokens=960, attn="eager"))
    assert 10 * short.working < long.working < eager.working
