"""Load a model that is larger than one device: accelerate spreads its layers over all devices, and over the disk.

Its map shares the layers out among the cards; what they have no room for lies in the host's memory, and the rest on the
disk. A hook reads what lies where no layer computes before each use. Only a model that is asked for in this way imports
accelerate.
"""

import fcntl
import logging
import shutil
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING

import torch

from kvviz.base.errors import KvvizError
from kvviz.base.paths import home
from kvviz.base.words import human
from kvviz.decoding.requirements import Needs
from kvviz.device.environment import device_name, devices, named_worker

if TYPE_CHECKING:
    from transformers import PreTrainedModel

DISK = "disk"
FOLDER = "kvviz-split-"  # how the folder of a model's weights on the disk is called
LOCK = "in-use.lock"  # a file in it that its process keeps locked
logging.getLogger("accelerate.big_modeling").setLevel(logging.ERROR)  # what it warns of stands in the model's note


@dataclass(frozen=True)
class Spread:
    """Where a model lies: the `main` device takes its inputs; `layers` has the place of each layer's weights.

    `places` are all devices that hold weights, in the order of the map, and "disk" if a part stays there. A layer whose
    place can't be told is "".
    """

    main: str
    places: tuple[str, ...]
    layers: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name the hardware and its devices, such as 2 × NVIDIA A100 (cuda:0, cuda:1) + disk."""
        named: dict[str, list[str]] = {}
        for place in self.places:
            named.setdefault(DISK if place == DISK else device_name(place), []).append(place)
        parts = (
            hardware
            if places == [DISK]
            else f"{f'{len(places)} × ' * (len(places) > 1)}{hardware} ({', '.join(places)})"
            for hardware, places in named.items()
        )
        return " + ".join(parts)[:200]

    @property
    def note(self) -> str:
        """Say in a sentence or two what lies where, and what that means for a step."""
        if len(self.places) == 1 and self.places != (DISK,):
            return f"The whole model fits on {self.places[0]}, so it was not split."
        said = f"This model's weights are split over {' + '.join(self.places)}."
        if self.read_anew:
            said += (
                f" What lies on {' and '.join(self.read_anew)} is read anew for each forward and computed on "
                f"{self.main}, where its keys and values lie too."
            )
        return said

    @property
    def read_anew(self) -> tuple[str, ...]:
        """The places where no layer computes, so that each forward reads the weights there anew."""
        return tuple(place for place in self.places if place == DISK or (place == "cpu" and self.main != "cpu"))


def check_can_split() -> None:
    """Raise KvvizError if accelerate is not installed, or if this process is one of several workers."""
    if find_spec("accelerate") is None:
        raise KvvizError("a split model needs accelerate: pip install 'kvviz[split]'")
    if named_worker():
        raise KvvizError("this server has a worker for each device, so none of them may split a model: name one")


def room_for(wanted: Needs, free: Callable[[str], int], share: float) -> dict[str, int]:
    """Return the bytes of weights that each device may hold, beside everything else that the work needs.

    Layers compute on the cards, where each keeps room for the caches, the logits and the intermediate results; the
    host's memory then only holds weights. Apple's GPU shares that memory, so it is not counted twice. Raises KvvizError
    if no device has room.
    """
    there = [device for device in devices() if device != "cpu"]
    host = [] if "mps" in there else ["cpu"]
    beside = wanted.total - wanted.weights
    able = {device: int(share * free(device)) for device in [*there, *host]}
    room = {device: able[device] - beside for device in there or host if able[device] > beside}
    if not room:
        most = max(able[device] for device in there or host)
        raise KvvizError(
            f"a split model's caches, logits and intermediate results need {human(beside)} on a device, and "
            f"{human(most)} are free: take a shorter run, a smaller batch or half-precision weights"
        )
    return room | {device: able[device] for device in host if device not in room}


def read_spread(read: "Callable[..., PreTrainedModel]", room: Mapping[str, int]) -> "PreTrainedModel":
    """Have `read` load stored weights spread over the devices; what finds no room stays on the disk."""
    aside, lock = _aside()  # for weights that are stored in another form than used
    model = read(device_map="auto", max_memory=_for_accelerate(room), offload_folder=aside.name)
    weakref.finalize(model, _remove, aside, lock)
    return model


def spread(model: "PreTrainedModel", room: Mapping[str, int]) -> None:
    """Spread a model in the host's memory over the devices; what finds no room goes to the disk."""
    from accelerate import dispatch_model, infer_auto_device_map
    from accelerate.utils import get_balanced_memory

    whole = list(model._no_split_modules or ())
    balanced = get_balanced_memory(model, max_memory=_for_accelerate(room), no_split_module_classes=whole)
    plan = infer_auto_device_map(model, max_memory=balanced, no_split_module_classes=whole)
    aside, lock = _aside()
    dispatch_model(model, plan, offload_dir=aside.name, skip_keys=model._skip_keys_device_placement)
    weakref.finalize(model, _remove, aside, lock)


def _aside() -> tuple["TemporaryDirectory[str]", IO[str]]:
    """Make a folder for weights under KVVIZ_HOME, since the system's own may lie in memory; a file in it is locked.

    Folders that killed processes have left are removed first.
    """
    clear_stale()
    above = home() / "cache"
    above.mkdir(mode=0o700, exist_ok=True)
    folder = TemporaryDirectory(prefix=FOLDER, dir=above)
    lock = (Path(folder.name) / LOCK).open("w")
    with suppress(OSError):  # a file system without locks, where `clear_stale` takes none either and removes nothing
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return folder, lock


def _remove(folder: "TemporaryDirectory[str]", lock: IO[str]) -> None:
    folder.cleanup()
    lock.close()


def clear_stale() -> None:
    """Remove the folders of weights whose process has died: the kernel has released its lock."""
    with suppress(OSError, KvvizError):
        for path in (home() / "cache").glob(f"{FOLDER}*"):
            with suppress(OSError), (path / LOCK).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)


def spread_of(model: "PreTrainedModel", layers: int) -> Spread:
    """Read from the map of a model with so many layers where its weights lie."""
    plan = {name: _device(value) for name, value in getattr(model, "hf_device_map", {"": model.device}).items()}
    places = tuple(dict.fromkeys(plan.values()))
    cards = [place for place in places if place not in ("cpu", DISK)]
    found: dict[int, str] = {}
    for name, module in model.named_modules():
        number = getattr(module, "layer_idx", None)
        if isinstance(number, int):
            found.setdefault(number, _place(name, plan))
    return Spread(cards[0] if cards else "cpu", places, tuple(found.get(number, "") for number in range(layers)))


def _place(name: str, plan: Mapping[str, str]) -> str:
    """Return the place of a module: that of the longest of its parents' names in the map."""
    parents = [at for at in plan if not at or name == at or name.startswith(f"{at}.")]
    return plan[max(parents, key=len)] if parents else ""


def _for_accelerate(room: Mapping[str, int]) -> dict[int | str, int]:
    """Name the devices as accelerate does: cards by number."""
    return {int(name.partition(":")[2] or 0) if name.startswith("cuda") else name: size for name, size in room.items()}


def _device(value: int | str | torch.device) -> str:
    """Name a device of a map as kvviz does: a machine's only card is cuda."""
    name = f"cuda:{value}" if isinstance(value, int) else str(value)
    return "cuda" if name == "cuda:0" and "cuda" in devices() else name
