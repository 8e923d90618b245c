"""A comparison on the machine as it is, and the same beside a busy loop on each core: does the document say so?

    python -m bench.disturbed

It prints, for each mode, how many passes were clean, and how far the figure measured beside the loops is from the quiet
one. Either the figure is within 10%, or no pass was clean and the run says so.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NEAR = 0.1  # the figures of clean passes may differ by such a share


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keep so many processes busy inside `with`."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def measured(model: str) -> dict[str, Any]:
    """Return the document of a default comparison in a process of its own."""
    command = [sys.executable, "-m", "kvviz", "run", "--model", model, "--prompt-tokens", "64", "--json"]
    document: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return document


def main() -> None:
    """Print a line for each mode, or the rows as JSON; exit with 1 if a disturbed figure passes for a clean one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="mini-gpt2")
    parser.add_argument("--loops", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    quiet = measured(asked.model)
    with busy_loops(asked.loops):
        beside = measured(asked.model)
    rows = []
    for before, after in zip(quiet["runs"], beside["runs"], strict=True):
        off, clean = after["itl_s"] / before["itl_s"] - 1, after["passes"]["clean"]
        honest = not clean or abs(off) <= NEAR
        rows.append({"mode": after["mode"], "quiet_s": before["itl_s"], "beside_s": after["itl_s"], "off": off})
        rows[-1] |= {"quiet_passes": before["passes"], "passes": after["passes"], "honest": honest}
        if not asked.json:
            count = clean + after["passes"]["disturbed"]
            says = f"{clean} of {count} passes were clean" if clean else f"none of {count} passes was clean"
            print(
                f"{after['mode']:9} {1e3 * before['itl_s']:.3f} ms, beside the loops {1e3 * after['itl_s']:.3f} ms",
                end="",
            )
            print(f" ({off:+.0%}): {says}; {after['passes']['stopped_because']}")
    if asked.json:
        environments = {"environment": quiet["environment"], "busy": beside["environment"]["busy"]}
        print(json.dumps({**environments, "loops": asked.loops, "rows": rows}))
    sys.exit(0 if all(row["honest"] for row in rows) else 1)


if __name__ == "__main__":
    main()
