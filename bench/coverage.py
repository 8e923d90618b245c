"""How often a sequential comparison's 95% interval holds the true speed-up, on synthetic noise.

`python -m bench.coverage` draws the seconds of passes of two modes that take turns, as a run does, until their interval
is as narrow as asked for or there are as many passes as there may be. It prints, for each noise and each limit, how
often the interval held the speed-up that the noise was put on. Nothing is timed.
"""

import argparse
import json
import math
import random
from collections.abc import Callable, Iterator

from kvviz.experiments.comparison.enough import MOST, half_width, log_ratios, speedup_interval

TRUE = 4.0  # the speed-up
FIRST = 3  # passes of each mode that a run takes before it decides how many it needs
FEW = 6  # passes that a time used up early leaves

# Factors on the seconds of a pass, by a source of random numbers and by the seconds since the run began.
NOISES: dict[str, Callable[[random.Random, float], float]] = {
    "quiet": lambda draw, at: draw.lognormvariate(0, 0.004),
    "lognormal": lambda draw, at: draw.lognormvariate(0, 0.03),
    "wide": lambda draw, at: draw.lognormvariate(0, 0.15),
    "rare bursts": lambda draw, at: draw.lognormvariate(0, 0.01) * (1.5 if draw.random() < 0.05 else 1),
    "bursts": lambda draw, at: draw.lognormvariate(0, 0.01) * (2.5 if draw.random() < 0.25 else 1),
    "drift": lambda draw, at: draw.lognormvariate(0, 0.01) * (1 + 0.003 * at),
}


def measured(noise: str, seed: int, most: int, precision: float = 0.05) -> tuple[list[float], list[float]]:
    """Return the pass seconds of two modes in turn, A B, B A, ..., until their interval is as narrow as asked for."""
    draw, at = random.Random(seed), 0.0
    base, own = list[float](), list[float]()
    while len(own) < most:
        for mode in (base, own) if len(own) % 2 == 0 else (own, base):
            mode.append((TRUE if mode is base else 1.0) * NOISES[noise](draw, at))
            at += mode[-1]
        half = half_width(log_ratios(base, own), FIRST) if len(own) >= FIRST else None
        if half is not None and math.expm1(half) <= precision:
            break
    return base, own


def coverage(noise: str, most: int, draws: int) -> tuple[float, float]:
    """Return how often the interval of a run of at most `most` passes held the truth, and the mean number of passes."""
    inside = passes = 0
    for seed in range(draws):
        base, own = measured(noise, seed, most)
        low, high = speedup_interval(base, own, first=FIRST) or [math.nan, math.nan]
        inside += low <= TRUE <= high
        passes += len(own)
    return inside / draws, passes / draws


def rows(draws: int) -> Iterator[dict[str, object]]:
    """Yield a row for each noise, with the time for a few passes and for many."""
    for noise in NOISES:
        for most in (FEW, MOST):
            share, passes = coverage(noise, most, draws)
            yield {"noise": noise, "most": most, "draws": draws, "coverage": share, "passes": round(passes, 1)}


def main() -> None:
    """Print each row as it comes, as a line of text or as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    for row in rows(asked.draws):
        words = (
            "{noise:12} at most {most:2} passes, {passes:4} on average: {coverage:.1%} of {draws:,} intervals hold it"
        )
        print(json.dumps(row) if asked.json else words.format(**row), flush=True)


if __name__ == "__main__":
    main()
