"""`kvviz ceilings`: how fast this device reads, multiplies and starts an operation."""

from typing import Annotated

import typer

from kvviz.cli.measure_here import alone, take_cores
from kvviz.cli.options import AsJson, Device, NoWait
from kvviz.cli.output import answer
from kvviz.cost.ceilings import Ceilings, ceilings_text


def ceilings(
    refresh: Annotated[bool, typer.Option("--refresh", help="Measure again and replace what is kept.")] = False,
    device: Device = "auto",
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Measure how fast this device reads, multiplies and starts an operation; the figures are kept."""
    found = ceilings_here(device, refresh=refresh, patient=not no_wait)
    answer(found.to_dict(), lambda: ceilings_text(found), as_json)


def ceilings_here(device: str, *, refresh: bool, patient: bool = True) -> Ceilings:
    """Return the kept ceilings of a device, or measure them on a worker's cores and keep them. Needs torch only."""
    take_cores()

    from kvviz.device.measure_ceilings import known_ceilings
    from kvviz.device.pick import pick_device

    return known_ceilings(pick_device(device), alone("kvviz ceilings", patient), refresh=refresh)
