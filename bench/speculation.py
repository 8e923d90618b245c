"""Speculation with drafts of every quality: the first layers of a model draft for it; and prompt lookup beside them.

A draft of all layers proposes what the model itself would choose, and one of few is fast and mostly wrong. So the rows
go from the highest acceptance to the lowest, even if the weights are random. Then the acceptance tells nothing of
trained weights, but the seconds are those of the true shape. Drafting with the first layers is due to LayerSkip
(Elhoushi et al., 2024, arXiv 2404.16710), which also shares the cache; here the draft has one of its own.

    python bench/speculation.py --json
    python bench/speculation.py --device cuda --layers 12,11,9,6,1
"""

import argparse
import copy
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

if not __package__:
    import checkout  # noqa: F401

from torch import nn
from transformers import PreTrainedModel

from kvviz.base.errors import KvvizError
from kvviz.base.records import DTYPES
from kvviz.cli.measure_here import alone, settle
from kvviz.decoding.loaded_models import LoadedModels
from kvviz.decoding.loading import Loaded, adopt
from kvviz.experiments.comparison.run import perform
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.comparison.speculated import expected


def first_layers(model: PreTrainedModel, layers: int) -> PreTrainedModel:
    """Return a model of the first layers of another, with the same weights in memory. Raises KvvizError."""
    of = model.config.num_hidden_layers
    if not 1 <= layers <= of:
        raise KvvizError(f"{layers} is no number of layers for a draft: the model has {of}")
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    draft = copy.deepcopy(model, shared)
    draft.config.num_hidden_layers = layers
    for blocks in (part for part in draft.modules() if isinstance(part, nn.ModuleList) and len(part) == of):
        del blocks[layers:]
    return draft


def document_of(work: ComparisonSpec, loaded: Loaded, draft: Loaded | None = None) -> dict[str, Any]:
    """Compare the modes; the last record has the document."""
    *_, last = perform(work, loaded, comparison_id="speculation", draft=draft)
    return dict(last["document"])


def measure(models: LoadedModels, work: ComparisonSpec, drafts: list[int | None]) -> Iterator[dict[str, Any]]:
    """Yield a row for each draft, of so many layers, None for prompt lookup, with what the formula expects of it."""
    loaded = models.get(work)
    for count in drafts:
        mode = "lookup" if count is None else "speculative"
        draft = None if count is None else adopt(first_layers(loaded.model, count))
        document = document_of(replace(work, modes=("cached", mode)), loaded, draft)
        usual, run = document["runs"]
        found = expected(run, usual)
        counted = {name: run[name] for name in ("accepted", "tried", "drafted", "steps", "identical")}
        made = len(run["step_s"]) - 1
        yield {
            "model": work.model,
            "device": loaded.device,
            "draft_layers": count,
            **counted,
            "tokens_per_forward": made / (run["steps"] - 1) if run["steps"] > 1 else None,
            **{name: found and getattr(found, name) for name in ("acceptance", "draft_steps", "forward_steps")},
            "expected_speedup": found and found.speedup,
            "speedup": found and found.measured,
            "clean": bool(run["passes"] and run["passes"]["clean"]),
        }


def line_of(row: dict[str, Any]) -> str:
    """A row in words."""
    name = "prompt lookup" if row["draft_layers"] is None else f"the first {row['draft_layers']} layers draft"
    if row["speedup"] is None:
        return f"{name:26} nothing was proposed"
    return (
        f"{name:26} {row['acceptance']:4.0%} of {row['tried']:,} tried accepted, {row['tokens_per_forward']:.2f} "
        f"tokens a forward, {row['speedup']:.2f}x cached (expected {row['expected_speedup']:.2f}x)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document (else a table)")
    parser.add_argument("--model", default="gpt2")
    parser.add_argument("--weights", default="auto")
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, mps; by default the fastest that works")
    parser.add_argument("--dtype", default="float32", choices=DTYPES)
    parser.add_argument("--layers", default="12,11,9,6,3,1", help="layers of each draft")
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    settle()
    sizes = {name: getattr(options, name) for name in ("weights", "device", "dtype", "new_tokens", "repeats")}
    work = ComparisonSpec(options.model, prompt_tokens=options.prompt_tokens, **sizes)
    models, rows = LoadedModels(), list[dict[str, Any]]()
    with alone("bench/speculation.py"):
        for row in measure(models, work, [None, *map(int, options.layers.split(","))]):
            rows.append(row)
            if not options.json:
                print(line_of(row), flush=True)
    if options.json:
        print(json.dumps({"rows": rows, "environment": asdict(models.get(work).environment)}))


if __name__ == "__main__":
    main()
