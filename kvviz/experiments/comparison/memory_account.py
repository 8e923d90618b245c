"""Counts the bytes of a mode's cache after the last step in three ways: formula, tensors and allocator. Untimed.

The three counts are independent of each other. If they differ, a sentence explains why.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import cast

import torch

from kvviz.base.records import SPLIT, LayerState
from kvviz.caches.formula import kept_bytes, reasons
from kvviz.decoding.loop import Step
from kvviz.decoding.modes import mode_named
from kvviz.decoding.read_cache import layer_states
from kvviz.device.allocator import Account, begin_peak, can_account, kept_by
from kvviz.experiments.comparison.comparison_run import ComparisonRun
from kvviz.experiments.comparison.equivalence import grouped
from kvviz.experiments.comparison.records import Memory, MemoryAccount
from kvviz.memory.formula import DTYPE_BYTES


def account_memory(run: ComparisonRun) -> Iterator[Memory]:
    """Fill `run.memory` and yield one record per mode."""
    for mode in run.work.modes:
        if mode_named(mode).elsewhere:
            continue  # what a server keeps is its own secret
        run.check_stop()
        allocator, own = _allocator_account(run, mode)
        rows = run.checked[mode].layers[-1]
        figures = {
            "formula": _formula_bytes(run, mode),
            "tensors": sum(row.nbytes for row in rows),
            "storages": sum(row.allocated for row in rows),
        }
        known = run.mode(mode).account
        steps = [] if known.formula else _formula_words(rows, run.loaded.dtype, figures["formula"])
        where = SPLIT if run.loaded.is_split else run.loaded.device
        differences = reasons(known, figures, allocator.kept if allocator else None, where, own)
        run.memory[mode] = cast(
            MemoryAccount,
            {**figures, "allocator": asdict(allocator) if allocator else None, "reasons": [*steps, *differences]},
        )
        yield {"t": "memory", "mode": mode, **run.memory[mode]}


def _formula_bytes(run: ComparisonRun, mode: str) -> int:
    """Compute from the spec the bytes that the mode holds after its last step: all tokens but the newest were fed."""
    if not mode_named(mode).caches:
        return 0
    fed = run.prompt_tokens + len(run.checked[mode].tokens) - 1
    return kept_bytes(run.mode(mode).account, run.loaded.spec, fed, run.work.batch, run.loaded.dtype)


def _allocator_account(run: ComparisonRun, mode: str) -> tuple[Account | None, int | None]:
    """Ask the device's allocator for the bytes that a mode keeps at the end, and for its peak.

    The second value is the bytes of the storages of the cache that the allocator counted; None without decode steps.

    Measuring every step would take longer than the run itself, so two steps stand for all of them. The kept bytes are
    counted over a prefill of all fed tokens but the last and one decode step; the peak is the higher of the prompt's
    prefill and that last step.
    """
    device, tokens = run.loaded.device, run.checked[mode].tokens
    if run.loaded.is_split or not can_account(device):
        return None, None
    fed = run.text(mode, len(tokens) - 1)

    def prefill(ids: torch.Tensor) -> Account:
        return kept_by(lambda: _cache_after(run, run.decode(mode, steps=1, prompt=ids), 1), device)

    if not mode_named(mode).caches or len(tokens) == 1:
        return prefill(fed), None
    caches = list[object]()

    def last_step() -> None:
        steps = run.decode(mode, steps=2, prompt=fed[:, :-1])
        _cache_after(run, steps, 1)
        begin_peak(device)
        caches.append(_cache_after(run, steps, 1))

    last = kept_by(last_step, device)
    return replace(last, peak=max(prefill(run.prompt).peak, last.peak)), _allocated(caches.pop())


def _allocated(cache: object) -> int:
    return sum(row.allocated for row in layer_states(cache))


def _cache_after(run: ComparisonRun, steps: Iterator[Step], count: int) -> object:
    """Return the cache after `count` more steps. Raises Stopped after the current step if the run was asked to stop."""
    cache = None
    for step in itertools.islice(steps, count):
        cache = step.cache
        run.check_stop()
    return cache


def _formula_words(rows: Sequence[LayerState], dtype: str, total: int) -> list[str]:
    """Write the formula out in numbers, one term per group of equal layers, and the states as they are.

    Return [] for a mode without a cache, and for a cache whose terms do not make up the total.
    """
    groups = [(group, group["key_shape"]) for group in grouped(rows)]
    terms = [
        f"{len(group['indices'])} layers × {keys[0]} × {keys[1]} KV heads × {keys[2]} tokens × "
        f"({keys[3]} + {group['value_shape'][3]}) × {DTYPE_BYTES[dtype]} B"
        for group, keys in groups
        if len(keys) == len(group["value_shape"]) == 4
    ]
    states = sum(row.state_bytes for row in rows)
    whole = states + sum(
        len(group["indices"]) * math.prod(keys[:3]) * (keys[3] + group["value_shape"][3]) * DTYPE_BYTES[dtype]
        for group, keys in groups
        if len(keys) == len(group["value_shape"]) == 4
    )
    if not terms or whole != total:
        return []
    rule = "layers × sequences × KV heads × tokens held × (K dim + V dim) × bytes" + " + states" * bool(states)
    return [f"{rule}: {' + '.join([*terms, *([f'{states:,} B of states'] if states else [])])} = {total:,} B"]
