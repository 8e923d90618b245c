"""How far the predicted steps are from the measured ones: models, batches and prompts, each in a fresh process.

`python -m bench.predictions` prints a table, `--json` the rows; `--rounds N` repeats each piece of work in N processes.
Run it on a machine that does nothing else: a row says how many of its passes were clean.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from kvviz.decoding.modes import title_of

MODELS = ("mini-gpt2", "mini-qwen3", "gpt2", "qwen3-0.6b")
PROMPTS = (64, 512)
BATCHES = (1, 4)
NEW_TOKENS = 24


def predictions(models: Sequence[str], rounds: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each model, prompt, batch, process and mode."""
    for model, tokens, batch, number in product(models, PROMPTS, BATCHES, range(rounds)):
        work = {"--model": model, "--prompt-tokens": tokens, "--batch": batch, "--new-tokens": NEW_TOKENS}
        words = [str(word) for pair in (*work.items(), ("--repeats", 3), ("--dtype", "float32")) for word in pair]
        command = [sys.executable, "-m", "kvviz", "run", *words, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        document = json.loads(done.stdout)
        place = {"model": model, "prompt_tokens": tokens, "batch": batch, "process": number}
        for run in document["runs"]:
            figures = {name: run[name] for name in ("mode", "itl_s", "prediction_error", "prediction_bias", "passes")}
            yield {**place, **figures, "environment": document["environment"]}


def main() -> None:
    """Print the rows as a table or as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rows = []
    for row in predictions(asked.models.split(","), asked.rounds):
        rows.append(row)
        if not asked.json:
            clean = f"{row['passes']['clean']} of {row['passes']['clean'] + row['passes']['disturbed']} clean"
            error = "none" if row["prediction_error"] is None else f"{row['prediction_bias']:+.0%}"
            print(
                f"{row['model']:12} {row['prompt_tokens']:4} tokens, batch {row['batch']}, process {row['process']}, "
                f"{title_of(row['mode']):10} {1000 * row['itl_s']:8.2f} ms  predicted {error:>5}  {clean}",
                flush=True,
            )
    if asked.json:
        print(json.dumps({"environment": rows[0]["environment"], "rows": rows}))


if __name__ == "__main__":
    main()
