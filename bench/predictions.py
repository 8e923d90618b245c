"""How far the predicted steps are from the measured ones: models, batches and prompts, each in a fresh process.

`python -m bench.predictions` prints a line for each, as they come; with `--json` each line is a JSON object, the last
one says what was within 15%. `--rounds N` repeats each piece of work in N processes, `--limit S` ends after S seconds.
Run it on a machine that does nothing else: a row says how many of its passes were clean.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from kvviz.decoding.modes import title_of
from kvviz.models.catalog.rows import models

MODELS = ("mini-gpt2", "mini-qwen3", "gpt2", "qwen3-0.6b")
PROMPTS = (64, 512)
BATCHES = (1, 4)
# New tokens after 64 and 512 tokens of the large models, whose uncached steps take up to 20 seconds.
NEW_TOKENS = {"gpt2": {64: 6, 512: 3}, "qwen3-0.6b": {64: 3, 512: 2}}
OF_OTHERS = 24
NEAR = 0.15  # a prediction that is no further off is good


def most_tokens(model: str, asked: int) -> int:
    """The prompt's length, which leaves room for the new tokens among the model's positions."""
    context = (
        models()[model].config.get("n_positions") or models()[model].config.get("max_position_embeddings") or asked
    )
    return min(asked, int(context) - OF_OTHERS)


def predictions(
    names: Sequence[str], prompts: Sequence[int], batches: Sequence[int], rounds: int, until: float
) -> Iterator[dict[str, Any]]:
    """Yield a row for each model, prompt, batch, process and mode; no further process begins after `until`."""
    for model, asked, batch, number in product(names, prompts, batches, range(rounds)):
        if time.monotonic() > until:
            return
        tokens, begun = most_tokens(model, asked), time.monotonic()
        new = NEW_TOKENS.get(model, {}).get(asked, OF_OTHERS)
        work = {"--model": model, "--prompt-tokens": tokens, "--batch": batch, "--new-tokens": new}
        repeats = 1 if model in NEW_TOKENS else 3
        words = [str(word) for pair in (*work.items(), ("--repeats", repeats), ("--dtype", "float32")) for word in pair]
        command = [sys.executable, "-m", "kvviz", "run", *words, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        document = json.loads(done.stdout)
        place = {"model": model, "prompt_tokens": tokens, "batch": batch, "process": number}
        for run in document["runs"]:
            figures = {name: run[name] for name in ("mode", "itl_s", "prediction_error", "prediction_bias", "passes")}
            took = round(time.monotonic() - begun, 1)
            yield {**place, **figures, "process_s": took, "environment": document["environment"]}


def main() -> None:
    """Print each row as it comes, as a line of text or as JSON, and how many predictions were near."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--prompts", default=",".join(map(str, PROMPTS)))
    parser.add_argument("--batches", default=",".join(map(str, BATCHES)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds after which no further process begins")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rows, until = [], time.monotonic() + asked.limit
    prompts, batches = ([*map(int, one.split(","))] for one in (asked.prompts, asked.batches))
    for row in predictions(asked.models.split(","), prompts, batches, asked.rounds, until):
        rows.append(row)
        clean = f"{row['passes']['clean']} of {row['passes']['clean'] + row['passes']['disturbed']} clean"
        error = "none" if row["prediction_error"] is None else f"{row['prediction_bias']:+.0%}"
        print(
            json.dumps(row)
            if asked.json
            else f"{row['model']:12} {row['prompt_tokens']:4} tokens, batch {row['batch']}, process {row['process']}, "
            f"{title_of(row['mode']):10} {1000 * row['itl_s']:8.2f} ms  predicted {error:>5}  {clean}, "
            f"{row['process_s']:.0f} s",
            flush=True,
        )
    known = [row for row in rows if row["prediction_error"] is not None]
    near = sum(row["prediction_error"] <= NEAR for row in known)
    print(json.dumps({"near": near, "of": len(known)}) if asked.json else f"{near} of {len(known)} within {NEAR:.0%}")


if __name__ == "__main__":
    main()
