"""The measured ceilings of a device, and the file under KVVIZ_HOME that stores them.

`kvviz.device.measure_ceilings` measures them; this module imports only the standard library. The file stores one set
for each environment, because the ceilings depend on the number of threads and on the torch version.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kvviz.base.checks import Unfit, list_of, number, object_of, parse, short_name, text, whole
from kvviz.base.errors import KvvizError
from kvviz.base.paths import home
from kvviz.cost.flops import Rates

MAX_ENVIRONMENTS = 40  # number of sets that the file stores; the oldest are dropped first
ESTIMATE = (64, 8192, 2048)  # rows, inner, columns of the product whose rate the estimates use


@dataclass(frozen=True)
class Machine:
    """The environment that ceilings depend on; `cores`, `python` and `platform` are only informative."""

    device: str
    device_name: str
    threads: int
    cores: int
    torch: str
    python: str
    platform: str

    @property
    def key(self) -> tuple[str, str, int, str]:
        """Key of a set of ceilings: environments with the same key share one set."""
        return self.device, self.device_name, self.threads, self.torch


@dataclass(frozen=True)
class MatrixRate:
    """The measured rate of a product (rows, inner) x (inner, columns), which costs 2 x rows x inner x columns FLOPs."""

    dtype: str
    rows: int
    inner: int
    columns: int
    flops_per_s: float

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows, inner size and columns."""
        return self.rows, self.inner, self.columns


@dataclass(frozen=True)
class Ceilings:
    """The measured limits of a device; each figure comes from the fastest of several calls.

    `read_bandwidth` (B/s): a plain read of `buffer_bytes` by the kernel `read_by`, the fastest of those in `reads`.
    `row_product` (B/s, by dtype): one row times a matrix of that size. `launch`: seconds of the fastest operation.
    `measured_at`: UTC. A dtype that the device does not support, and a product that would take too long, are absent.
    """

    environment: Machine
    measured_at: str
    buffer_bytes: int
    read_bandwidth: float
    read_by: str
    reads: Mapping[str, float]
    row_product: Mapping[str, float]
    matrix: tuple[MatrixRate, ...]
    launch: float

    @property
    def matrix_rate(self) -> dict[str, float]:
        """Highest rate of each dtype (FLOP/s) over all sizes."""
        found: dict[str, float] = {}
        for row in self.matrix:
            found[row.dtype] = max(found.get(row.dtype, 0.0), row.flops_per_s)
        return found

    def rates(self) -> Rates | None:
        """Return the three rates that estimates use, in float32; None if one of them was not measured."""
        product = next((r.flops_per_s for r in self.matrix if r.dtype == "float32" and r.shape == ESTIMATE), None)
        read = self.row_product.get("float32")
        return None if product is None or read is None else Rates(read, product, self.launch)

    def to_dict(self) -> dict[str, object]:
        """Return JSON values, including the highest matrix rates."""
        return {**asdict(self), "matrix": [asdict(row) for row in self.matrix], "matrix_rate": self.matrix_rate}


_POSITIVE = number(1e-12)
_MACHINE = object_of(
    {
        "device": text(40),
        "device_name": text(300),
        "threads": whole(1, 100_000),
        "cores": whole(1, 100_000),
        "torch": text(100),
        "python": text(100),
        "platform": text(300),
    }
)
_MATRIX = object_of(
    {
        "dtype": short_name,
        "rows": whole(1, 10**7),
        "inner": whole(1, 10**7),
        "columns": whole(1, 10**7),
        "flops_per_s": number(1e-12, 1e21),
    }
)


def _rates_by_name(value: object, name: str) -> dict[str, float]:
    if not isinstance(value, dict) or not 1 <= len(value) <= 40:
        raise Unfit(f"{name} has to be an object of 1 to 40 rates")
    return {short_name(key, name): _POSITIVE(item, name) for key, item in value.items()}


_CEILINGS = object_of(
    {
        "environment": _MACHINE,
        "measured_at": text(40),
        "buffer_bytes": whole(1),
        "read_bandwidth": _POSITIVE,
        "read_by": short_name,
        "reads": _rates_by_name,
        "row_product": _rates_by_name,
        "matrix": list_of(_MATRIX, 400),
        "launch": number(1e-12, 10.0),
    }
)
_FILE = object_of({"kvviz": short_name, "version": whole(1), "measured": list_of(_CEILINGS, MAX_ENVIRONMENTS)})


def path() -> Path:
    """Path of the file that stores the ceilings."""
    return home() / "ceilings.json"


def read(data: bytes) -> list[Ceilings]:
    """Parse the sets in a file's bytes, oldest first. Raises KvvizError naming the field that is invalid."""
    try:
        found = _FILE(parse(data, 2_000_000, "file of measured ceilings"), "the file")
        if (found["kvviz"], found["version"]) != ("ceilings", 1):
            raise Unfit("kvviz and version have to be ceilings and 1")
        return [_ceilings(fields) for fields in found["measured"]]
    except (Unfit, KvvizError) as error:
        how = "`kvviz ceilings --refresh` replaces them"
        raise KvvizError(f"the stored ceilings can't be read: {error}; {how}") from error


def _ceilings(fields: dict[str, Any]) -> Ceilings:
    """Build a set from its checked fields."""
    if not fields["reads"].get(fields["read_by"]) == fields["read_bandwidth"] == max(fields["reads"].values()):
        raise Unfit("read_bandwidth has to be the highest of reads, that of read_by")
    matrix = tuple(MatrixRate(**row) for row in fields["matrix"])
    return Ceilings(**{**fields, "environment": Machine(**fields["environment"]), "matrix": matrix})


def kept() -> list[Ceilings]:
    """Return all sets in the file, oldest first; none without a file. Raises KvvizError for an invalid file."""
    try:
        data = path().read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise KvvizError(f"the stored ceilings can't be read ({type(error).__name__})") from error
    return read(data)


def kept_for(machine: Machine) -> Ceilings | None:
    """Return the set of this environment, or None if there is none. Raises KvvizError for an invalid file."""
    return next((found for found in kept() if found.environment.key == machine.key), None)


def keep(found: Ceilings) -> None:
    """Replace this environment's set in the file; an unreadable file is replaced entirely."""
    try:
        others = [old for old in kept() if old.environment.key != found.environment.key]
    except KvvizError:
        others = []
    rows = [asdict(row) for row in [*others, found][-MAX_ENVIRONMENTS:]]
    file = path()
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        fresh.write_text(json.dumps({"kvviz": "ceilings", "version": 1, "measured": rows}, indent=1, allow_nan=False))
        fresh.replace(file)
    except OSError as error:
        raise KvvizError(f"the ceilings can't be kept in {file} ({type(error).__name__})") from error


def ceilings_text(found: Ceilings) -> str:
    """Format a set as the lines that `kvviz ceilings` prints."""
    here = found.environment
    lines = [
        f"{here.device_name}, {here.threads} threads, torch {here.torch}, measured {found.measured_at}",
        f"plain read:      {found.read_bandwidth / 1e9:10,.1f} GB/s  ({found.read_by} of {found.buffer_bytes:,} B)",
    ]
    for dtype, rate in found.row_product.items():
        share = rate / found.read_bandwidth
        lines.append(f"one-row product: {rate / 1e9:10,.1f} GB/s  {dtype}, {share:.0%} of the plain read")
    for row in found.matrix:
        size = f"({row.rows}, {row.inner}) x ({row.inner}, {row.columns})"
        lines.append(f"matrix product:  {row.flops_per_s / 1e9:10,.1f} GFLOP/s  {row.dtype}, {size}")
    return "\n".join([*lines, f"launch:          {found.launch * 1e6:10,.2f} µs"])
