"""Reads a text with designs that evict, and keeps which token each KV head let go of when, and what it lost by it.

The attention that is lost is that of the full cache: a forward over the whole text keeps the weights of every query,
and those that fall on tokens which a design had evicted by then are added up. Nothing here is timed.
"""

import base64
import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import torch

from kvviz.base.errors import KvvizError
from kvviz.caches.base import KVCache
from kvviz.caches.designs import DESIGNS, Design, tokens_of
from kvviz.caches.evicting import Evicting
from kvviz.caches.hf_layer import DesignCache
from kvviz.caches.ring import Ring
from kvviz.decoding.loading import Loaded
from kvviz.decoding.modes import check_modes, reading_new_tokens
from kvviz.experiments.comparison.comparison_run import look
from kvviz.experiments.forgetting.spec import ForgettingSpec
from kvviz.experiments.kind import Bench, Record
from kvviz.models.catalog.rows import heldout

MOMENTS = 48  # at most so many times the scores of all tokens are noted
ABSENT = 255  # in place of a score from 0 to 254: the token is not there


class Whole(Evicting):
    """Evicts nothing and keeps the weights of every query: `rows`, (B, Hkv, T, S) each."""

    def observe(self, weights: torch.Tensor, *, after: int) -> None:
        if self.seen == weights.shape[3] + after:
            self.rows = [*getattr(self, "rows", []), self.by_head(weights.float()).cpu()]


def run(spec: ForgettingSpec, bench: Bench) -> Iterator[Record]:
    """Yield a record that names the device, the progress, and the document.

    Raises KvvizError for a model that a design does not support, and Stopped if it was asked to stop.
    """
    loaded = bench.load(spec.work())
    check_modes(spec.designs, loaded.source.config, loaded.device)
    yield look(spec, loaded)
    limit = min(spec.tokens, loaded.spec.context or spec.tokens)
    ids = torch.tensor([loaded.codec.encode(heldout())[:limit]], device=loaded.device)
    reference, weights, whole_bytes = _with_everything(loaded, ids)
    runs, of = list[dict[str, Any]](), len(spec.designs) * len(spec.budgets) * ids.shape[1]
    for name in spec.designs:
        budgets = dict[str, dict[str, Any]]()
        for said in spec.budgets:
            design = DESIGNS[name].at(tokens_of(said, ids.shape[1]), pyramid=ids.shape[1] * spec.pyramid)
            reading = Reading(loaded, design, ids, weights if said == spec.budget else {})
            for step in range(ids.shape[1]):
                bench.check_stop()
                reading.step(step, reference[step])
                if step % 16 == 15:
                    done = (len(runs) * len(spec.budgets) + len(budgets)) * ids.shape[1] + step + 1
                    yield {"t": "part", "done": done, "of": of, "title": design.title, "budget": said}
            budgets[said] = {"tokens": design.budget, **reading.quality()}
            if said == spec.budget:
                seen = reading.forgotten()
        scored = DESIGNS[name].extra > 0
        runs.append({"mode": name, "title": DESIGNS[name].title, "scored": scored, "budgets": budgets, **seen})
    document = {
        "spec": spec.to_dict(),
        "title": loaded.source.title,
        "weights": loaded.source.weights,
        "note": loaded.note,
        "params": loaded.params,
        "environment": asdict(loaded.environment),
        "budget": spec.budget,
        "pieces": [loaded.codec.decode([i]) for i in ids[0].tolist()],
        "whole_bytes": whole_bytes,
        "perplexity": _perplexity([-reference[i, ids[0, i + 1]].item() for i in range(ids.shape[1] - 1)]),
        "runs": runs,
    }
    yield {"t": "done", "document": document}


def _perplexity(surprise: list[float]) -> float:
    return math.exp(sum(surprise) / max(1, len(surprise)))


@torch.inference_mode()
def _with_everything(loaded: Loaded, ids: torch.Tensor) -> tuple[torch.Tensor, dict[int, torch.Tensor], int]:
    """One forward with a cache that keeps all tokens.

    Returns the logarithms of the probabilities (T, vocabulary), the weights of attention (Hkv, T, T) of each layer, and
    the bytes of keys and values.
    """
    every = DESIGNS["h2o"].at(max(8, ids.shape[1]))
    cache = DesignCache(replace(every, cls=f"{__name__}:{Whole.__name__}"), loaded.model.config)
    with cache.watching(loaded.model)():
        logits = loaded.model(input_ids=ids, past_key_values=cache, use_cache=True).logits[0]
    if not torch.isfinite(logits).all():
        raise KvvizError("the logits of this text are not finite; take float32 or bfloat16")
    weights = dict[int, torch.Tensor]()
    for own in cache.own:
        assert isinstance(own, Whole)
        kept = torch.zeros(own.positions.shape[1], ids.shape[1], ids.shape[1])
        first = 0
        for rows in own.rows:
            kept[:, first : first + rows.shape[2], : rows.shape[3]] = rows[0]
            first += rows.shape[2]
        weights[own.number] = kept
    nbytes = sum(own.nbytes - own.beside_bytes for own in cache.own)
    return logits.cpu().double().log_softmax(-1), weights, nbytes


class Reading:
    """One design as it reads the text; with `weights` of the full cache it notes what is kept, scored and lost."""

    def __init__(self, loaded: Loaded, design: Design, ids: torch.Tensor, weights: dict[int, torch.Tensor]) -> None:
        self._ids, self._weights = ids, weights
        self._cache = DesignCache(design, loaded.model.config, capacity=ids.shape[1])
        watch = self._cache.watching(loaded.model)
        self._forward = reading_new_tokens(loaded.model, self._cache, self._cache.note if design.reads else None, watch)
        self._kl, self._surprise = list[float](), list[float]()
        length = ids.shape[1]
        self._gone: list[torch.Tensor] = []  # of each layer, (Hkv, T): the step in which a token went, T if never
        self._moments = sorted({round((i + 1) * length / MOMENTS) - 1 for i in range(MOMENTS)} - {-1})
        self._history: list[list[list[int]]] = []  # of each moment and layer, a number for each token

    def step(self, step: int, reference: torch.Tensor) -> None:
        """Read one token; `reference` (vocabulary,) are the logarithms of what the full cache predicts after it."""
        with torch.inference_mode():
            logits, _ = self._forward(self._ids[:, : step + 1], self._ids[:, step : step + 1])
        logs = logits[0].cpu().double().log_softmax(-1)
        self._kl.append(max(0.0, (reference.exp() * (reference - logs)).sum().item()))
        if step + 1 < self._ids.shape[1]:
            self._surprise.append(-logs[self._ids[0, step + 1]].item())
        if self._weights:
            self._note(step)

    def quality(self) -> dict[str, Any]:
        """KL(full cache || this) after each token in nats, perplexity, and the bytes held at the end."""
        nbytes = sum(own.nbytes for own in self._cache.own)
        return {"kl": self._kl, "perplexity": _perplexity(self._surprise), "nbytes": nbytes}

    def forgotten(self) -> dict[str, Any]:
        """What a map shows: `gone`, 16-bit numbers (layers, Hkv, T), the step in which a token was evicted, T if never.

        `history` are 8-bit numbers (moments, layers, T), a token's score as a share of the layer's highest, 0 to 254,
        as a mean over the heads that keep it; and `lost`, for each layer, the share of each query's attention that a
        full cache gives to tokens which were gone by then, as a mean over heads.
        """
        lost, at = [], torch.arange(self._ids.shape[1])[None, :, None]
        for own, gone in zip(self._cache.own, self._gone, strict=True):
            share = (self._weights[own.number] * (gone[:, None, :] <= at)).sum(-1).mean(0)
            lost.append([round(value, 4) for value in share.tolist()])
        return {
            "layers": [index for index, layer in enumerate(self._cache.layers) if hasattr(layer, "own")],
            "heads": self._gone[0].shape[0],
            "gone": _packed(torch.stack(self._gone).to(torch.int16)),
            "moments": self._moments,
            "history": _packed(torch.tensor(self._history, dtype=torch.uint8)),
            "lost": lost,
        }

    def _note(self, step: int) -> None:
        length, moment = self._ids.shape[1], list[list[int]]()
        if not self._gone:
            self._gone = [torch.full((_heads(own), length), length) for own in self._cache.own]
        for own, gone in zip(self._cache.own, self._gone, strict=True):
            positions, scores = _kept(own)  # (Hkv, held)
            there = torch.zeros(gone.shape, dtype=torch.bool).scatter_(1, positions, True)
            gone[(gone == length) & ~there & (torch.arange(length) <= step)] = step
            if step in self._moments:
                share = torch.zeros(gone.shape).scatter_(1, positions, scores / scores.max().clamp(min=1e-9))
                count = there.sum(0)
                mean = (share.sum(0) / count.clamp(min=1) * (ABSENT - 1)).round()
                moment.append(torch.where(count > 0, mean, ABSENT).int().tolist())
        if step in self._moments:
            self._history.append(moment)


def _heads(own: KVCache) -> int:
    assert own.shape is not None
    return own.shape[1]


def _kept(own: KVCache) -> tuple[torch.Tensor, torch.Tensor]:
    """The positions and the scores of the tokens that a layer keeps, (Hkv, held) each; a window scores all alike."""
    if isinstance(own, Ring):
        positions = torch.tensor(own.positions()).expand(_heads(own), -1)
        return positions, torch.ones(positions.shape)
    assert isinstance(own, Evicting)
    return own.positions[0, :, : own.held].long().cpu(), own.scores[0, :, : own.held].cpu()


def _packed(numbers: torch.Tensor) -> str:
    return base64.b64encode(numbers.contiguous().numpy().tobytes()).decode()
