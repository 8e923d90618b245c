"""Training loop: Muon and AdamW, warm-up and cosine decay, gradient clipping, checkpoints, held-out loss curve."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional
from tqdm import tqdm
from transformers import AttentionInterface, PreTrainedModel

from training.architectures import Spec

_EAGER_UP_TO = 512


@dataclass(frozen=True)
class Settings:
    """Hyperparameters of training; lengths and batch sizes are in tokens.

    ``emphasis`` times the mean loss of the tokens that answer a question is added to the mean loss of all.
    """

    steps: int
    seed: int = 1
    batch_tokens: int = 1024
    curve_length: int = 256
    rate: float = 3e-3
    matrix_rate: float = 6e-3
    floor: float = 0.03
    warmup: int = 100
    betas: tuple[float, float] = (0.9, 0.95)
    decay: float = 0.05
    clip: float = 1.0
    level: float = 0.7
    noise: float = 0.03
    emphasis: float = 0.0
    evaluate_every: int = 200
    save_seconds: float = 60.0
    bf16: bool = True


@dataclass
class State:
    """Progress of a run: steps done, CPU seconds so far, rows of (step, training loss, held-out loss)."""

    step: int = 0
    cpu_seconds: float = 0.0
    curve: list[tuple[int, float, float]] = field(default_factory=list)


def level_end(settings: Settings) -> int:
    """Step at which the learning rate starts to fall."""
    return round(settings.level * settings.steps)


def rate_at(step: int, settings: Settings) -> float:
    """Learning rate of a step: linear warm-up, constant until the share ``level`` of the steps, then cosine decay.

    The decay ends at ``floor`` times the peak rate.
    """
    if step < settings.warmup:
        return settings.rate * (step + 1) / settings.warmup
    start = max(settings.warmup, level_end(settings))
    done = max(0, step - start) / max(1, settings.steps - start)
    wave = 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    return settings.rate * (settings.floor + (1 - settings.floor) * wave)


def length_at(step: int, settings: Settings, spec: Spec) -> int:
    """Sequence length of a step: short sequences first, the full context last."""
    done = 0.0
    for share, length in spec.stages:
        done += share
        if step < round(done * settings.steps):
            return length
    return spec.stages[-1][1]


def batch_at(tokens: np.ndarray, step: int, length: int, settings: Settings) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets of a step, each (rows, length); after the last token the stream starts over.

    A sequence longer than ``batch_tokens`` also covers tokens of the next step.
    """
    size = max(settings.batch_tokens, length)
    start = (step * settings.batch_tokens) % (len(tokens) - size)
    piece = torch.from_numpy(tokens[start : start + size + 1].astype(np.int64))
    return piece[:-1].view(-1, length), piece[1:].view(-1, length)


def noisy(inputs: torch.Tensor, step: int, settings: Settings) -> torch.Tensor:
    """Replace a share ``noise`` of the input tokens (rows, length) by other tokens of the batch; separators stay.

    The targets stay unchanged, so the model learns to continue sensibly after unseen text instead of trusting what it
    has memorised. This is the neural counterpart of smoothing an n-gram model.
    """
    generator = torch.Generator().manual_seed(settings.seed * 2_000_003 + step)
    others = inputs.flatten()[torch.randint(0, inputs.numel(), inputs.shape, generator=generator)]
    hit = torch.rand(inputs.shape, generator=generator) < settings.noise
    return torch.where(hit & (inputs != 0) & (others != 0), others, inputs)


def positions_at(step: int, rows: int, length: int, settings: Settings, spec: Spec) -> torch.Tensor:
    """Position ids (rows, length) of a step.

    From the second stage on, each row of a model with learned positions starts at a random position, so that all
    positions are trained.
    """
    base = torch.arange(length).expand(rows, length)
    first = step < round(spec.stages[0][0] * settings.steps)
    if not spec.learned_positions or first or length == spec.context:
        return base
    generator = torch.Generator().manual_seed(settings.seed * 1_000_003 + step)
    return base + torch.randint(0, spec.context - length + 1, (rows, 1), generator=generator)


def _attention(module, query, key, value, mask, scaling=None, dropout=0.0, **_):
    """Causal attention; short sequences use plain bf16 products, twice as fast on a CPU as a fused kernel."""
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    if query.shape[2] > _EAGER_UP_TO or not torch.is_autocast_enabled("cpu"):
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling)
        return mixed.transpose(1, 2), None
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    future = torch.full(query.shape[2:3] * 2, float("-inf"), dtype=torch.bfloat16).triu(1)
    scores = (query.bfloat16() * scale) @ key.bfloat16().transpose(2, 3) + future
    return (scores.softmax(-1) @ value.bfloat16()).transpose(1, 2), None


AttentionInterface.register("training", _attention)


def losses_of(
    model: PreTrainedModel, inputs: torch.Tensor, targets: torch.Tensor, positions: torch.Tensor, bf16: bool
) -> torch.Tensor:
    """Cross-entropy in nats of each token, one row after another."""
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        logits = model(input_ids=inputs, position_ids=positions, use_cache=False).logits
    return functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="none")


@torch.no_grad()
def held_out_loss(model: PreTrainedModel, tokens: np.ndarray, length: int, bf16: bool) -> float:
    """Mean cross-entropy (nats per token) over the windows of a held-out stream."""
    rows = (len(tokens) - 1) // length
    inputs = torch.from_numpy(tokens[: rows * length].astype(np.int64)).view(rows, length)
    targets = torch.from_numpy(tokens[1 : rows * length + 1].astype(np.int64)).view(rows, length)
    positions = torch.arange(length).expand(1, length)
    windows = zip(inputs, targets, strict=True)
    return sum(losses_of(model, x[None], y[None], positions, bf16).mean().item() for x, y in windows) / rows


def optimizers_for(model: PreTrainedModel, settings: Settings) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for embeddings, positions, norms and biases.

    Muon halves the number of steps the matrices need. ``relative`` is a group's learning rate as a multiple of the
    schedule's.
    """
    tables = {id(part.weight) for part in model.modules() if isinstance(part, torch.nn.Embedding)}
    matrices, rest = [], []
    for weight in model.parameters():
        (matrices if weight.dim() == 2 and id(weight) not in tables else rest).append(weight)
    steer = torch.optim.Muon(
        [{"params": matrices, "relative": settings.matrix_rate / settings.rate}],
        lr=settings.matrix_rate,
        weight_decay=settings.decay,
        adjust_lr_fn="match_rms_adamw",
    )
    plain = torch.optim.AdamW(
        [{"params": rest, "relative": 1.0}], lr=settings.rate, betas=settings.betas, weight_decay=0.0, fused=True
    )
    return [steer, plain]


def save(path: Path, model: PreTrainedModel, optimizers: list[torch.optim.Optimizer], state: State) -> None:
    """Write a checkpoint of plain tensors and numbers; the old one stays until the new one is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    torch.save(
        {
            "model": model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in optimizers],
            "step": state.step,
            "cpu_seconds": state.cpu_seconds,
            "curve": [list(row) for row in state.curve],
        },
        fresh,
    )
    fresh.replace(path)


def restore(path: Path, model: PreTrainedModel, optimizers: list[torch.optim.Optimizer]) -> State:
    """Load the checkpoint if it exists; otherwise return a fresh state."""
    if not path.exists():
        return State()
    found = torch.load(path, weights_only=True)
    model.load_state_dict(found["model"])
    for optimizer, kept in zip(optimizers, found["optimizers"], strict=True):
        optimizer.load_state_dict(kept)
    return State(found["step"], found["cpu_seconds"], [tuple(row) for row in found["curve"]])


def step_once(
    model: PreTrainedModel,
    optimizers: list[torch.optim.Optimizer],
    tokens: np.ndarray,
    step: int,
    settings: Settings,
    spec: Spec,
    answers: np.ndarray | None = None,
) -> float:
    """Run one optimiser step; returns the training loss in nats per token, without the emphasis on ``answers``."""
    length = length_at(step, settings, spec)
    inputs, targets = batch_at(tokens, step, length, settings)
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        group["lr"] = group["relative"] * rate_at(step, settings)
    if step >= level_end(settings):
        inputs = noisy(inputs, step, settings)
    losses = losses_of(model, inputs, targets, positions_at(step, len(inputs), length, settings, spec), settings.bf16)
    loss = losses.mean()
    emphasised = loss
    if answers is not None:
        _, asked = batch_at(answers, step, length, settings)
        emphasised = loss + settings.emphasis * losses[asked.flatten() == 1].mean()
    emphasised.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return loss.item()


def train(
    model: PreTrainedModel,
    spec: Spec,
    settings: Settings,
    tokens: np.ndarray,
    held: np.ndarray,
    checkpoint: Path,
    stop_at: int | None = None,
    answers: np.ndarray | None = None,
) -> State:
    """Train to the end, or to step ``stop_at``; resumes from the checkpoint if it exists.

    ``answers`` tells for each token whether it answers a question.
    """
    optimizers = optimizers_for(model, settings)
    state = restore(checkpoint, model, optimizers)
    model.set_attn_implementation("training")
    model.train()
    clock = _Clock(state, settings.save_seconds)
    for step in _steps(state.step, min(settings.steps, stop_at or settings.steps), settings.steps, spec.name):
        loss = step_once(model, optimizers, tokens, step, settings, spec, answers)
        state.step = step + 1
        if state.step % settings.evaluate_every == 0 or state.step == settings.steps:
            state.curve.append((state.step, loss, held_out_loss(model, held, settings.curve_length, settings.bf16)))
            tqdm.write(f"{spec.name} step {state.step}: loss {loss:.4f}, held-out {state.curve[-1][2]:.4f}")
        if clock.due():
            save(checkpoint, model, optimizers, state)
    clock.due()
    save(checkpoint, model, optimizers, state)
    model.set_attn_implementation("sdpa")
    return state


def _steps(start: int, stop: int, total: int, name: str) -> Iterator[int]:
    yield from tqdm(range(start, stop), initial=start, total=total, desc=name, unit="step", mininterval=10)


class _Clock:
    """Adds CPU time to the state and says when the next checkpoint is due."""

    def __init__(self, state: State, every: float):
        self._state, self._every = state, every
        self._cpu, self._saved = time.process_time(), time.monotonic()

    def due(self) -> bool:
        now = time.process_time()
        self._state.cpu_seconds += now - self._cpu
        self._cpu = now
        if time.monotonic() - self._saved < self._every:
            return False
        self._saved = time.monotonic()
        return True
