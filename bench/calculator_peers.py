"""The installed peers of `bench/calculators.py`, asked in a virtual environment of their own, without kvviz.

Standard input: a list of {"id", "hub", "params", "tokens", "config"}. Standard output: {"versions", "answers"}, where
an answer is the bytes of the KV cache in bfloat16 for one sequence, or a sentence why there is none. Each peer is asked
through its own code with what it would read from the Hub; nothing is downloaded.
"""

import json
import sys
import tempfile
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

Case = dict[str, Any]


def hf_mem(case: Case) -> int | str:
    """What `hf-mem --experimental` computes after its own checks of a config."""
    from hf_mem.safetensors.kv_cache import compute_safetensors_kv_cache_size

    config = case["config"]
    if not any("ForCausalLM" in name or "ForConditionalGeneration" in name for name in config["architectures"]):
        return "architectures is neither ForCausalLM nor ForConditionalGeneration"
    config = config.get("text_config", config)
    missing = {"hidden_size", "num_hidden_layers", "num_attention_heads"} - set(config)
    if missing:
        return f"config.json has no {', '.join(sorted(missing))}"
    return int(compute_safetensors_kv_cache_size(config, "BF16", case["tokens"], 1))


def vramcalc(case: Case) -> int:
    """The KV cache of `vramcalc estimate`."""
    from vramcalc.arch import Arch
    from vramcalc.memory import kv_cache

    return int(kv_cache(Arch.from_config(case["config"]), 1, case["tokens"], 2))


_BESIDE = ("weights", "runtime", "scratch", "reserve", "workspace")  # the parts that are no cache


def vramscout(case: Case) -> int:
    """The cache and state parts of `vramscout MODEL --kv-dtype bf16`, with the Hub's answers given from here."""
    from vramscout import modern_core, modern_v06, modern_v07

    hub = SimpleNamespace(safetensors=SimpleNamespace(total=case["params"]), siblings=[])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(case["config"]))
        for module in (modern_core, modern_v06):
            module.HfApi = lambda: SimpleNamespace(model_info=lambda *names, **options: hub)
            module.hf_hub_download = lambda *names, **options: str(path)
        asked = {"context": case["tokens"], "weight_dtype": "bf16", "kv_dtype": "bf16", "vram_gib": 1e6}
        parts = modern_v07.plan_modern(case["hub"] or f"someone/{case['id']}", **asked).parts_gib
    kept = (gib for name, gib in parts.items() if not any(word in name.lower() for word in _BESIDE))
    return round(sum(kept) * 2**30)


def llm_analysis(case: Case) -> int | str:
    """The KV cache of llm-analysis, by layer, times the layers."""
    from llm_analysis.analysis import LLMAnalysis
    from llm_analysis.config import ModelConfig, get_gpu_config_by_name

    config = case["config"]
    names = {
        "num_layers": ("num_hidden_layers", "n_layer", "num_layers"),
        "n_head": ("num_attention_heads", "n_head"),
        "hidden_dim": ("hidden_size", "n_embd", "d_model"),
        "num_key_value_heads": ("num_key_value_heads",),
    }
    found = {ours: next((config[name] for name in theirs if config.get(name)), None) for ours, theirs in names.items()}
    if None in (found["num_layers"], found["n_head"], found["hidden_dim"]):
        return "its config class has no place for this model's fields"
    model = ModelConfig(name=case["id"], vocab_size=config.get("vocab_size") or 1, **found)
    rates = {"flops_efficiency": 1.0, "hbm_memory_efficiency": 1.0}
    analysis = LLMAnalysis(model, get_gpu_config_by_name("a100-sxm-80gb"), **rates)
    return int(analysis.get_memory_kv_cache_per_layer(1, case["tokens"], 2) * model.num_layers)


PEERS: dict[str, Callable[[Case], int | str]] = {
    "hf-mem": hf_mem,
    "vramscout": vramscout,
    "vramcalc": vramcalc,
    "llm-analysis": llm_analysis,
}


def asked(peer: Callable[[Case], int | str], case: Case) -> int | str:
    """The peer's answer; whatever it raises is a refusal."""
    try:
        return peer(case)
    except Exception as error:
        return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def main() -> None:
    warnings.filterwarnings("ignore")
    cases = json.load(sys.stdin)
    versions = {}
    for name in PEERS:
        try:
            versions[name] = version(name)
        except ImportError:
            continue
    answers = {name: {case["id"]: asked(PEERS[name], case) for case in cases} for name in versions}
    json.dump({"versions": versions, "answers": answers}, sys.stdout)


if __name__ == "__main__":
    main()
