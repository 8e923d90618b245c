"""Clocks the parts of speculation by themselves: drafting, and the forward that verifies. No timed pass sees them.

The expected speed-up (`speculated.py`) is made of these seconds and of the proposals' counts, the measured one of the
timed passes, so neither knows the other.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median

import torch

from kvviz.decoding.loop import chooser, opened
from kvviz.decoding.modes import mode_named
from kvviz.decoding.speculation import SpeculativeForward
from kvviz.device.clock import no_collection, synchroniser, timed
from kvviz.experiments.comparison.comparison_run import ComparisonRun
from kvviz.experiments.comparison.records import Parts, Verified

ROUNDS = 4  # of both series in turn, so that a disturbance of some milliseconds strikes both or none
TIMES = 6  # of each part in a round
WARMUP = 2  # of these that are not counted
RARE = 0.05  # of the forwards: numbers of proposals that come less often are left out
Turn = tuple[int, str]  # for so many proposals, this part


def clock_parts(run: ComparisonRun) -> None:
    """Fill `run.parts` for each mode that speculates: the usual step, and a row for each number of proposals."""
    for mode in run.work.modes:
        if mode_named(mode).speculates:
            with no_collection(), torch.inference_mode():
                run.parts[mode] = _parts(run, mode)


def _parts(run: ComparisonRun, mode: str) -> Parts:
    """Clock the parts in the middle of the text, on a cache of their own.

    The last forwards are not counted, since they have no room for as many proposals as the draft makes, nor are rare
    numbers of proposals.
    """
    proposed, all_new = run.checked[mode].proposed, run.work.new_tokens
    draft = run.draft.model if run.draft else None
    forward = opened(run.loaded.model, mode, run.prompt_tokens + all_new, draft=draft)
    assert isinstance(forward, SpeculativeForward)
    with_room = range(1, min(len(proposed), all_new - forward.draft.most))
    counts = Counter(len(found) for found in map(proposed.__getitem__, with_room) if found is not None)
    if not counts:
        return {"usual_s": None, "verified": None}
    forward.choosing(chooser(run.work.sampling))
    written = torch.tensor([[row[0] for row in run.checked[mode].tokens]], device=run.prompt.device)
    ids = torch.cat([run.prompt, written[:, : with_room[len(with_room) // 2]]], dim=1)
    forward.verify(ids[:, :-1], 0, ())
    often = sorted(count for count, forwards in counts.items() if forwards >= RARE * counts.total())
    seconds: dict[Turn, list[float]] = {}
    for _ in range(ROUNDS):
        for turns in (_alone(forward, ids), _turns(forward, ids, often)):
            for turn, found in _clocked(run, turns).items():
                seconds.setdefault(turn, []).extend(found[WARMUP:])
    kept = {turn: median(found) for turn, found in seconds.items()}
    rows: list[Verified] = [
        {
            "proposals": count,
            "forwards": counts[count],
            "draft_s": kept[count, "draft"],
            "forward_s": kept[count, "crop"] + kept[count, "verify"],
        }
        for count in often
    ]
    return {"usual_s": kept[0, "alone"], "verified": rows}


def _clocked(run: ComparisonRun, turns: Iterator[Turn]) -> dict[Turn, list[float]]:
    seconds: dict[Turn, list[float]] = {}
    for clocked in timed(turns, synchroniser(run.loaded.device)):
        run.check_stop()
        seconds.setdefault(clocked.step, []).append(clocked.seconds)
    return seconds


def _alone(forward: SpeculativeForward, ids: torch.Tensor) -> Iterator[Turn]:
    """Read one token again and again, as the mode `cached` does, with no draft between."""
    for _ in range(TIMES):
        forward.crop(ids.shape[1] - 1)
        yield 0, "cropped"
        forward.verify(ids[:, -1:], ids.shape[1] - 1, ())
        yield 0, "alone"


def _turns(forward: SpeculativeForward, ids: torch.Tensor, counts: Sequence[int]) -> Iterator[Turn]:
    """Take turns at cropping, drafting and verifying, so that each finds the processor's caches as in a real run."""
    seen, newest = ids.shape[1] - 1, ids[:, -1:]
    for _ in range(TIMES):
        for count in counts:
            forward.crop(seen)
            yield count, "crop"
            forward.propose(ids, count)
            yield count, "draft"
            forward.verify(newest, seen, newest[0].tolist() * count)  # which tokens they are changes no time
            yield count, "verify"
