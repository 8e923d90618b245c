"""The first look: one clocked pass of all modes in turn, step by step, so that a viewer sees both curves grow together.

It is no part of the measurement: each step is clocked once, and no figure of the document is made of it. Tokens and
layers are read between the clocked steps; the equivalence check, which traces every tensor, comes after.
"""

from collections.abc import Iterator

from kvviz.decoding.loop import Step
from kvviz.device.clock import Timed, no_collection
from kvviz.experiments.comparison.comparison_run import ComparisonRun
from kvviz.experiments.comparison.equivalence import Reading, grouped
from kvviz.experiments.comparison.records import FirstLook, LookedStep


def first_look(run: ComparisonRun) -> Iterator[FirstLook]:
    """Take each step once in every mode, and yield one record per step: its seconds, its token and the cache."""
    lanes = {mode: (Reading(run, mode), run.clocked(mode)) for mode in run.work.modes}
    with no_collection():
        for index in range(run.work.new_tokens):
            seen: dict[str, LookedStep] = {}
            for mode, (reading, steps) in lanes.items():
                run.check_stop()
                if not reading.ended and (clocked := next(steps, None)) is not None:
                    seen[mode] = _looked(reading, clocked)
            if not seen:
                return
            yield {"t": "first_look", "i": index, "modes": seen}


def _looked(reading: Reading, clocked: Timed[Step]) -> LookedStep:
    reading.read(clocked.step)
    record: LookedStep = {
        "s": round(clocked.seconds, 9),
        "ids": reading.ids,
        "text": reading.text,
        "piece": reading.piece,
        "layers": grouped(reading.layers),
    }
    reading.tell(record)
    return record
