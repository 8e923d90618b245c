"""A scoreboard of KV cache calculators: each one's bytes against those of the traced model, for 30 published configs.

The truth is `kvviz probe`: transformers builds the model without weights on torch's meta device, runs a prefill and a
step, and the cache's tensors are added up. Peers that install from PyPI run their own code, in a virtual environment of
their own (`--peers FOLDER`, see docs/scoreboard.md); a formula that a web page publishes is written down here.

    python -m venv .venv-peers && .venv-peers/bin/pip install hf-mem vramscout vramcalc && .venv-peers/bin/pip install \
        --no-deps llm-analysis && .venv-peers/bin/pip install fire
    python -m bench.calculators --peers .venv-peers --out docs/scoreboard.md
"""

import argparse
import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

if not __package__:
    import checkout  # noqa: F401

import transformers

from bench.each_type import environment, limited
from kvviz.base.errors import KvvizError
from kvviz.base.words import human
from kvviz.decoding.loading import hf_config
from kvviz.decoding.meta_probe import probe
from kvviz.memory.formula import kv_memory
from kvviz.models.catalog.rows import model_row
from kvviz.models.spec import ModelSpec

# Of each kind of cache that published models have, the best known: 8 plain, 8 with windows, 5 latent, 5 with states,
# and 4 whose fields have names or defaults of their own.
MODELS = """
    llama-2-7b llama-3.1-8b llama-3.1-70b qwen2.5-7b qwen3-0.6b glm-4.5 qwen3-30b-a3b mixtral-8x7b
    mistral-7b-v0.1 gemma-2-9b gemma-3-12b gemma-3-27b gpt-oss-20b gpt-oss-120b phi-3-mini-4k llama-4-scout
    deepseek-v2 deepseek-v2-lite deepseek-v3 minicpm3-4b kimi-k2
    qwen3-next-80b-a3b jamba-v0.1 mamba-130m falcon-h1-7b nemotron-h-8b
    gpt2 falcon-7b gemma-7b gemma-3n-e4b
"""
TOKENS = 8192
EXACT = 0.001  # a window of W holds W - 1 tokens in transformers and W in engines: neither is wrong
SECONDS = 300  # for one model's trace

Config = Mapping[str, Any]


# The models of this list that LMCache's table has, some of them as the instruct version of the same shape:
# https://github.com/LMCache/LMCache/blob/0ac4671b15d9291519d64c8abe1d33976d6fa25f/examples/kv_cache_calculator/modelconfig.json
LMCACHE_HAS = (
    "meta-llama/llama-3.1-8b",
    "meta-llama/llama-3.1-70b",
    "qwen/qwen2.5-7b",
    "qwen/qwen3-0.6b",
    "qwen/qwen3-30b-a3b",
    "zai-org/glm-4.5",
    "deepseek-ai/deepseek-v3",
)


def lmcache(config: Config, hub: str, tokens: int) -> int | str:
    """The formula of LMCache's web calculator, for the models that its table has."""
    if hub.lower() not in LMCACHE_HAS:
        return "its table does not have this model"
    layers = config.get("num_hidden_layers")
    if "DeepSeek" in hub and config.get("kv_lora_rank") and config.get("qk_rope_head_dim"):
        return 2 * layers * tokens * (config["kv_lora_rank"] + config["qk_rope_head_dim"])
    fields = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads")
    if missing := [name for name in fields if not config.get(name)]:
        return f"the config has no {', '.join(missing)}"
    dim = config["hidden_size"] / config["num_attention_heads"]
    if "qwen/qwen3-" in hub.lower() and config.get("head_dim"):
        dim = config["head_dim"]
    return round(2 * 2 * layers * tokens * config["num_key_value_heads"] * dim)


def common(config: Config, hub: str, tokens: int) -> int | str:
    """The formula that most web pages print: 2 x layers x KV heads x head dim x tokens x bytes."""
    fields = ("num_hidden_layers", "num_attention_heads", "hidden_size")
    if missing := [name for name in fields if not config.get(name)]:
        return f"the config has no {', '.join(missing)}"
    heads = config["num_attention_heads"]
    dim = config.get("head_dim") or config["hidden_size"] // heads
    return 2 * config["num_hidden_layers"] * (config.get("num_key_value_heads") or heads) * dim * tokens * 2


@dataclass(frozen=True)
class Peer:
    """A calculator: where it is, and what it says of its own scope."""

    name: str
    kind: str
    address: str
    scope: str


PEERS = (
    Peer("kvviz", "this checkout", "index.md", "every decoder of transformers, by formula"),
    Peer("hf-mem", "installed", "https://pypi.org/project/hf-mem/", "experimental; hybrids as an upper bound"),
    Peer("vramscout", "installed", "https://pypi.org/project/vramscout/", "modern families it lists, else plain ones"),
    Peer("vramcalc", "installed", "https://pypi.org/project/vramcalc/", "five model types of the Llama family"),
    Peer("llm-analysis", "installed", "https://pypi.org/project/llm-analysis/", "plain decoders; newest of 2023"),
    Peer("LMCache", "reimplemented", "https://docs.lmcache.ai/getting_started/kv_cache_calculator.html", "31 models"),
    Peer("web formula", "reimplemented", "https://llm-vram-calc.choppytoast.com/glossary/kv-cache/", "plain decoders"),
)


def cases_of(name: str) -> list[dict[str, Any]]:
    """A model twice: with the fields that its publisher's file states, and with all that transformers fills in."""
    row = model_row(name)
    whole = hf_config(row.config)
    names = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    beside = {"architectures": [names.get(whole.model_type, "")], "torch_dtype": "bfloat16"}
    context = ModelSpec.from_config(row.config).context or TOKENS
    about = {"model": name, "hub": row.hub or "", "params": row.params, "tokens": min(TOKENS, context)}
    configs = {"published": row.config, "whole": json.loads(json.dumps(whole.to_dict(), default=str))}
    return [{"id": f"{name} {form}", **about, "config": {**fields, **beside}} for form, fields in configs.items()]


def traced(case: Mapping[str, Any]) -> int:
    """Bytes of the cache that the model itself keeps."""
    with limited(SECONDS):
        return probe(model_row(case["model"]).config, tokens=case["tokens"], dtype="bfloat16").total_bytes


def ours(config: Config, hub: str, tokens: int) -> int | str:
    """kvviz's formula, from the same files that the peers get."""
    try:
        return kv_memory(ModelSpec.from_config(config), tokens, dtype="bfloat16", view="hf-dynamic").total_bytes
    except KvvizError as error:
        return str(error)


def installed(cases: list[dict[str, Any]], folder: Path | None) -> dict[str, Any]:
    """The answers of the peers in a virtual environment; none without one."""
    if folder is None:
        return {"versions": {}, "answers": {}}
    command = [str(folder / "bin" / "python"), str(Path(__file__).with_name("calculator_peers.py"))]
    done = subprocess.run(command, input=json.dumps(cases), capture_output=True, text=True, check=True, timeout=600)
    return json.loads(done.stdout[done.stdout.index("{") :])


def judged(answer: int | str, truth: int) -> str:
    """One cell: exact, or how many times the truth, or refused."""
    if isinstance(answer, str):
        return "refused"
    ratio = answer / truth
    return "exact" if abs(ratio - 1) <= EXACT else f"{ratio:.2f} x" if ratio < 100 else f"{ratio:.0f} x"


Formula = Callable[[Config, str, int], int | str]
FORMULAS: Mapping[str, Formula] = {"kvviz": ours, "LMCache": lmcache, "web formula": common}


def best(answers: list[int | str], truth: int) -> int | str:
    """The answer nearest to the truth; a refusal only if there is no other. Zero bytes are no answer."""
    numbers = [answer for answer in answers if isinstance(answer, int) and answer]
    refusals = [answer for answer in answers if isinstance(answer, str)]
    return min(numbers, key=lambda answer: abs(answer - truth)) if numbers else (*refusals, "0 bytes")[0]


def scoreboard(models: list[str], folder: Path | None) -> dict[str, Any]:
    """The document: a row for each model, and for each calculator how often it was exact, near, wrong or refused."""
    cases = {name: cases_of(name) for name in models}
    found = installed([case for pair in cases.values() for case in pair], folder)
    rows = []
    for name, pair in cases.items():
        truth = traced(pair[0])
        every: dict[str, list[int | str]] = {
            peer: [formula(case["config"], case["hub"], case["tokens"]) for case in pair]
            for peer, formula in FORMULAS.items()
        }
        every |= {peer: [found["answers"][peer][case["id"]] for case in pair] for peer in found["versions"]}
        answers = {peer.name: best(every[peer.name], truth) for peer in PEERS if peer.name in every}
        rows.append({"model": name, "tokens": pair[0]["tokens"], "traced_bytes": truth, "answers": answers})
        print(name, truth, {peer: judged(answer, truth) for peer, answer in answers.items()}, file=sys.stderr)
    names = list(rows[0]["answers"])
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "environment": environment(),
        "versions": {"kvviz": "this checkout", **found["versions"]},
        "rows": rows,
        "calculators": {name: tally(name, rows) for name in names},
    }


def tally(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts for one calculator: exact; within 10%; farther off; refused; and its largest error, as a factor."""
    ratios = [row["answers"][name] / row["traced_bytes"] for row in rows if not isinstance(row["answers"][name], str)]
    exact = sum(abs(ratio - 1) <= EXACT for ratio in ratios)
    near = sum(EXACT < abs(ratio - 1) <= 0.1 for ratio in ratios)
    off = max((max(ratio, 1 / ratio) for ratio in ratios), default=1.0)
    return {
        "exact": exact,
        "within_10_percent": near,
        "farther_off": len(ratios) - exact - near,
        "refused": len(rows) - len(ratios),
        "largest_factor": off,
    }


def markdown(found: Mapping[str, Any]) -> str:
    """The document as a page."""
    names = list(found["calculators"])
    about = {peer.name: peer for peer in PEERS}
    text = f"""# Calculators of KV cache memory, held against the model itself

{found["date"]}, transformers {found["environment"]["transformers"]}. `python -m bench.calculators` wrote this page;
its docstring says how to repeat it.

The truth is the model: transformers builds it without weights on torch's meta device, runs a prefill and a step, and
the tensors of its cache are added up, for one sequence of {TOKENS:,} tokens in bfloat16 (fewer where the model was made
for fewer). Each calculator is asked twice, with the fields of the published config that decide sizes and with all that
transformers fills in, and the better answer counts. Installed peers run their own code in their newest version; a
*reimplemented* one is a formula written down from its published page, and may differ from the page. "Exact" allows
0.1%, because a window of W tokens holds W - 1 in transformers and W in engines. A refusal is no error: a calculator
that says what it can't read misleads nobody.

| calculator | version | its own scope | exact | within 10% | farther off | refused | largest error |
|---|---|---|---:|---:|---:|---:|---:|
"""
    for name in names:
        row, peer = found["calculators"][name], about[name]
        factor = row["largest_factor"]
        most = f"{factor:,.1f} x" if factor > 1 + EXACT else "none"
        counts = " | ".join(str(row[key]) for key in ("exact", "within_10_percent", "farther_off", "refused"))
        version = found["versions"].get(name, peer.kind)
        text += f"| [{name}]({peer.address}) | {version} | {peer.scope} | {counts} | {most} |\n"
    text += "\nhf-mem counts the windows of hybrids in full on purpose: engines may reserve that much. "
    text += (
        "kvviz's formula was written with this trace at hand, so its column shows that it holds and not that it was "
    )
    text += "guessed.\n\nNot in the table: gguf-parser, which reads GGUF files alone and has to be built with Go; LM "
    text += "Studio, which publishes no formula; accelerate, which estimates weights alone.\n\n"
    text += f"| model | tokens | traced | {' | '.join(names)} |\n|---|---:|---:|{'---|' * len(names)}\n"
    for row in found["rows"]:
        cells = " | ".join(judged(row["answers"][name], row["traced_bytes"]) for name in names)
        text += f"| {row['model']} | {row['tokens']:,} | {human(row['traced_bytes'])} | {cells} |\n"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=Path, metavar="FOLDER", help="a virtual environment with the installed peers")
    parser.add_argument("--only", default="", metavar="MODEL[,MODEL]", help="these catalog ids and no others")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the page too")
    parser.add_argument("--json", action="store_true", help="print one JSON document (it always does)")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    found = scoreboard(options.only.split(",") if options.only else MODELS.split(), options.peers)
    if options.out:
        options.out.write_text(markdown(found))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
