"""Runs a mistake beside the right loop: where the tokens diverge, how far the logits are off, what crashes."""

from collections.abc import Iterable
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field
from traceback import walk_tb
from typing import Any

import torch

from kvviz.decoding.read_cache import LiveTensors
from kvviz.decoding.scratch import mistakes
from kvviz.decoding.scratch.attention import Attention
from kvviz.decoding.scratch.listing import listing
from kvviz.decoding.scratch.mistakes import Choose, ForwardPass, Loop, right_without_cache
from kvviz.decoding.scratch.model import Transformer
from kvviz.decoding.scratch.pitfalls import Pitfall
from kvviz.device.multiply_adds import MultiplyAdds
from kvviz.models.text import Codec


@dataclass
class Lane:
    """The results of one loop.

    One entry per forward: `fed` (tokens), `shapes` (of the first layer's keys), `alive` (live tensor bytes of the run
    after it), `multiply_adds`. One entry per chosen token: `ids`, `text`, `deltas` (largest |difference| of its logits
    from the true ones).
    """

    ids: list[int] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    deltas: list[float] = field(default_factory=list)
    fed: list[int] = field(default_factory=list)
    shapes: list[list[int]] = field(default_factory=list)
    alive: list[int] = field(default_factory=list)
    multiply_adds: list[int] = field(default_factory=list)
    crash: dict[str, Any] | None = None


class Mistakes:
    """Makes mistakes in a decode of `new_tokens` tokens after `prompt` (1, T), beside the right loop; all greedily."""

    def __init__(self, model: Transformer, codec: Codec, prompt: torch.Tensor, *, new_tokens: int) -> None:
        self._model, self._codec, self._prompt, self._new_tokens = model, codec, prompt, new_tokens
        with torch.no_grad():
            passes = right_without_cache(model, prompt, _choose(None), new_tokens)
            self._truth = torch.cat([one.logits for one in passes if one.logits is not None])  # (N, vocabulary)
        self._right: dict[str, Lane] = {}  # by the loop's name

    def make(self, mistake: Pitfall) -> dict[str, Any]:
        """Run the loop with this mistake and the right one.

        The wrong loop runs twice: `wrong` is fed the true tokens, so that its logits can be compared with the true ones
        at every position; `alone` is fed its own tokens and shows what it would write.
        """
        decode = self._codec.decode
        with torch.no_grad():
            right = self._right.get(mistake.right) or self._run(getattr(mistakes, mistake.right))
        self._right[mistake.right] = right
        loop = getattr(mistakes, mistake.loop)
        with nullcontext() if mistake.shows == "memory" else torch.no_grad():
            wrong = self._run(loop)
            alone = _written(loop(self._model, self._prompt, _choose(None), self._new_tokens))
        ids = self._truth.argmax(-1).tolist()
        differ = (i for i, (one, other) in enumerate(zip(wrong.ids, ids, strict=False)) if one != other)
        return {
            "t": "mistake",
            "mistake": mistake.name,
            "prompt": [decode([token]) for token in self._prompt[0].tolist()],
            "first_difference": next(differ, None),
            "truth": [decode([token]) for token in ids],
            "right": asdict(right),
            "wrong": asdict(wrong),
            "alone": [decode([token]) for token in alone],
        }

    def _run(self, loop: Loop) -> Lane:
        """Run one loop, which is fed the true tokens, until it ends or a forward fails."""
        lane, model, truth = Lane(), self._model, self._truth
        made = LiveTensors([*model.parameters(), *model.buffers(), truth])
        passes = loop(model, self._prompt, _choose(truth), self._new_tokens)
        while True:
            with MultiplyAdds() as counter:
                try:
                    with made:
                        one = next(passes, None)
                except Exception as error:  # the page shows whatever a mistake raises
                    lane.crash = _crash(error, len(lane.fed))
                    return lane
            if one is None:
                return lane
            _note(lane, one, self._codec, truth)
            lane.alive.append(made.live_bytes(*([] if one.logits is None else [one.logits])))
            lane.multiply_adds.append(counter.done)


def _written(passes: Iterable[ForwardPass]) -> list[int]:
    """The tokens that a loop chooses until it ends or a forward fails."""
    ids = []
    with suppress(Exception):  # the same that ended the loop which was fed the true tokens
        for one in passes:
            if one.logits is not None:
                ids.append(int(one.logits[0].argmax()))
    return ids


def _choose(truth: torch.Tensor | None) -> Choose:
    """Choose the likeliest token of a step's own logits, or of the true ones."""

    def choose(index: int, logits: torch.Tensor) -> torch.Tensor:
        return (logits if truth is None else truth[index : index + 1]).argmax(-1, keepdim=True)

    return choose


def _note(lane: Lane, one: ForwardPass, codec: Codec, truth: torch.Tensor) -> None:
    lane.fed.append(one.read.shape[1])
    keys = one.caches[0].k if one.caches else None
    lane.shapes.append([] if keys is None else list(keys.shape))
    if one.logits is None:
        return
    index = len(lane.ids)
    lane.ids.append(int(one.logits[0].argmax()))
    lane.text.append(codec.decode([lane.ids[-1]]))
    lane.deltas.append((one.logits[0] - truth[index]).abs().max().item())


def _crash(error: Exception, number: int) -> dict[str, Any]:
    """Describe a crash: Python's error, the forward that raised it and, if inside attention, the stage."""
    lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code is Attention.forward.__code__]
    stage = next((each for each in listing().stages for line in lines if each.first <= line <= each.last), None)
    return {
        "forward": number,
        "type": type(error).__name__,
        "message": str(error).strip().splitlines()[0] if str(error).strip() else "",
        "stage": stage.name if stage else None,
        "line": stage.first if stage else None,
    }
