"""What evicting costs: a decode step that watches, scores and evicts against one with a plain cache of that length.

All take turns, step by step. On a processor, on one thread, in CPU time (`time.thread_time`), so that other work on the
machine counts little; on a GPU by the clock, the device synchronised on both sides. `share` is the difference of the
medians as a part of a decode step with all tokens. Designs that evict several tokens at once have two steps that cost
more than the others, once in so many: that after which the cache is full (`scoring_share`; Expected Attention and KVzip
work their scores out there), and the next one, in which the last tokens take the slots of those that leave
(`moving_share`). The prompt's random tokens end 65 short of 1,024; a budget of 25% is 256 tokens. Random weights do:
time does not depend on them.

    python bench/evictions.py --json
    python bench/evictions.py --device cuda --json
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
from kvviz.caches.evicting import Evicting
from kvviz.caches.hf_layer import DesignCache
from kvviz.decoding.loaded_models import LoadedModels
from kvviz.decoding.modes import Forward, reading_new_tokens
from kvviz.device.clock import no_collection, synchroniser
from kvviz.experiments.comparison.spec import ComparisonSpec

WHOLE, PLAIN = "all tokens", "as many tokens, none evicted"
STEPS = 64
# KVzip reads the text again behind itself, so it takes half of the tokens: `--designs kvzip --tokens 512`.
DEFAULT = [name for name, design in DESIGNS.items() if design.extra and not design.reads]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document (it always does)")
    parser.add_argument("--model", default="gpt2")
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--budget", default="25%")
    parser.add_argument("--designs", default=",".join(DEFAULT))
    parser.add_argument("--device", default="cpu", help="cpu, or cuda")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    loaded = LoadedModels().get(ComparisonSpec(model=asked.model, prompt="x", device=asked.device))
    on_processor, wait = loaded.device == "cpu", synchroniser(loaded.device)
    clock = time.thread_time if on_processor else time.perf_counter
    budget, vocabulary = tokens_of(asked.budget, asked.tokens), loaded.spec.vocab_size or 1000
    if not STEPS // 2 < budget < asked.tokens - STEPS:
        parser.error(f"{STEPS} steps need more than {asked.tokens} tokens: a budget of {budget} evicts nothing")
    ids = torch.randint(0, vocabulary, (1, asked.tokens), generator=torch.Generator().manual_seed(0))
    ids = ids.to(loaded.device)

    def opened(design: str, prompt: int) -> tuple[Forward, int]:
        cache = DesignCache(DESIGNS[design].at(budget), loaded.model.config, capacity=asked.tokens)
        note = cache.note if DESIGNS[design].reads else None
        forward = reading_new_tokens(loaded.model, cache, note, cache.watching(loaded.model))
        forward(ids[:, :prompt], ids[:, :prompt])
        return forward, prompt

    with torch.inference_mode(), no_collection():
        before = asked.tokens - STEPS
        running = {name: opened(name, before) for name in asked.designs.split(",")}
        running |= {WHOLE: opened("prealloc", before), PLAIN: opened("prealloc", budget - STEPS // 2)}
        seconds, scoring, moving = ({name: list[float]() for name in running} for _ in range(3))
        for step in range(STEPS):
            for name, (forward, prompt) in running.items():
                seen = ids[:, : prompt + step + 1]
                wait()
                start = clock()
                _, cache = forward(seen, seen[:, -1:])
                wait()
                seconds[name].append(clock() - start)
                assert isinstance(cache, DesignCache)
                own = cache.own[0]
                if own.copied > own.step_bytes:
                    moving[name].append(seconds[name][-1])
                elif isinstance(own, Evicting) and own.at_once > 1 and own.held == own.budget:
                    scoring[name].append(seconds[name][-1])
    medians = {name: statistics.median(spent) for name, spent in seconds.items()}

    def share(spent: list[float]) -> float | None:
        return (statistics.median(spent) - medians[PLAIN]) / medians[WHOLE] if spent else None

    rows = [
        {
            "design": name,
            "step_s": medians[name],
            "share": share(seconds[name]),
            "scoring_share": share(scoring[name]),
            "moving_share": share(moving[name]),
        }
        for name in asked.designs.split(",")
    ]
    sizes = {
        "model": asked.model,
        "tokens": asked.tokens,
        "budget": budget,
        "steps": STEPS,
        "seconds": "CPU time" if on_processor else "synchronised",
    }
    plain = {"whole_step_s": medians[WHOLE], "plain_step_s": medians[PLAIN]}
    print(json.dumps({**sizes, **plain, "rows": rows, "environment": asdict(loaded.environment)}))


if __name__ == "__main__":
    main()
