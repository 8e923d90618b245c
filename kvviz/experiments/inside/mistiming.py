"""Makes the two timing mistakes: no warm-up, and no synchronisation with the device.

Only the first decode of a process runs without a warm-up, so that mistake runs in a process of its own:
`python -m kvviz.experiments.inside.mistiming`.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import torch

from kvviz.base.errors import KvvizError
from kvviz.decoding.loaded_models import LoadedModels
from kvviz.decoding.loading import Loaded
from kvviz.decoding.scratch import mistakes
from kvviz.decoding.scratch.load import from_transformers
from kvviz.decoding.scratch.pitfalls import pitfall_named
from kvviz.device.clock import synchroniser
from kvviz.device.environment import pick_device, set_threads
from kvviz.experiments.comparison.comparison_run import encode_prompt
from kvviz.experiments.inside.spec import MistakeSpec

LONGEST = 180  # seconds that a new process may take to load its model and decode twice
LONG, SEQUENCES = 512, 8  # the prompt of the clock that does not wait, on a GPU
PARTED = 1.25  # factor above which the verdict reports a difference


def mistime(clock: str, spec: MistakeSpec, loaded: Loaded) -> dict[str, Any]:
    """Time every forward in seconds by the wrong stopwatch and by the right one, and say whether they differ."""
    if clock == "no-warm-up":
        found = _in_a_new_process(spec)
    elif loaded.device.startswith("cpu"):
        found = {"wrong": [], "right": []}
    else:
        pitfall, model = pitfall_named(clock), from_transformers(loaded.model)
        prompt = long_enough(encode_prompt(spec.work(), loaded), loaded.spec.context)
        given = (model, prompt, spec.new_tokens, synchroniser(loaded.device))
        loops = {"right": pitfall.right, "wrong": pitfall.loop}
        list(getattr(mistakes, pitfall.right)(*given))  # warms up the model for both
        found = {name: list(getattr(mistakes, loop)(*given)) for name, loop in loops.items()}
    return {
        "t": "mistimed",
        "mistake": clock,
        "device": loaded.device,
        **found,
        "verdict": verdict(**found, cold=clock == "no-warm-up"),
    }


def long_enough(prompt: torch.Tensor, context: int | None) -> torch.Tensor:
    """Repeat a prompt (1, P) to LONG tokens, or to half of the model's positions, in SEQUENCES rows.

    A GPU has computed a short prompt before its operations are all launched: then even a clock that does not wait shows
    the right time.
    """
    tokens = min(LONG, (context or LONG) // 2)
    return prompt.repeat(1, -(-tokens // prompt.shape[1]))[:, :tokens].repeat(SEQUENCES, 1)


def verdict(wrong: Sequence[float], right: Sequence[float], *, cold: bool = False) -> str:
    """Compare the two measurements in a sentence; `cold`: the wrong one was the first work of a process."""
    if not wrong:
        return (
            "There is nothing to see on a CPU: it has done its work when the call returns, so the clock can't stop "
            "early. A GPU is only told what to do, and goes on after the call has returned."
        )
    if wrong[0] > PARTED * right[0]:
        return f"The prefill took {wrong[0] / right[0]:.1f} times as long by the wrong stopwatch as by the right one."
    one, other = (statistics.median(seconds[1:] or seconds) for seconds in (wrong, right))
    if cold and (right[0] > PARTED * wrong[0] or other > PARTED * one):
        return (
            "Other work disturbed this measurement: what began cold seems quicker than what began warm. Make the "
            "mistake again when this machine is quiet."
        )
    if right[0] > PARTED * wrong[0]:
        return (
            f"The prefill seems to take {wrong[0] / right[0]:.0%} of its time by the wrong stopwatch, which stopped "
            "when the operations were launched, not when they were done."
        )
    if max(one, other) > PARTED * min(one, other):
        return f"The median decode step by the wrong stopwatch is {one / other:.2f} times that by the right one."
    return "There is nothing to see here this time: both stopwatches say the same."


def _in_a_new_process(spec: MistakeSpec) -> dict[str, list[float]]:
    command = [sys.executable, "-m", __name__, str(torch.get_num_threads())]
    try:
        done = subprocess.run(
            command, input=json.dumps(spec.to_dict()), capture_output=True, text=True, timeout=LONGEST, check=True
        )
    except (subprocess.SubprocessError, OSError) as error:
        name = type(error).__name__
        raise KvvizError(f"the process that was to begin without a warm-up ended early ({name})") from error
    return json.loads(done.stdout.splitlines()[-1])


def main(threads: str) -> None:
    """Decode as the first work of this process, then decode again with a warm-up; print the seconds of both."""
    set_threads(int(threads))
    spec = MistakeSpec.from_dict(json.loads(sys.stdin.read()))
    loaded = LoadedModels().get(spec.work())
    model, sync = from_transformers(loaded.model), synchroniser(pick_device())
    prompt = encode_prompt(spec.work(), loaded)
    cold = list(mistakes.without_warm_up(model, prompt, spec.new_tokens, sync))
    print(json.dumps({"wrong": cold, "right": list(mistakes.with_warm_up(model, prompt, spec.new_tokens, sync))}))


if __name__ == "__main__":
    main(sys.argv[1])
