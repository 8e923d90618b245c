"""Runs a sweep as a generator of plain records; `kvviz.experiments.sweep` says in which order, and why."""

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from kvviz.base.errors import KvvizError, Stopped
from kvviz.base.records import Environment
from kvviz.base.words import lasting
from kvviz.decoding.loaded_models import tidy
from kvviz.decoding.loop import check_context
from kvviz.device.clock import no_collection, synchroniser, timed
from kvviz.device.disturbance import Watch
from kvviz.device.environment import environment_for, pick_device
from kvviz.device.measure_ceilings import measure_rates
from kvviz.device.memory import device_memory, is_device_lost, is_out_of_memory, out_of_memory, unexpected
from kvviz.experiments.comparison.comparison_run import ComparisonRun, encode_prompt
from kvviz.experiments.comparison.equivalence import check_equivalence
from kvviz.experiments.comparison.memory_account import account_memory
from kvviz.experiments.kind import Bench
from kvviz.experiments.sweep.journal import ModeProof, usable
from kvviz.experiments.sweep.pace import Key, Pace, guess, missing, tokens_fed
from kvviz.experiments.sweep.plan import groups, visits, within
from kvviz.experiments.sweep.rows import document
from kvviz.experiments.sweep.spec import Cell, SweepSpec, cells, find_sources

SEND_EVERY = 0.5  # seconds between two progress records

Record = dict[str, Any]


def run(spec: SweepSpec, bench: Bench) -> Iterator[Record]:
    """Yield the records of a sweep; each model loads when its first cell is due.

    The passes among `bench.earlier`, the records of an interrupted sweep of the same work, are not repeated. Without
    rates of the device, this function measures them.
    """
    where = pick_device(spec.device)
    surrounding = environment_for(spec.attn, where, ", ".join(spec.dtypes))
    earlier = usable(bench.earlier, spec)
    _check_place(bench.earlier if earlier else (), surrounding)
    rates = bench.device.get("rates") or asdict(measure_rates(where))
    free = int(bench.limits.memory_share * device_memory(where)[0])
    yield from _Sweep(spec, bench, earlier, where, rates).records(asdict(surrounding), free)


def _check_place(done: Sequence[Mapping[str, Any]], here: Environment) -> None:
    """Refuse to extend a sweep that was measured on another device or with other library versions."""
    for record in done:
        there = record.get("environment") if record.get("t") == "sweep_started" else None
        if not isinstance(there, Mapping):
            continue
        for name in ("device_name", "threads", "torch", "transformers"):
            if there.get(name) != getattr(here, name):
                raise KvvizError(
                    f"the earlier part was measured with {name} {there.get(name)!r}, here it is "
                    f"{getattr(here, name)!r}: start the sweep anew"
                )


class _Sweep:
    """A running sweep: the records so far and the work that remains."""

    def __init__(
        self, spec: SweepSpec, bench: Bench, earlier: list[Record], where: str, rates: dict[str, float]
    ) -> None:
        self._spec, self._bench, self._where, self._rates = spec, bench, where, rates
        self._records: list[Record] = list(earlier)
        self._proofs = {r["cell"]: r for r in earlier if r["t"] == "cell_proof"}
        self._done = {(r["cell"], r["mode"], r["round"]) for r in earlier if r["t"] == "cell_pass"}
        self._found = len(self._done)
        self._failed: set[int] = set()
        self._pace = Pace(guess(spec, {"rates": rates}) or tokens_fed(spec))
        self._spent = 0.0  # seconds of checks and passes in this visit
        for record in earlier:
            if record["t"] == "cell_pass":
                self._pace.passed((record["cell"], record["mode"]), sum(record["s"]))
        self._begun = self._sent = time.monotonic()
        self._cut = within(spec, spec.budget_s, {"rates": rates}, self._done)

    def records(self, environment: Record, free: int) -> Iterator[Record]:
        """Yield all records in order: the start, the cells' visits, the document."""
        spec = self._spec
        together = groups(spec, find_sources(spec), free)
        yield self._keep(
            {
                "t": "sweep_started",
                "id": self._bench.id,
                "spec": spec.to_dict(),
                "environment": environment,
                "rates": dict(self._rates),
                "cells": [asdict(cell) for cell in cells(spec)],
                "plan": asdict(self._cut),
                "found": self._found,
            }
        )
        for index in self._cut.left_out:
            yield self._fail(index, f"left out to keep to the budget of {lasting(spec.budget_s or 0)}")
        for group in together:
            for number, cell in visits(group, self._cut.repeats):
                yield from self._visit(cell, number)
        yield self._state()
        yield {"t": "done", "document": document(self._records, spec)}

    # --- one visit ---------------------------------------------------------------------------------------------

    def _visit(self, cell: Cell, number: int) -> Iterator[Record]:
        """Time the passes that this round still lacks; the first visit runs the equivalence check before them."""
        if cell.index in self._failed or not self._missing(cell, number):
            return
        if self._too_late(cell, number):
            if cell.index not in {index for index, _, _ in self._done}:
                yield self._fail(cell.index, f"left out: the budget of {lasting(self._spec.budget_s or 0)} was used up")
            return
        begun, self._spent = time.monotonic(), 0.0
        try:
            yield from self._measure(cell, number)
            self._pace.visited(time.monotonic() - begun - self._spent)
        except Stopped:
            raise
        except Exception as error:
            yield self._fail(cell.index, failure(error, self._where))

    def _missing(self, cell: Cell, number: int) -> list[str]:
        """The modes that have no pass in this round yet, in this round's order."""
        modes = self._spec.modes if number % 2 == 0 else tuple(reversed(self._spec.modes))
        return [mode for mode in modes if (cell.index, mode, number) not in self._done]

    def _measure(self, cell: Cell, number: int) -> Iterator[Record]:
        work = self._spec.work(cell)
        loaded = self._bench.load(work)
        run = ComparisonRun(work, loaded, encode_prompt(work, loaded), self._bench.should_stop)
        check_context(loaded.spec.context, run.prompt_tokens, work.new_tokens)
        if cell.index in self._proofs:
            # An untimed prefill and step, because other cells evicted its data from the processor's caches.
            for _ in run.decode(work.modes[0], steps=min(2, work.new_tokens)):
                run.check_stop()
        else:
            yield from self._prove(cell, run)
        with no_collection():
            for mode in self._missing(cell, number):
                yield from self._pass(cell, run, mode, number)

    def _prove(self, cell: Cell, run: ComparisonRun) -> Iterator[Record]:
        """Check that all modes do the same work, then measure each mode's allocator memory."""
        begun = time.monotonic()
        for part in (check_equivalence, account_memory):
            for _ in part(run):
                yield from self._tick([time.monotonic() - begun])
        self._spent = time.monotonic() - begun
        self._pace.proven(cell.index, self._spent)
        modes = {mode: _observed(run, mode) for mode in run.work.modes}
        record = {
            "t": "cell_proof",
            "cell": cell.index,
            "identical": all(seen["identical"] for seen in modes.values()),
            "delta": max((seen["max_abs_logit_diff"] or 0.0 for seen in modes.values()), default=0.0),
            "weights_bytes": sum(tensor.nbytes for tensor in run.loaded.model.parameters()),
            "modes": modes,
        }
        self._proofs[cell.index] = record
        yield self._keep(record)

    def _pass(self, cell: Cell, run: ComparisonRun, mode: str, number: int) -> Iterator[Record]:
        """Time one pass, then record whether it chose the same tokens as the equivalence check."""
        seconds: list[float] = []
        chosen: list[torch.Tensor] = []
        watch = Watch()
        for step in timed(run.decode(mode), synchroniser(run.loaded.device)):
            seconds.append(step.seconds)
            chosen.append(step.step.token_ids)
            watch.beat()
            run.check_stop()
            yield from self._tick(seconds)
        clean = watch.read().clean
        self._done.add((cell.index, mode, number))
        self._spent += sum(seconds)
        self._pace.passed((cell.index, mode), sum(seconds))
        same = digest([ids.tolist() for ids in chosen]) == self._proofs[cell.index]["modes"][mode]["tokens"]
        place = {"cell": cell.index, "mode": mode, "round": number}
        yield self._keep({"t": "cell_pass", **place, "s": [round(s, 9) for s in seconds], "same": same, "clean": clean})
        yield from self._tick()

    # --- what is still to do -----------------------------------------------------------------------------------

    def _to_pass(self) -> dict[Key, int]:
        """Count the passes that each (cell, mode) still lacks."""
        kept = [cell.index for cell in cells(self._spec) if cell.index not in self._failed]
        return missing(self._spec, kept, self._cut.repeats, self._done)

    def _left(self) -> float | None:
        """Estimated seconds of the remaining work; None while it can't be estimated."""
        to_pass = self._to_pass()
        unproven = {index for (index, _), count in to_pass.items() if count} - set(self._proofs)
        return self._pace.left(to_pass, unproven)

    def _too_late(self, cell: Cell, number: int) -> bool:
        """Whether this visit would exceed the budget; False for the first, so that every sweep measures something."""
        if self._spec.budget_s is None or len(self._done) == self._found:
            return False
        passes = dict.fromkeys(((cell.index, mode) for mode in self._missing(cell, number)), 1)
        unproven = [] if cell.index in self._proofs else [cell.index]
        takes = self._pace.left(passes, unproven) or 0.0
        return time.monotonic() - self._begun + takes > self._spec.budget_s

    def _tick(self, since: Sequence[float] = ()) -> Iterator[Record]:
        """Yield a progress record if the last is SEND_EVERY old. `since`: seconds spent so far on the current part."""
        if time.monotonic() - self._sent >= SEND_EVERY:
            self._sent = time.monotonic()
            yield self._state(sum(since))

    def _state(self, since: float = 0.0) -> Record:
        left, open_passes = self._left(), sum(self._to_pass().values())
        return {
            "t": "progress",
            "done": len(self._done),
            "of": len(self._done) + open_passes,
            "left_s": None if left is None else round(max(0.0, left - since), 1),
            "at": round(time.monotonic() - self._begun, 3),
        }

    def _fail(self, index: int, message: str) -> Record:
        self._failed.add(index)
        return self._keep({"t": "cell_failed", "cell": index, "message": message})

    def _keep(self, record: Record) -> Record:
        self._records.append(record)
        return record


def _observed(run: ComparisonRun, mode: str) -> ModeProof:
    """Summarise a mode's equivalence check; cache bytes are those after the last step."""
    layers, tokens = run.checked[mode].layers[-1], run.checked[mode].tokens
    sizes = sum(row.nbytes for row in layers), sum(row.allocated for row in layers)
    return {**run.observed(mode), "cache_bytes": sizes[0], "allocated_bytes": sizes[1], "tokens": digest(tokens)}


def digest(tokens: list[list[int]]) -> str:
    """A short hash of a pass's tokens."""
    return hashlib.sha256(json.dumps(tokens).encode()).hexdigest()[:16]


def failure(error: Exception, device: str) -> str:
    """Explain in one sentence why a cell failed. Raises the error again if the GPU is lost: no cell can follow."""
    if is_device_lost(error):
        raise error
    if isinstance(error, KvvizError):
        return str(error)
    if is_out_of_memory(error):
        tidy(device)
        return out_of_memory(error, device, "this cell")
    return unexpected(error)
