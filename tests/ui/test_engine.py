"""The browser's engine, run in node, held against torch: tokens, logits, every layer, every mode, the tokenizer."""

import copy
import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from kvviz.base.errors import KvvizError
from kvviz.base.records import Sampling
from kvviz.decoding.loop import chooser, decode
from kvviz.experiments.comparison.in_browser import decoded_there, order_of
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.models.sources import BUNDLED
from kvviz.models.text import STORY, book
from kvviz.store.files.browser import from_browser
from kvviz.store.files.reading import Imported
from kvviz.ui.folders import ASSETS
from kvviz.ui.live.browser import agreement

ENGINE = ASSETS / "engine"
BUNDLED_MODELS = ("mini-gpt2", "mini-qwen3")
NEW_TOKENS, PROMPTS = 16, 20
SAMPLING = (
    {"temperature": 0.8, "top_k": 40, "top_p": None, "seed": 7},
    {"temperature": 1.3, "top_k": None, "top_p": 0.9, "seed": 4294967295},
    {"temperature": 1.0, "top_k": None, "top_p": None, "seed": 0},
)
TEXTS = (
    "He said: it's 1987, isn't it?  We'll see…\n\n\tTabs and   spaces ",
    "naïve Reykjavík, Ærøskøbing 東京 🎈🎉 \x85\ufeff\u00a0x\u2028y ½ ²",
    "<|endoftext|>A story<|endoftext|> of <|endo",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaa!!!!!?---",
)


WORK = decoded_there(
    ComparisonSpec(
        "mini-qwen3", modes=("uncached", "cached", "prealloc"), prompt=STORY, new_tokens=NEW_TOKENS, repeats=2, warmup=2
    )
)
NOTHING = dict.fromkeys(("torch", "transformers", "python"), "none")
ENVIRONMENT = {
    **{"device": "browser", "device_name": "a browser", "threads": 1, "cores": 4, "platform": "here"},
    **{"dtype": "float32", "attn_implementation": "WebAssembly with SIMD", **NOTHING},
}


def prompts():
    """Different texts of different lengths: the story's beginning and pieces of the book."""
    text = book()
    return [STORY, *(text[700 * i : 700 * i + 20 + 17 * i] for i in range(1, PROMPTS))]


@pytest.fixture(scope="module")
def models(load, tmp_path_factory):
    """The bundled models, and a LLaMA with a head of its own, no q/k norm and random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = dict(hidden_size=48, intermediate_size=84, num_hidden_layers=2, num_attention_heads=4, vocab_size=259)
    config = LlamaConfig(**sizes, num_key_value_heads=2, attention_bias=True, tie_word_embeddings=False)
    own = LlamaForCausalLM(config).eval()
    folder = tmp_path_factory.mktemp("llama")
    own.save_pretrained(folder)
    shutil.copy(BUNDLED / "mini-gpt2" / "tokenizer.json", folder)
    found = {name: (BUNDLED / name, load(name).model) for name in BUNDLED_MODELS}
    return {**found, "llama": (folder, own)}


@pytest.fixture(scope="module")
def found(models, tmp_path_factory):
    """What the engine finds, in one process of node for all tests."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed, which runs the browser's engine here")
    out = tmp_path_factory.mktemp("logits")
    jobs = {
        name: {
            "folder": str(folder),
            "prompts": prompts() if name in BUNDLED_MODELS else [[1, 5, 258, 7]],
            "texts": TEXTS if name in BUNDLED_MODELS else [],
            "sampling": SAMPLING,
            "new_tokens": NEW_TOKENS,
            "logits": str(out / name),
            "work": order_of(WORK) if name == WORK.model else None,
        }
        for name, (folder, _) in models.items()
    }
    gpt2, qwen3 = (json.loads((BUNDLED / name / "config.json").read_text()) for name in BUNDLED_MODELS)
    refused = [
        {**gpt2, "activation_function": "relu"},
        {**gpt2, "scale_attn_by_inverse_layer_idx": True},
        {**qwen3, "rope_parameters": {"rope_type": "llama3"}},
        {**qwen3, "layer_types": ["sliding_attention"]},
        {**qwen3, "model_type": "gemma3"},
    ]
    job = {"models": jobs, "refused": refused, "environment": ENVIRONMENT, "hashed": ["", "abc", "x" * 119]}
    command = [node, "--experimental-default-type=module", str(Path(__file__).with_name("engine.mjs")), str(ENGINE)]
    ran = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    answer = json.loads(ran.stdout)
    for name, of in answer["models"].items():
        of["logits"] = np.fromfile(out / name, np.float32).reshape(len(of["ids"]), NEW_TOKENS, -1)
    return answer


@pytest.mark.parametrize("name", (*BUNDLED_MODELS, "llama"))
def test_the_engine_chooses_torchs_tokens_from_torchs_logits(found, models, name):
    of, model = found["models"][name], models[name][1]
    for ids, greedy, logits in zip(of["ids"], of["greedy"], of["logits"], strict=True):
        with (
            torch.inference_mode()
        ):  # of the tokens that the engine chose: so torch chooses each of them after the others
            known = model(torch.tensor([ids + greedy[:-1]])).logits[0, len(ids) - 1 :].numpy()
        assert known.argmax(-1).tolist() == greedy
        assert np.abs(known - logits).max() < 1e-3


@pytest.mark.parametrize("name", (*BUNDLED_MODELS, "llama"))
@pytest.mark.parametrize("kernels", ("wasm", "plain"))
def test_every_layer_gives_what_torchs_does(found, models, name, kernels):
    of, model = found["models"][name], models[name][1]
    blocks = model.transformer.h if hasattr(model, "transformer") else model.model.layers
    seen = []

    def note(module, inputs, output):
        seen.append(output[0] if isinstance(output, tuple) else output)

    hooks = [block.register_forward_hook(note) for block in blocks]
    try:
        with torch.inference_mode():
            model(torch.tensor([of["ids"][0]]))
    finally:
        for hook in hooks:
            hook.remove()
    assert len(of["layers"][kernels]) == len(seen)
    for mine, torchs in zip(of["layers"][kernels], seen, strict=True):
        known = torchs.flatten().numpy()
        assert np.abs(np.array(mine) - known).max() < 1e-4 * max(1, np.abs(known).max())


@pytest.mark.parametrize("name", (*BUNDLED_MODELS, "llama"))
def test_all_modes_and_plain_javascript_choose_the_same_tokens(found, name):
    of = found["models"][name]
    assert found["chosen"] == ["wasm", "plain", "plain"]
    assert all(tokens == of["greedy"][:3] for tokens in of["modes"].values())
    assert of["plain"] == of["greedy"][0]


@pytest.mark.parametrize("name", BUNDLED_MODELS)
def test_sampling_draws_the_tokens_that_the_server_draws(found, models, name):
    of = found["models"][name]
    prompt = torch.tensor([of["ids"][0]])
    for sampling, drawn in zip(SAMPLING, of["sampled"], strict=True):
        steps = decode(
            models[name][1], prompt, mode="cached", new_tokens=NEW_TOKENS, choose=chooser(Sampling(**sampling))
        )
        assert drawn == [step.token_ids.item() for step in steps]


@pytest.mark.parametrize("name", BUNDLED_MODELS)
def test_the_cache_has_the_shapes_and_bytes_of_the_servers(found, models, name):
    from kvviz.decoding.read_cache import layer_states
    from kvviz.experiments.comparison.equivalence import grouped

    of, model = found["models"][name], models[name][1]
    prompt = torch.tensor([of["ids"][0]])
    for mode in ("cached", "prealloc"):
        known = [grouped(layer_states(s.cache)) for s in decode(model, prompt, mode=mode, new_tokens=NEW_TOKENS)]
        assert [layers for layers, _ in of["cache"][mode]] == known
        for layers, outliving in of["cache"][mode]:  # what the engine's heap says for itself
            assert outliving == sum(len(group["indices"]) * group["allocated"] for group in layers)
    assert {str(row) for mode in ("uncached", "unpassed") for row in of["cache"][mode]} == {"[[], 0]"}


@pytest.mark.parametrize("name", BUNDLED_MODELS)
def test_the_tokenizer_reads_and_writes_as_the_servers(found, load, name):
    of, codec = found["models"][name], load(name).codec
    assert of["ids"] == [codec.encode(text) for text in prompts()]
    assert of["texts"] == [codec.encode(text) for text in TEXTS]
    assert of["read"] == [[codec.decode([i]) for i in codec.encode(text)] for text in TEXTS]
    assert of["streamed"] == " ".join(TEXTS)


def test_what_the_engine_can_not_compute_is_refused_with_the_reason(found):
    words = ("activation is relu", "scales attention", "positions are scaled (llama3)", "sliding windows", "a gemma3")
    assert all(part in said for part, said in zip(words, found["refused"], strict=True))
    for of in found["models"].values():
        assert "checksum" in of["tampered"]
        assert "positions" in of["long"]
    assert found["sums"] == [hashlib.sha256(text.encode()).hexdigest() for text in ("", "abc", "x" * 119)]


@pytest.fixture
def records(found):
    return copy.deepcopy(found["models"][WORK.model]["records"])


def test_a_browsers_records_make_a_comparison_with_figures_of_their_own(found, records):
    opened = from_browser(records)
    runs, of = {run["mode"]: run for run in opened.document["runs"]}, found["models"][WORK.model]
    assert list(runs) == list(WORK.modes) and opened.document["identical"]
    assert all(run["token_ids"] == of["greedy"][0] and run["max_abs_logit_diff"] < 1e-3 for run in runs.values())
    assert runs["cached"]["speedup"] > 0 and runs["cached"]["speedup_interval"]
    for name, run in runs.items():
        account = run["memory"]
        assert account["formula"] == account["tensors"] == (0 if name == "uncached" else run["cache_bytes"][-1])
        assert account["storages"] == account["allocator"]["kept"] == run["outliving_bytes"][-1]
        assert account["allocator"]["peak"] > account["storages"]
        assert bool(account["reasons"]) == (name == "prealloc")
    assert [record["t"] for record in opened.records[-2:]] == ["figures", "done"]


def test_steps_shorter_than_the_clock_can_tell_are_timed_in_groups(records):
    assert "moves in steps of 1 ms" in records[0]["model"]["note"] and "less than 10 ms" in records[0]["model"]["note"]
    passes = [record["mode"] for record in records if record["t"] == "pass"]
    assert passes == [*WORK.modes, *reversed(WORK.modes), *WORK.modes], "a warm-up, then the modes take turns"
    timed = [record["s"] for record in records if record["t"] == "times"]
    assert [len(seconds) for seconds in timed] == [NEW_TOKENS] * len(passes)
    assert all(len(set(seconds[1:])) == 1 and 0 < sum(seconds) < 0.01 for seconds in timed), "one group, read twice"


def test_a_pass_during_which_the_page_was_hidden_is_marked(found):
    ((answer,), left, ended) = found["marked"].values()
    assert [record["clean"] for record in answer["records"] if record["t"] == "clocked"] == [None, False, None]
    assert (left, ended) == (0, True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda records: records[0]["environment"].update(device="cpu"), "has to be a browser's"),
        (lambda records: records[-2].update(s=[1.0]), "as many steps"),
        (lambda records: [record.update(s=[0.0] * NEW_TOKENS) for record in records if "s" in record], "take time"),
        (lambda records: records[20]["modes"]["cached"]["layers"][0].update(key_shape=[]), "four sizes"),
        (lambda records: records.clear(), "does not begin"),
        (lambda records: records[1]["modes"]["cached"].update(text=5), "has to be a text"),
        (lambda records: records.__delitem__(slice(10, None)), "checked and timed"),
    ],
)
def test_records_that_do_not_fit_are_refused(records, change, said):
    change(records)
    with pytest.raises(KvvizError, match=said):
        from_browser(records)


def test_the_page_says_on_how_many_tokens_server_and_browser_agree(records, scheduler_without_worker):
    here = from_browser(records)
    there = copy.deepcopy(here.document)
    there["environment"]["device"] = "cpu"
    there["runs"][0]["token_ids"][-1] += 1
    shown = scheduler_without_worker.adopt(here)
    assert "Run the same" in agreement(scheduler_without_worker, shown)
    server = scheduler_without_worker.adopt(Imported(there, here.records))
    for one in (shown, server):
        assert f"agree on {NEW_TOKENS - 1} of {NEW_TOKENS} tokens" in agreement(scheduler_without_worker, one)


def test_the_module_is_built_from_the_source_beside_it(tmp_path):
    known = dict(reversed(line.split()) for line in (ENGINE / "kernels.sha256").read_text().splitlines())
    for name in ("kernels.c", "build.sh", "kernels.wasm"):
        assert hashlib.sha256((ENGINE / name).read_bytes()).hexdigest() == known[name]
    version = subprocess.run(["clang", "--version"], capture_output=True, text=True) if shutil.which("clang") else None
    if version is None or not shutil.which("wasm-ld") or " 14.0" not in version.stdout.splitlines()[0]:
        pytest.skip("clang 14 and wasm-ld are not installed, which build kernels.wasm")
    subprocess.run([str(ENGINE / "build.sh"), str(tmp_path / "again.wasm")], check=True)
    assert (tmp_path / "again.wasm").read_bytes() == (ENGINE / "kernels.wasm").read_bytes()


def test_the_engine_stays_small():
    lines = sum(len(path.read_text().splitlines()) for path in ENGINE.iterdir() if path.suffix in (".js", ".c"))
    assert lines <= 900
