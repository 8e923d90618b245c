"""The settings: a file, `kvviz.toml`, and KVVIZ_PUBLIC, KVVIZ_SETTINGS, KVVIZ_MODELS, KVVIZ_INBOX, KVVIZ_DESIGNS,
KVVIZ_DEVICE and KVVIZ_WORKERS; KVVIZ_RAY_ADDRESS stands in no file.

The file lies in KVVIZ_HOME, or where KVVIZ_SETTINGS points. Every field has a default; `public` (or KVVIZ_PUBLIC=1, for
a server open to all) lowers the limits that the file does not name.
"""

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from kvviz.base.errors import KvvizError
from kvviz.base.paths import home
from kvviz.base.records import check_fields, is_whole

T = TypeVar("T")


_SERVER = r"(https?|tcp)://[^\s@?#]+"


def _limit(usual: float, public: float) -> Any:
    """A field with its default on a private server and its default on a public one."""
    return field(default=usual, metadata={"public": public})


@dataclass(frozen=True)
class Limits:
    """How much one job, one session and all sessions together may ask of the device."""

    prompt_tokens: int = _limit(131_072, 2_048)  # of each sequence
    new_tokens: int = _limit(32_768, 512)  # of each sequence
    batch: int = _limit(64, 8)  # sequences decoded together
    repeats: int = _limit(50, 5)  # timed passes of each mode
    run_seconds: int = _limit(3_600, 120)  # a comparison from its loading to its end; then it is stopped
    sweep_seconds: int = _limit(28_800, 600)  # a sweep, likewise
    memory_share: float = _limit(1.0, 0.5)  # of the device's free memory that one model and its work may take
    waiting: int = _limit(50, 30)  # jobs in the queue, of all sessions, the one under way included
    waiting_per_session: int = _limit(8, 2)  # jobs of one session among them
    viewers: int = _limit(500, 300)  # open sockets
    rooms: int = _limit(100, 50)  # in which a class follows its teacher, open at once
    upload_bytes: int = _limit(5_000_000, 2_000_000)  # a config.json or a recording


PUBLIC = Limits(**{limit.name: limit.metadata["public"] for limit in fields(Limits)})


@dataclass(frozen=True)
class Settings:
    """`public`: open to strangers. `hub_models`: Hugging Face ids that may be fetched there, as owner/name.

    `models`: the folder that `kvviz pull` made; its models can be had under their ids, on a public server too.
    `inbox`: a folder whose files of runs are taken in as they come; KVVIZ_INBOX overrides it.
    `device`: what `auto` stands for: cpu, cuda, cuda:1 or mps, else the fastest that works; KVVIZ_DEVICE overrides it.
    `workers`: the devices that measure side by side, each in a process of its own, such as cuda:0, cuda:1 and cpu, or
    cpu:0 and cpu:1 for two shares of the processor's cores; "all" is each device of the machine; empty: one worker on
    `device`. KVVIZ_WORKERS overrides it, separated by commas.
    `origins`: addresses under which browsers reach this server through a proxy; `embedders`: sites that may show it in
    a frame. Both are written https://kv.example.org. `endpoints`: servers that may decode for a comparison, such as
    http://10.0.0.5:8000/v1, and where they publish their KV events, such as tcp://10.0.0.5:5557; a public server asks
    none on its own machine or network but these.
    """

    public: bool = False
    limits: Limits = Limits()
    hub_models: tuple[str, ...] = ()
    models: Path | None = None
    device: str = "auto"
    origins: tuple[str, ...] = ()
    embedders: tuple[str, ...] = ()
    endpoints: tuple[str, ...] = ()
    inbox: Path | None = None
    workers: tuple[str, ...] = ()


def read_settings(text: str, *, public: bool) -> Settings:
    """Settings from a `kvviz.toml`. Raises KvvizError for a field that does not exist or does not fit."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise KvvizError(f"kvviz.toml can't be read: {error}") from error
    check_fields(Settings, data, "kvviz.toml")
    public = public or _checked(data.get("public", False), bool, "public", "true or false")
    ids = _texts(data, "hub_models", r"[^\s/]+/[^\s/]+", "a list of Hugging Face ids, owner/name")
    servers = _texts(data, "endpoints", _SERVER, "a list of addresses such as http://10.0.0.5:8000/v1")
    origins, embedders = (
        _texts(data, name, _SITE, "a list of addresses such as https://kv.example.org") for name in _SITES
    )
    given = _checked(data.get("limits", {}), dict, "limits", "a table")
    check_fields(Limits, given, "[limits] of kvviz.toml")
    models, inbox = (_folder(data, name) for name in ("models", "inbox"))
    device = check_device("device in kvviz.toml", data.get("device", "auto"))
    workers = check_workers("workers in kvviz.toml", _checked(data.get("workers", []), list, "workers", _WORKERS))
    limits = _overridden(PUBLIC if public else Limits(), given)
    return Settings(public, limits, ids, models, device, origins, embedders, servers, inbox, workers)


def check_device(name: str, value: object) -> str:
    """Return a device's name. Raises KvvizError for a text that can't be one."""
    if not isinstance(value, str) or not re.fullmatch(r"auto|cpu|mps|cuda(:\d{1,2})?", value):
        raise KvvizError(f"{name} is {value!r}; it is auto, cpu, cuda, mps or a card by number such as cuda:1")
    return value


_WORKERS = "a list of devices such as cuda:0, cuda:1 and cpu, of cpu:0 and cpu:1 for two shares of the cores, or of all"


def check_workers(name: str, values: Sequence[object]) -> tuple[str, ...]:
    """Return the names of workers. Raises KvvizError for one that can't be a device, or that comes twice."""
    for value in values:
        if not isinstance(value, str) or not re.fullmatch(r"mps|(cpu|cuda)(:\d{1,2})?|all", value):
            raise KvvizError(f"{name} holds {value!r}; it is {_WORKERS}")
    names = tuple(map(str, values))
    if len(set(names)) != len(names) or ("all" in names and len(names) > 1):
        raise KvvizError(f"{name} is {','.join(names)}; each device stands there once, and all stands alone")
    return names


def device_of(worker: str) -> str:
    """The device on which a worker computes: cpu for cpu:1, a share of the cores; cuda:0 for node/cuda:0."""
    device = worker.rpartition("/")[2]
    return "cpu" if device.startswith("cpu") else device


_FOLDERS = {
    "models": "a folder that `kvviz pull` made",
    "inbox": "a folder for files of runs",
    "designs": "a folder with cache designs of your own",
}
_SITES = ("origins", "embedders")
_SITE = r"https?://(\*\.)?[a-z0-9.-]+(:\d{1,5})?"  # as a browser writes it: lower case, no slash at the end


def _texts(data: Mapping[str, object], name: str, form: str, right: str) -> tuple[str, ...]:
    values = _checked(data.get(name, []), list, name, right)
    for value in values:
        if not isinstance(value, str) or not re.fullmatch(form, value):
            raise KvvizError(f"{name} holds {value!r} in kvviz.toml; it is {right}")
    return tuple(values)


def _folder(data: Mapping[str, object], name: str) -> Path | None:
    given = _checked(data.get(name, ""), str, name, _FOLDERS[name])
    return Path(given).expanduser() if given else None


def _overridden(limits: Limits, given: Mapping[str, Any]) -> Limits:
    for name, value in given.items():
        if name == "memory_share":
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not 0 < value <= 1:
                raise KvvizError(f"memory_share is {value!r} in kvviz.toml; it is a number above 0 and at most 1")
        elif not is_whole(value, 1):
            raise KvvizError(f"{name} is {value!r} in kvviz.toml; it is a whole number of at least 1")
    return replace(limits, **given)


def _checked(value: object, kind: type[T], name: str, right: str) -> T:
    if not isinstance(value, kind):
        raise KvvizError(f"{name} is {value!r} in kvviz.toml; it is {right}")
    return value


@cache
def settings() -> Settings:
    """The settings of this process, from the file, if there is one, and the variables; read at the first call."""
    public = os.environ.get("KVVIZ_PUBLIC", "").strip().lower() not in ("", "0", "false", "no")
    given = os.environ.get("KVVIZ_SETTINGS")
    path = Path(given).expanduser() if given else home() / "kvviz.toml"
    try:
        text = path.read_text(encoding="utf-8") if given or path.is_file() else ""
        found = _with_folders(read_settings(text, public=public), path.parent)
        if device := os.environ.get("KVVIZ_DEVICE", "").strip():
            found = replace(found, device=check_device("KVVIZ_DEVICE", device))
        if workers := os.environ.get("KVVIZ_WORKERS", "").replace(" ", ""):
            found = replace(found, workers=check_workers("KVVIZ_WORKERS", workers.split(",")))
        return found
    except (OSError, UnicodeDecodeError) as error:
        raise KvvizError(f"{path} can't be read ({type(error).__name__})") from error


def ray_address() -> str:
    """The address of a Ray cluster whose nodes measure too, from KVVIZ_RAY_ADDRESS; "" without a cluster."""
    return os.environ.get("KVVIZ_RAY_ADDRESS", "").strip()


def _with_folders(read: Settings, beside: Path) -> Settings:
    """Resolve the folders: a variable's, else the file's own, relative to the file unless it is absolute."""
    given = {"models": os.environ.get("KVVIZ_MODELS"), "inbox": os.environ.get("KVVIZ_INBOX")}
    models, inbox = (_resolved(name, given[name], getattr(read, name), beside) for name in given)
    if _resolved("designs", os.environ.get("KVVIZ_DESIGNS"), None, beside) and read.public:
        raise KvvizError("KVVIZ_DESIGNS has code run, and this server is public: start it without one of the two")
    return replace(read, models=models, inbox=inbox)


def _resolved(name: str, given: str | None, own: Path | None, beside: Path) -> Path | None:
    folder = Path(given).expanduser().absolute() if given else own and (beside / own).absolute()
    if folder and not folder.is_dir():
        named = f"KVVIZ_{name.upper()}" if given else f"{name} in kvviz.toml"
        raise KvvizError(f"{named} is {str(folder)[:200]}, and there is no such folder; it is {_FOLDERS[name]}")
    return folder or None
