"""The closed form against the model itself, for every decoder that the installed transformers registers.

Each type's default config is read by `ModelSpec.from_config` and run on the meta device by `probe`, at a few numbers of
tokens, batches and precisions. A type is exact where every layer's bytes agree at each of them, wrong where one does
not, and refused where either side says that it can't read it.

    python bench/decoders.py --json
    python bench/decoders.py --only llama,jamba
    python bench/decoders.py --out docs/decoders.md
"""

import argparse
import json
import os
import platform
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import transformers

from bench.default_configs import decoders, default_config, encoder_decoders
from kvviz.base.errors import ConfigError
from kvviz.decoding.meta_probe import position_limit, probe
from kvviz.memory.formula import kv_memory
from kvviz.models.spec import ModelSpec

Case = dict[str, Any]
LONG = 5000  # tokens
ENDS = {"mpt": 2048, "reformer": 4096}  # contexts that end without a table of positions
SECONDS = 60  # for one type


def cases(config: dict[str, Any]) -> list[Case]:
    """What each type is asked: the last is longer than most windows, or as long as its positions reach."""
    reach = ENDS.get(config["model_type"]) or position_limit(config) or LONG
    source = {"source_tokens": 25} if config.get("is_encoder_decoder") else {}
    return [
        {"tokens": 40, "batch": 1, "dtype": "bfloat16"},
        {"tokens": 40, "batch": 2, "dtype": "float32", **source},
        {"tokens": min(LONG, reach), "batch": 1, "dtype": "bfloat16"},
    ]


def difference(spec: ModelSpec, config: dict[str, Any], case: Case) -> tuple[int, int, str]:
    """Total bytes by the closed form and by the probe, and where the two part; an empty text where they don't."""
    formula = kv_memory(spec, view="hf-dynamic", **case)
    asked = probe(config, **case)
    ours, theirs = ([row.nbytes for row in memory.layers] for memory in (formula, asked))
    at = f"at {', '.join(str(value) for value in case.values())}"
    if len(ours) != len(theirs):
        return formula.total_bytes, asked.total_bytes, f"{len(ours)} layers, the model has {len(theirs)}, {at}"
    apart = [i for i, (our, their) in enumerate(zip(ours, theirs, strict=True)) if our != their]
    why = f"layer {apart[0]}: {ours[apart[0]]:,} B, the model keeps {theirs[apart[0]]:,} B, {at}" if apart else ""
    return formula.total_bytes, asked.total_bytes, why


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raises TimeoutError once the body has taken so long."""

    def stop(number: int, frame: Any) -> None:
        raise TimeoutError(f"took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def compared(model_type: str, *, alone: bool) -> dict[str, Any]:
    """One row: how spec and probe agree on a type's default config."""
    row = {"model_type": model_type, "outcome": "exact", "spec_bytes": None, "probe_bytes": None, "why": ""}
    start = time.perf_counter()
    try:
        with limited(SECONDS):
            row |= _agreement(default_config(model_type, alone=alone))
    except Exception as error:  # one type's trouble is not the others'
        row |= {"outcome": "refused by probe", "why": f"{type(error).__name__}: {error}"[:300]}
    return {**row, "seconds": round(time.perf_counter() - start, 2)}


def _agreement(config: dict[str, Any]) -> dict[str, Any]:
    try:
        spec = ModelSpec.from_config(config)
    except ConfigError as error:
        return {"outcome": "refused by spec", "why": str(error)}
    found: dict[str, Any] = {}
    try:
        for case in cases(config):
            ours, theirs, why = difference(spec, config, case)
            found = {"spec_bytes": ours, "probe_bytes": theirs, **found}
            if why:
                return {**found, "outcome": "wrong", "why": why}
    except ConfigError as error:
        return {**found, "outcome": "refused by probe", "why": str(error)}
    return found


def counted(rows: list[dict[str, Any]]) -> dict[str, int]:
    """How many rows came out how."""
    outcomes = [row["outcome"] for row in rows]
    return {
        "exact": outcomes.count("exact"),
        "wrong": outcomes.count("wrong"),
        "refused": len(outcomes) - outcomes.count("exact") - outcomes.count("wrong"),
    }


def environment() -> dict[str, Any]:
    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
    }


def line(row: dict[str, Any]) -> str:
    size = "" if row["probe_bytes"] is None else f"{row['probe_bytes']:,}"
    return f"{row['model_type']:28} {row['outcome']:17} {size:>15}  {row['why']}"


def markdown(document: dict[str, Any]) -> str:
    """The document as a page: the counts, then a table for each group."""
    about = document["environment"]
    text = f"# Spec against probe, transformers {about['transformers']}, torch {about['torch']}\n"
    for name, rows in (("Decoders", document["rows"]), ("Encoder-decoders", document["encoder_decoders"]["rows"])):
        counts = ", ".join(f"{count} {outcome}" for outcome, count in counted(rows).items())
        text += f"\n## {name}: {counts}\n\n"
        text += "| model_type | outcome | bytes, 40 tokens, bfloat16 | why |\n|---|---|---:|---|\n"
        for row in rows:
            size = "" if row["probe_bytes"] is None else f"{row['probe_bytes']:,}"
            text += f"| {row['model_type']} | {row['outcome']} | {size} | {row['why'].replace('|', '/')} |\n"
    return text


def walk(names: list[str], only: set[str], *, alone: bool, shown: bool) -> list[dict[str, Any]]:
    rows = []
    for name in names:
        if not only or name in only:
            rows.append(compared(name, alone=alone))
            print(line(rows[-1]), file=sys.stdout if shown else sys.stderr, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document; the rows go to standard error")
    parser.add_argument("--only", default="", metavar="TYPE[,TYPE]", help="these model types and no others")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write a markdown table too")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    only = set(filter(None, options.only.split(",")))
    own = walk(decoders(), only, alone=True, shown=not options.json)
    crossing = walk(encoder_decoders(), only, alone=False, shown=not options.json)
    group = {**counted(crossing), "rows": crossing}
    document = {"environment": environment(), **counted(own), "rows": own, "encoder_decoders": group}
    if options.out:
        options.out.write_text(markdown(document))
    if options.json:
        print(json.dumps(document))
    else:
        print(f"decoders: {counted(own)}; encoder-decoders: {counted(crossing)}")


if __name__ == "__main__":
    main()
