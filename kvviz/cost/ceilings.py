"""The measured ceilings of a device, and the file under KVVIZ_HOME that stores a set of them for each environment."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, TypedDict

from kvviz.base.checks import Unfit, by_name, check_of, number, parse, short_name, text, whole
from kvviz.base.errors import KvvizError
from kvviz.base.paths import home
from kvviz.base.records import Machine
from kvviz.cost.flops import Rates

MAX_ENVIRONMENTS = 40  # number of sets that the file stores; the oldest are dropped first
ESTIMATE = (64, 8192, 2048)  # rows, inner, columns of the product whose rate the estimates use

_Size = Annotated[int, whole(1, 10**7)]
_Rate = Annotated[float, number(1e-12, 1e21)]
_Rates = Annotated[Mapping[str, float], by_name(number(1e-12, 1e21), least=1)]


@dataclass(frozen=True)
class MatrixRate:
    """The measured rate of a product (rows, inner) x (inner, columns), which costs 2 x rows x inner x columns FLOPs."""

    dtype: Annotated[str, short_name]
    rows: _Size
    inner: _Size
    columns: _Size
    flops_per_s: _Rate

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows, inner size and columns."""
        return self.rows, self.inner, self.columns


@dataclass(frozen=True)
class Ceilings:
    """The measured limits of a device; each figure comes from the fastest of several calls.

    `read_bandwidth` (B/s): a plain read of `buffer_bytes` by the kernel `read_by`, the fastest of those in `reads`,
    among which is a one-row product that was faster still.
    `row_product` (B/s, by dtype): one row times a matrix of that size. `launch`: seconds of the fastest operation.
    `measured_at`: UTC. A dtype that the device does not support, and a product that would take too long, are absent.
    """

    environment: Machine
    measured_at: Annotated[str, text(40)]
    buffer_bytes: Annotated[int, whole(1)]
    read_bandwidth: _Rate
    read_by: Annotated[str, short_name]
    reads: _Rates
    row_product: _Rates
    matrix: tuple[MatrixRate, ...]
    launch: Annotated[float, number(1e-12, 10.0)]

    @property
    def matrix_rate(self) -> dict[str, float]:
        """Highest rate of each dtype (FLOP/s) over all sizes."""
        found: dict[str, float] = {}
        for row in self.matrix:
            found[row.dtype] = max(found.get(row.dtype, 0.0), row.flops_per_s)
        return found

    def rates(self) -> Rates | None:
        """Return the three rates that estimates use, in float32; None if one of them was not measured."""
        products = {row.dtype: row.flops_per_s for row in self.matrix if row.shape == ESTIMATE}
        read, product = self.row_product.get("float32"), products.get("float32")
        if product is None or read is None:
            return None
        return Rates(read, product, self.launch, products.get("bfloat16"))

    def to_dict(self) -> dict[str, object]:
        """Return JSON values, including the highest matrix rates."""
        return {**asdict(self), "matrix": [asdict(row) for row in self.matrix], "matrix_rate": self.matrix_rate}


def with_rows(found: Ceilings) -> Ceilings:
    """Count each faster one-row product among the reads: it has read those bytes, so a plain read can't be slower."""
    faster = {f"row-product-{dtype}": rate for dtype, rate in found.row_product.items() if rate > found.read_bandwidth}
    reads = {**found.reads, **faster}
    fastest = max(reads, key=reads.__getitem__)
    return replace(found, reads=reads, read_by=fastest, read_bandwidth=reads[fastest])


class _File(TypedDict):
    kvviz: Literal["ceilings"]
    version: Literal[1]
    measured: list[Ceilings]


_check_file = check_of(_File)


def path() -> Path:
    """Path of the file that stores the ceilings."""
    return home() / "ceilings.json"


def read(data: bytes) -> list[Ceilings]:
    """Parse the sets in a file's bytes, oldest first. Raises KvvizError naming the field that is invalid."""
    try:
        found: list[Ceilings] = _check_file(parse(data, 2_000_000, "file of measured ceilings"), "the file")["measured"]
        if any(not one.reads.get(one.read_by) == one.read_bandwidth == max(one.reads.values()) for one in found):
            raise Unfit("read_bandwidth has to be the highest of reads, that of read_by")
        return [with_rows(one) for one in found]
    except (Unfit, KvvizError) as error:
        how = "`kvviz ceilings --refresh` replaces them"
        raise KvvizError(f"the stored ceilings can't be read: {error}; {how}") from error


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
    """Return the set of this environment, or None if it was not measured. Raises KvvizError for an invalid file."""
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
