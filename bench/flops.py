"""The counted work against torch's flop counter, for every decoder that the installed transformers registers.

Each type's default config is read by `read_shape` and run on the meta device by `forward_flops`: a prefill and the
step after it, at a few numbers of tokens and batches. A type is exact where both agree to the FLOP at each of them,
wrong where one does not, and refused where either side says why it can't count.

    python bench/flops.py --json
    python bench/flops.py --only llama,jamba
"""

import argparse
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import transformers

from bench.decoders import ENDS, LONG, SECONDS, counted, environment, limited
from bench.default_configs import decoders, default_config, encoder_decoders
from kvviz.base.errors import ConfigError
from kvviz.cost.flops import cached_step, prefill, total_flops
from kvviz.cost.shape import Shape, read_shape
from kvviz.decoding.meta_probe import forward_flops, position_limit

Case = dict[str, Any]


def cases(config: dict[str, Any]) -> list[Case]:
    """What each type is asked; the last is longer than most windows, or as long as its positions reach."""
    reach = ENDS.get(config["model_type"]) or position_limit(config) or LONG
    source = {"source_tokens": 25} if config.get("is_encoder_decoder") else {}
    return [
        {"tokens": 41, "batch": 1, **source},
        {"tokens": 71, "batch": 2, **source},
        {"tokens": min(LONG, reach), "batch": 1, **source},
    ]


def difference(shape: Shape, config: dict[str, Any], case: Case) -> str:
    """Where the formula and the counter part; an empty text where they don't."""
    before = {**case, "tokens": case["tokens"] - 1}
    ours = total_flops(shape, prefill(shape, **before)), total_flops(shape, cached_step(shape, **case))
    theirs = forward_flops(config, **case)
    for name, our, their in zip(("prefill", "step"), ours, theirs, strict=True):
        if their is not None and our != their:
            return f"{name}: {our:,} FLOPs, the counter {their:,}, at {', '.join(map(str, case.values()))}"
    return ""


def compared(model_type: str, *, alone: bool) -> dict[str, Any]:
    """One row: how formula and counter agree on a type's default config."""
    row = {"model_type": model_type, "outcome": "exact", "step_flops": None, "why": ""}
    start = time.perf_counter()
    try:
        with limited(SECONDS):
            row |= _agreement(default_config(model_type, alone=alone))
    except Exception as error:  # one type's trouble is not the others'
        row |= {"outcome": "refused by the counter", "why": f"{type(error).__name__}: {error}"[:300]}
    return {**row, "seconds": round(time.perf_counter() - start, 2)}


def _agreement(config: dict[str, Any]) -> dict[str, Any]:
    try:
        shape = read_shape(config)
    except ConfigError as error:
        return {"outcome": "refused by the formula", "why": str(error)}
    try:
        asked = cases(config)
        whys = (difference(shape, config, case) for case in asked)
        wrong = next(filter(None, whys), "")
    except ConfigError as error:
        return {"outcome": "refused by the counter", "why": str(error)}
    step = total_flops(shape, cached_step(shape, **asked[0]))
    return {"outcome": "wrong" if wrong else "exact", "step_flops": step, "why": wrong}


def walk(names: list[str], only: set[str], *, alone: bool, shown: bool) -> list[dict[str, Any]]:
    """The rows of these types, each printed as it is there."""
    rows = []
    for name in names:
        if not only or name in only:
            rows.append(compared(name, alone=alone))
            said = f"{name:28} {rows[-1]['outcome']:23} {rows[-1]['step_flops'] or '':>16}  {rows[-1]['why']}"
            print(said, file=sys.stdout if shown else sys.stderr, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document; the rows go to standard error")
    parser.add_argument("--only", default="", metavar="TYPE[,TYPE]", help="these model types and no others")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    only = set(filter(None, options.only.split(",")))
    own = walk(decoders(), only, alone=True, shown=not options.json)
    crossing = walk(encoder_decoders(), only, alone=False, shown=not options.json)
    group = {**counted(crossing), "rows": crossing}
    if options.json:
        print(json.dumps({"environment": environment(), **counted(own), "rows": own, "encoder_decoders": group}))
    else:
        print(f"decoders: {counted(own)}; encoder-decoders: {counted(crossing)}")


if __name__ == "__main__":
    main()
