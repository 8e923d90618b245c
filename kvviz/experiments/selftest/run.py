"""The checks of the selftest: each returns whether the device passes, a sentence, and its figures as JSON values.

None stands for a check that does not apply to this device.
"""

import os
import statistics
import subprocess
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from transformers.utils import logging

from kvviz.base.errors import KvvizError
from kvviz.base.records import DTYPES, Sampling, new_id
from kvviz.base.words import brief, human
from kvviz.decoding.compiled.forward import CompiledForward
from kvviz.decoding.loaded_models import LoadedModels, tidy
from kvviz.decoding.loading import Loaded
from kvviz.decoding.loop import chooser, decode
from kvviz.decoding.modes import MODES, check_modes
from kvviz.device.clock import synchroniser, timed
from kvviz.device.environment import default_place, devices, environment_for
from kvviz.device.memory import device_memory, is_device_lost, is_out_of_memory
from kvviz.device.profiler import profile
from kvviz.experiments.comparison.comparison_run import ComparisonRun
from kvviz.experiments.comparison.equivalence import check_equivalence
from kvviz.experiments.comparison.figures import finished
from kvviz.experiments.comparison.records import Document, Record
from kvviz.experiments.comparison.run import perform
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.models.catalog.rows import model_row

Answer = tuple[bool | None, str, dict[str, Any]]

MODEL, PROMPT, TOKENS = "mini-qwen3", 24, 32
COMPARED = ("uncached", "cached", "compiled")
LARGEST = ("qwen3-4b", "qwen3-1.7b", "qwen3-0.6b")
LADDER = (16, 64, 128, 256, 512, 1000)  # contexts of the classroom's steps, within GPT-2's positions
ROUNDING = {"float32": 1e-4, "bfloat16": 0.05, "float16": 0.01}  # largest relative error of logits in each dtype
NEAR_TIE = 0.02  # of the largest logit: a gap between two tokens that rounding to 8 bits can close


def quieten() -> None:
    """Keep transformers' warnings and its bars out of the report."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def _model(device: str, dtype: str = "float32", model: str = MODEL) -> Loaded:
    return LoadedModels().get(ComparisonSpec(model, prompt_tokens=PROMPT, dtype=dtype, device=device))


def _prompt(loaded: Loaded, batch: int = 1, tokens: int = PROMPT) -> torch.Tensor:
    ids = torch.randint(3, loaded.spec.vocab_size or 3, (batch, tokens), generator=torch.Generator().manual_seed(7))
    return ids.to(loaded.device)


def _modes(loaded: Loaded) -> list[str]:
    """Return the exact modes that can decode a batch of this model on its device by themselves."""
    found = []
    for name, mode in MODES.items():
        if not (mode.batches and mode.exact):
            continue
        try:
            check_modes([name], loaded.source.config, loaded.device)
        except KvvizError:
            continue
        found.append(name)
    return found


def _tokens(loaded: Loaded, mode: str, sampling: Sampling = Sampling(), batch: int = 2) -> list[list[int]]:  # noqa: B008, frozen
    prompt = _prompt(loaded, batch)
    steps = decode(loaded.model, prompt, mode=mode, new_tokens=TOKENS, choose=chooser(sampling))
    return [step.token_ids.tolist() for step in steps]


def _compared(device: str) -> tuple[Document, list[Record]]:
    """Return the document and the records of a comparison on the device."""
    work = ComparisonSpec(MODEL, COMPARED, prompt_tokens=PROMPT, new_tokens=64, device=device)
    return finished(list(perform(work, _model(device), comparison_id=new_id())))


def place(device: str) -> Answer:
    """Say which device this is, what it has free, and why it is not the machine's GPU."""
    here, (free, total) = environment_for("sdpa", device, "float32"), device_memory(device)
    said = [f"{here.device_name} ({device})", f"{human(free)} of {human(total)} free", f"torch {here.torch}"]
    if here.capability:
        said += [f"driver {here.driver or 'unknown'}", f"CUDA {here.cuda}", f"compute capability {here.capability}"]
        said += [f"{_others()} other processes on the card"]
    why = default_place().why if device == "cpu" else ""
    wsl = "microsoft" in here.platform.lower()
    figures = {"environment": asdict(here), "free_bytes": free, "total_bytes": total, "wsl": wsl}
    return (
        not why,
        "; ".join([*said, *(["in Windows' Linux"] if wsl else []), *([why] if why else [])]),
        figures,
    )


def _others() -> int:
    command = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return 0
    return len([pid for pid in found if pid != str(os.getpid())])


def kernels(device: str) -> Answer:
    """Compare the logits in each dtype with those of float64 on the CPU."""
    exact = _model("cpu")
    ids = _prompt(exact)
    with torch.inference_mode():
        right = exact.model.double()(ids).logits
    errors = {}
    for dtype in DTYPES:
        loaded = _model(device, dtype)
        with torch.inference_mode():
            logits = loaded.model(ids.to(device)).logits.double().cpu()
        errors[dtype] = ((logits - right).norm() / right.norm()).item()
    said = ", ".join(f"{dtype} {error:.1e}" for dtype, error in errors.items())
    return all(error < ROUNDING[dtype] for dtype, error in errors.items()), f"relative error of logits: {said}", errors


def identity(device: str) -> Answer:
    """Compare every exact mode's tokens with the CPU's in float32; in bfloat16 they may part at near ties alone."""
    right, here = _tokens(_model("cpu"), "cached"), _model(device)
    modes = _modes(here)
    wrong = [mode for mode in modes if _tokens(here, mode) != right]
    half = _model(device, "bfloat16")
    work = ComparisonSpec(MODEL, prompt_tokens=PROMPT, new_tokens=TOKENS, dtype="bfloat16", device=device)
    compared = ComparisonRun(work, half, _prompt(half))
    list(check_equivalence(compared))
    with torch.inference_mode():
        largest = half.model(_prompt(half)).logits.abs().max().item()
    margins = [checked.margin for checked in compared.checked.values() if checked.margin is not None]
    far = [margin for margin in margins if margin > NEAR_TIE * largest]
    said = f"{len(modes) - len(wrong)} of {len(modes)} modes give the CPU's {TOKENS} tokens in float32{_but(wrong)}"
    parted = f"part at a gap of {max(margins):.2g} between logits" if margins else "agree"
    return not wrong and not far, f"{said}; in bfloat16 uncached and cached {parted}", {"modes": modes, "wrong": wrong}


def _but(wrong: Sequence[str]) -> str:
    return f" (not {', '.join(wrong)})" if wrong else ""


def repeats(device: str) -> Answer:
    """Decode three times and compare the tokens."""
    document, records = _compared(device)
    unsteady = [run["mode"] for run in document["runs"] if not run["repeatable"]]
    said = f"three passes of {', '.join(run['mode'] for run in document['runs'])} chose the same tokens"
    said = f"other tokens in a later pass: {', '.join(unsteady)}" if unsteady else said
    return not unsteady, said, {"document": document, "records": records}


def sampling(device: str) -> Answer:
    """Draw with one seed in every exact mode and compare the tokens."""
    loaded = _model(device)
    drawn = {mode: _tokens(loaded, mode, Sampling(0.8, top_k=40, seed=11)) for mode in _modes(loaded)}
    wrong = [mode for mode, tokens in drawn.items() if tokens != drawn["cached"]]
    said = f"{len(drawn) - len(wrong)} of {len(drawn)} modes draw the same tokens at temperature 0.8{_but(wrong)}"
    return not wrong, said, {"wrong": wrong}


def memory(device: str) -> Answer:
    """Hold the three byte figures against one another; ten compiled runs must not take more and more memory."""
    document, _ = _compared(device)
    accounts = {run["mode"]: run["memory"] for run in document["runs"]}
    kept, nothing = accounts["cached"], accounts["uncached"]
    assert kept and nothing  # every finished comparison has them
    by_allocator = [account["allocator"] and account["allocator"]["kept"] for account in (kept, nothing)]
    agree = kept["formula"] == kept["tensors"] and by_allocator[0] in (None, kept["tensors"])
    said = f"cached keeps {kept['formula']:,} B by formula, {kept['tensors']:,} B in tensors"
    if by_allocator[0] is not None:
        said += f" and {by_allocator[0]:,} B by the allocator; uncached keeps {by_allocator[1]:,} B"
    grown = 0
    if device.startswith("cuda"):
        loaded, reserved = _model(device), []
        for _ in range(12):
            _tokens(loaded, "compiled")
            reserved.append(torch.cuda.memory_reserved(device))
        grown = reserved[-1] - reserved[1]
        said += f"; ten more compiled runs reserved {grown:,} B more"
    figures = {"formula": kept["formula"], "allocator": by_allocator[0], "grown": grown}
    return agree and not by_allocator[1] and grown <= 0, said, figures


def graph(device: str) -> Answer:
    """Take the compiled step's path, compare its tokens, capture again for another batch."""
    loaded = _model(device)
    forward = CompiledForward(loaded.model, PROMPT + TOKENS)
    forward.prepare(1)
    wanted = "graph" if device.startswith("cuda") else "native" if device == "cpu" else "operations"
    same = all(_tokens(loaded, "compiled", batch=n) == _tokens(loaded, "cached", batch=n) for n in (1, 2, 1))
    paths = [forward.path]
    forward.prepare(2)
    paths.append(forward.path)
    reason = f" ({forward.reason})" if forward.reason else ""
    said = f"the compiled step runs as {', captured again as '.join(paths)}{reason}; its tokens are "
    said += "those of cached" if same else "not those of cached"
    return same and set(paths) == {wanted}, said, {"path": forward.path}


def clock(device: str) -> Answer:
    """Hold the host's clock against CUDA's events, count the synchronisations, leave one out."""
    if not device.startswith("cuda"):
        return None, "a device without a queue needs no synchronisation", {}
    loaded, sync = _model(device, model="gpt2"), synchroniser(device)
    prompt = _prompt(loaded, 8, 512)
    call = partial(loaded.model, prompt, use_cache=False, logits_to_keep=1)
    host, events, unsynced = [], [], []
    with torch.inference_mode():
        for _ in range(12):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            sync()
            begun = time.perf_counter()
            start.record()
            call()
            end.record()
            unsynced.append(time.perf_counter() - begun)
            sync()
            host.append(time.perf_counter() - begun)
            events.append(start.elapsed_time(end) / 1e3)
    ours, theirs, early = (statistics.median(seconds[2:]) for seconds in (host, events, unsynced))
    waits = {mode: _waits(loaded, mode) for mode in COMPARED}
    off = abs(ours - theirs) / theirs
    counted = ", ".join(f"{mode} {count}" for mode, count in waits.items())
    said = f"a forward takes {brief(ours)} by the host's clock and {brief(theirs)} by the card's ({off:.1%} apart), "
    said += f"and {brief(early)} if nobody waits for it; reads back in 8 steps: {counted}"
    figures = {"host_s": ours, "events_s": theirs, "unsynced_s": early, "waits": waits}
    return off < 0.05 and early < ours, said, figures


def _waits(loaded: Loaded, mode: str) -> int:
    """Count how often decode steps make the host wait for the card, by torch's own warnings."""
    steps = decode(loaded.model, _prompt(loaded), mode=mode, new_tokens=10)
    next(steps), next(steps)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        for _ in steps:
            pass
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing" in str(one.message) for one in caught)


def prediction(device: str) -> Answer:
    """Say how far the predicted curves are from the measured ones."""
    document, _ = _compared(device)
    errors = {run["mode"]: run["prediction_error"] for run in document["runs"] if run["prediction_error"] is not None}
    said = ", ".join(f"{mode} {error:.0%}" for mode, error in errors.items())
    return all(error < 0.5 for error in errors.values()), f"predicted and measured steps differ by: {said}", errors


def profiler(device: str) -> Answer:
    """Profile a few steps and see whether kernels were recorded."""
    if device.startswith("mps"):
        return None, "torch's profiler records no kernels of MPS", {}
    loaded = _model(device)
    steps = decode(loaded.model, _prompt(loaded), mode="cached", new_tokens=8)
    next(steps), next(steps)
    found = profile(loaded.model, [lambda: next(steps)] * 5, device, synchroniser(device))
    if not found.classes:
        return False, f"{found.operations} operations, and no kernel was recorded", {}
    gaps = found.classes["gaps"] / found.wall
    return (
        True,
        f"{found.operations} operations in a decode step, {gaps:.0%} of its time between kernels",
        found.classes,
    )


def recovery(device: str) -> Answer:
    """Run out of memory on purpose, and decode again; on CUDA, lose the device on purpose in this process."""
    loaded = _model(device)
    try:
        torch.empty(2**50, dtype=torch.uint8, device=device)
        return False, "a petabyte was given out", {}
    except Exception as error:
        full = is_out_of_memory(error)
    tidy(device)
    again = len(_tokens(loaded, "cached")) == TOKENS
    said = f"running out of memory is {'recognised' if full else 'not recognised'}, "
    said += f"and a decode after it {'works' if again else 'fails'}"
    if not device.startswith("cuda"):
        return full and again, said, {}
    lost = False
    try:
        loaded.model(torch.full((1, 4), 2**30, device=device))
        torch.cuda.synchronize(device)
    except Exception as error:
        lost = is_device_lost(error)
    return full and again and lost, f"{said}; a lost device is {'' if lost else 'not '}recognised", {}


def second_device(device: str) -> Answer:
    """Decode on the second card too, and compare the tokens."""
    others = [one for one in devices() if one.startswith("cuda:") and one not in (device, "cuda:0")]
    if not device.startswith("cuda") or not others:
        return None, "this machine has no second card", {}
    same = _tokens(_model(others[0]), "cached") == _tokens(_model(device), "cached")
    return same, f"{others[0]} gives {'the same' if same else 'other'} tokens", {}


def classroom(device: str) -> Answer:
    """Measure what a class would see: how steps grow with the context, and what a compiled step saves."""
    on_card = device != "cpu"
    loaded = _model(device, model="gpt2" if on_card else "mini-gpt2")
    contexts = [context for context in LADDER if context + 4 <= (loaded.spec.context or context + 4)]
    found = {mode: [_step(loaded, mode, context) for context in contexts] for mode in COMPARED}
    uncached = found["uncached"]
    doubled = next((c for c, s in zip(contexts, uncached, strict=True) if s > 2 * uncached[0]), None)
    figures: dict[str, Any] = {
        "model": loaded.source.title,
        "contexts": contexts,
        "step_s": found,
        "last_over_first": uncached[-1] / uncached[0],
        "compiled_speedup": found["cached"][0] / found["compiled"][0],
        "uncached_doubles_at": doubled,
    }
    said = f"{figures['model']}: from {contexts[0]} to {contexts[-1]:,} tokens an uncached step grows by a factor of "
    said += f"{figures['last_over_first']:.2f}, a cached one by {found['cached'][-1] / found['cached'][0]:.2f}; "
    said += f"compiled, it is {figures['compiled_speedup']:.1f} times as fast; an uncached step has doubled "
    said += f"by {doubled:,} tokens" if doubled else f"nowhere up to {contexts[-1]:,} tokens"
    largest = _largest(device) if on_card else None
    if largest:
        figures["largest"] = largest
        said += f"; {largest['model']} in bfloat16: {brief(largest['cached_s'])} with the cache, "
        said += f"{brief(largest['compiled_s'])} compiled"
    return True, said, figures


def _step(loaded: Loaded, mode: str, context: int, count: int = 5) -> float:
    """Return the median seconds of a few decode steps after a prompt of so many tokens."""
    steps = decode(loaded.model, _prompt(loaded, tokens=context - 1), mode=mode, new_tokens=count + 2)
    return statistics.median([step.seconds for step in timed(steps, synchroniser(loaded.device))][2:])


def _largest(device: str) -> dict[str, Any] | None:
    """Measure a cached and a compiled step of the largest of the Qwen3 models that fits."""
    free = device_memory(device)[0]
    for name in LARGEST:
        if 2.5 * (model_row(name).params or 0) < free:
            loaded = _model(device, "bfloat16", name)
            seconds = {f"{mode}_s": _step(loaded, mode, 64) for mode in ("uncached", "cached", "compiled")}
            return {"model": loaded.source.title, **seconds}
    return None


CHECKS: dict[str, Callable[[str], Answer]] = {
    "place": place,
    "kernels": kernels,
    "identity": identity,
    "repeats": repeats,
    "sampling": sampling,
    "memory": memory,
    "graph": graph,
    "clock": clock,
    "prediction": prediction,
    "profiler": profiler,
    "recovery": recovery,
    "second device": second_device,
    "classroom": classroom,
}
