"""The three rates that estimates use: from the stored ceilings of this environment, or else measured on the spot."""

import logging
from functools import cache

import torch

from kvviz.base.errors import KvvizError
from kvviz.cost.ceilings import kept_for
from kvviz.cost.flops import Rates
from kvviz.device.clock import fastest_call, synchroniser
from kvviz.device.measure_ceilings import machine

log = logging.getLogger("kvviz.device.measure_rates")

SECONDS = 0.12  # for each of the three rates


def known_rates(device: str) -> Rates:
    """Return the rates of this environment's stored ceilings; without those, measure them once per process."""
    try:
        found = kept_for(machine(device))
    except KvvizError as error:
        log.warning("measuring the device's rates anew: %s", error)
        found = None
    return (found and found.rates()) or _measured_once(device, torch.get_num_threads())


@cache
def _measured_once(device: str, threads: int) -> Rates:
    return measure_rates(device)


@torch.inference_mode()
def measure_rates(device: str) -> Rates:
    """Measure the three rates in float32, in about half a second."""
    sync, linear = synchroniser(device), torch.nn.functional.linear
    weight, row, rows = (torch.randn(n, 8192, device=device) for n in (2048, 1, 64))
    small = torch.zeros(8, device=device)
    one_row = fastest_call(lambda: linear(row, weight), sync, SECONDS)
    many_rows = fastest_call(lambda: linear(rows, weight), sync, SECONDS)
    launch = fastest_call(lambda: small.add_(1), sync, SECONDS)
    return Rates(weight.nbytes / one_row, 2 * weight.numel() * 64 / many_rows, launch)
