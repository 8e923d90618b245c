"""Write kvviz/experiments/batching/sample_trace.csv: requests drawn from a seed, in the columns of Azure's traces.

Run `python -m tools.sample_trace`. No row comes from a real service.
"""

import csv
from datetime import datetime, timedelta
from pathlib import Path

from kvviz.experiments.batching.trace import COLUMNS, SAMPLE, draw_trace

START = datetime(2026, 1, 1, 12)
DRAWN = {"requests": 96, "rate": 24.0, "longest": 512, "seed": 1}


def write(path: Path = SAMPLE) -> None:
    """Write the sample."""
    trace = draw_trace(**DRAWN)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for at, prompt, answer in zip(trace.arrivals_s, trace.prompts, trace.answers, strict=True):
            writer.writerow(((START + timedelta(seconds=at)).isoformat(" ", "microseconds"), prompt, answer))


if __name__ == "__main__":
    write()
