"""What evicting costs: a decode step that watches, scores and evicts against one with a plain cache of that length.

All take turns, step by step, on one thread, in CPU time (`time.thread_time`), so that other work on the machine counts
little. `share` is the difference of the medians as a part of a decode step with all tokens. The prompt's random tokens
end 65 short of 1,024; a budget of 25 % is 256 tokens. Random weights do: time does not depend on them.

    python bench/evictions.py --json
"""

import argparse
import json
import statistics
import time
from dataclasses import asdict

if not __package__:
    import checkout  # noqa: F401

import torch

from kvviz.caches.designs import DESIGNS, tokens_of
from kvviz.caches.hf_layer import DesignCache
from kvviz.decoding.loaded_models import LoadedModels
from kvviz.decoding.modes import Forward, reading_new_tokens
from kvviz.device.clock import no_collection
from kvviz.experiments.comparison.spec import ComparisonSpec

WHOLE, PLAIN = "all tokens", "as many tokens, none evicted"
STEPS = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document (it always does)")
    parser.add_argument("--model", default="gpt2")
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--budget", default="25%")
    parser.add_argument("--designs", default=",".join(name for name, design in DESIGNS.items() if design.extra))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    loaded = LoadedModels().get(ComparisonSpec(model=asked.model, prompt="x"))
    budget = tokens_of(asked.budget, asked.tokens)
    ids = torch.randint(0, 1000, (1, asked.tokens), generator=torch.Generator().manual_seed(0))

    def opened(design: str, prompt: int) -> tuple[Forward, int]:
        cache = DesignCache(DESIGNS[design].at(budget), loaded.model.config, capacity=asked.tokens)
        forward = reading_new_tokens(loaded.model, cache, watch=cache.watching(loaded.model))
        forward(ids[:, :prompt], ids[:, :prompt])
        return forward, prompt

    with torch.inference_mode(), no_collection():
        before = asked.tokens - STEPS
        running = {name: opened(name, before) for name in asked.designs.split(",")}
        running |= {WHOLE: opened("prealloc", before), PLAIN: opened("prealloc", budget - STEPS // 2)}
        seconds, moving = ({name: list[float]() for name in running} for _ in range(2))
        for step in range(STEPS):
            for name, (forward, prompt) in running.items():
                seen = ids[:, : prompt + step + 1]
                start = time.thread_time()
                _, cache = forward(seen, seen[:, -1:])
                seconds[name].append(time.thread_time() - start)
                assert isinstance(cache, DesignCache)
                if cache.own[0].copied > cache.own[0].step_bytes:
                    moving[name].append(seconds[name][-1])
    medians = {name: statistics.median(spent) for name, spent in seconds.items()}
    rows = [
        {
            "design": name,
            "step_cpu_s": medians[name],
            "share": (medians[name] - medians[PLAIN]) / medians[WHOLE],
            # of those steps alone that move all that stays, as a design does that evicts several tokens at once
            "moving_share": (statistics.median(moving[name]) - medians[PLAIN]) / medians[WHOLE]
            if moving[name]
            else None,
        }
        for name in asked.designs.split(",")
    ]
    sizes = {"model": asked.model, "tokens": asked.tokens, "budget": budget, "steps": STEPS}
    plain = {"whole_step_cpu_s": medians[WHOLE], "plain_step_cpu_s": medians[PLAIN]}
    print(json.dumps({**sizes, **plain, "rows": rows, "environment": asdict(loaded.environment)}))


if __name__ == "__main__":
    main()
