"""Runs a mistake beside the right loop: where the tokens diverge, how far the logits are off, what crashes."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from kvviz.decoding.read_cache import LiveTensors
from kvviz.decoding.scratch import mistakes
from kvviz.decoding.scratch.listing import listing
from kvviz.decoding.scratch.mistakes import Choose, ForwardPass, Loop, right_without_cache
from kvviz.decoding.scratch.model import Transformer
from kvviz.decoding.scratch.observe import observed
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


def make_mistake(
    model: Transformer, codec: Codec, prompt: torch.Tensor, *, new_tokens: int, mistake: Pitfall
) -> dict[str, Any]:
    """Run the wrong loop and the right one greedily after `prompt` (1, T), for `new_tokens` tokens each.

    The wrong loop runs twice: `wrong` is fed the true tokens, so that its logits can be compared with the true ones
    at every position; `alone` is fed its own tokens and shows what it would write.
    """
    with torch.no_grad():
        passes = right_without_cache(model, prompt, _choose(None), new_tokens)
        truth = torch.cat([one.logits for one in passes if one.logits is not None])  # (N, vocabulary)
        right = _run(model, codec, prompt, new_tokens, getattr(mistakes, mistake.right), truth, forced=True)
    loop = getattr(mistakes, mistake.loop)
    with nullcontext() if mistake.shows == "memory" else torch.no_grad():
        wrong = _run(model, codec, prompt, new_tokens, loop, truth, forced=True)
        alone = _run(model, codec, prompt, new_tokens, loop, truth, forced=False)
    ids = truth.argmax(-1).tolist()
    differ = (i for i, (one, other) in enumerate(zip(wrong.ids, ids, strict=False)) if one != other)
    return {
        "t": "mistake",
        "mistake": mistake.name,
        "prompt": [codec.decode([token]) for token in prompt[0].tolist()],
        "first_difference": next(differ, None),
        "truth": [codec.decode([token]) for token in ids],
        "right": asdict(right),
        "wrong": asdict(wrong),
        "alone": alone.text,
    }


def _run(
    model: Transformer,
    codec: Codec,
    prompt: torch.Tensor,
    new_tokens: int,
    loop: Loop,
    truth: torch.Tensor,
    *,
    forced: bool,
) -> Lane:
    """Run one loop until it ends or a forward fails."""
    lane = Lane()
    made = LiveTensors([*model.parameters(), *model.buffers()])
    passes = loop(model, prompt, _choose(truth if forced else None), new_tokens)
    while True:
        with observed(model, [0]) as seen, MultiplyAdds() as counter:
            try:
                with made:
                    one = next(passes, None)
            except Exception as error:  # the page shows whatever a mistake raises
                lane.crash = _crash(error, len(lane.fed), seen)
                return lane
        if one is None:
            return lane
        _note(lane, one, codec, truth)
        lane.alive.append(made.live_bytes(*([] if one.logits is None else [one.logits])))
        lane.multiply_adds.append(counter.done)


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


def _crash(error: Exception, number: int, seen: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Describe a crash: Python's error, the forward that raised it and, if inside attention, the stage."""
    done = list(seen.get(0, {}))
    following: Iterator[Any] = (stage for stage in listing().stages if stage.name not in done)
    stage = next(following, None) if done else None
    return {
        "forward": number,
        "type": type(error).__name__,
        "message": str(error).strip().splitlines()[0] if str(error).strip() else "",
        "stage": stage.name if stage else None,
        "line": stage.first if stage else None,
    }
