"""The first look: one clocked pass of all modes in turn, step by step, so that a viewer sees both curves grow together.

It is no part of the measurement: each step is clocked once, and no figure of the document is made of it. Tokens and
layers are read between the clocked steps; the equivalence check, which traces every tensor, comes after.
"""

from collections.abc import Iterator

from kvviz.decoding.loop import Step
from kvviz.decoding.read_cache import layer_states
from kvviz.device.clock import Timed, no_collection, synchroniser, timed
from kvviz.experiments.comparison.comparison_run import ComparisonRun
from kvviz.experiments.comparison.equivalence import EndOfText, grouped
from kvviz.experiments.comparison.records import FirstLook, LookedStep
from kvviz.models.text import TextStream


def first_look(run: ComparisonRun) -> Iterator[FirstLook]:
    """Take each step once in every mode, and yield one record per step: its seconds, its token and the cache."""
    lanes = {mode: _Lane(run, mode) for mode in run.work.modes}
    with no_collection():
        for index in range(run.work.new_tokens):
            seen: dict[str, LookedStep] = {}
            for mode, lane in lanes.items():
                run.check_stop()
                if (step := lane.advance()) is not None:
                    seen[mode] = step
            if not seen:
                return
            yield {"t": "first_look", "i": index, "modes": seen}


class _Lane:
    """One mode's pass: its clocked steps and its text so far."""

    def __init__(self, run: ComparisonRun, mode: str) -> None:
        self._steps: Iterator[Timed[Step]] = timed(run.decode(mode), synchroniser(run.loaded.device))
        self._codec = run.loaded.codec
        self._stream = TextStream(self._codec)
        self._kinds = tuple(layer.kind for layer in run.loaded.spec.layers)
        self._end = EndOfText(run.work, run.loaded)

    def advance(self) -> LookedStep | None:
        """Take one clocked step and read what it left; None if this mode's text has ended."""
        if self._end.reached:
            return None
        clocked = next(self._steps)
        ids = clocked.step.token_ids.tolist()
        self._end.note(ids)
        return {
            "s": round(clocked.seconds, 9),
            "ids": ids,
            "text": self._stream.push(ids[0]),
            "piece": self._codec.decode([ids[0]]),
            "layers": grouped(layer_states(clocked.step.cache, self._kinds)),
        }
