"""What the system says of an NVIDIA card, whether or not torch can use it, and why torch can't. Standard library only.

The least drivers are those of NVIDIA's "CUDA Compatibility" guide, table of minor version compatibility.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

LEAST_DRIVER = {11: 450, 12: 525, 13: 580}  # by the CUDA version for which torch was built
WHEELS = "https://download.pytorch.org/whl"
INDEX = {11: "cu118", 12: "cu126", 13: "cu130"}  # torch's index of wheels for each of them
WSL_FOLDER = "/usr/lib/wsl/lib"  # where WSL keeps nvidia-smi


@dataclass(frozen=True)
class Card:
    """An NVIDIA card as its driver describes it; both texts are empty if only the driver's files are to be seen."""

    name: str = ""
    driver: str = ""


def seen_card(root: Path = Path("/")) -> Card | None:
    """Return the first NVIDIA card of this machine, or None: asked of nvidia-smi, else read off the driver's files."""
    program = shutil.which("nvidia-smi") or shutil.which("nvidia-smi", path=WSL_FOLDER)
    if program is not None:
        command = [program, "--query-gpu=name,driver_version", "--format=csv,noheader"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
            name, _, driver = done.stdout.splitlines()[0].rpartition(",")
            return Card(name.strip(), driver.strip())
        except (OSError, subprocess.SubprocessError, IndexError):
            pass  # the program is there without a card, or can't reach its driver
    files = (root / "proc/driver/nvidia/version", root / "dev/dxg")
    return Card() if any(file.exists() for file in files) else None


def why_unused(card: Card, built_for: str | None, environ: Mapping[str, str] = os.environ) -> str:
    """Say in a sentence why torch, built for a CUDA version or for none, can't use this card, and what would help."""
    name = card.name or "an NVIDIA card"
    found = f"This machine has {'an ' if card.name else ''}{name}, but kvviz computes on the processor"
    if environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return f"{found}: CUDA_VISIBLE_DEVICES hides the card."
    known = card.driver.partition(".")[0]
    driver = int(known) if known.isdigit() else None
    if built_for is None:
        fitting = max((major for major, least in LEAST_DRIVER.items() if driver is None or driver >= least), default=0)
        where = f" from {WHEELS}/{INDEX[fitting]}" if fitting else ""
        return f"{found}: this torch is built for processors alone; install torch{where} to use the card."
    major = int(built_for.partition(".")[0])
    least = LEAST_DRIVER.get(major)
    if driver is not None and least is not None and driver < least:
        older = max((one for one, needed in LEAST_DRIVER.items() if driver >= needed), default=0)
        other = f", or install torch from {WHEELS}/{INDEX[older]}" if older else ""
        return (
            f"{found}: its driver {card.driver} is too old for this torch, which is built for CUDA {built_for}; "
            f"update the driver to {least} or later{other}."
        )
    if not card.name:
        return f"{found}: the driver's files are here, but not the card; start a container with --gpus all."
    return f"{found}: torch, built for CUDA {built_for}, can't start the card with driver {card.driver}."
