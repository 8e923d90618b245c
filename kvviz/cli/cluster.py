"""`kvviz cluster`: the devices of a Ray cluster, as a dashboard that joins it would have them."""

from typing import Annotated

import typer

from kvviz.base.errors import KvvizError
from kvviz.base.settings import ray_address
from kvviz.base.words import human
from kvviz.cli.options import AsJson
from kvviz.cli.output import answer


def cluster(
    address: Annotated[
        str, typer.Option(help="Of the Ray cluster, such as 10.0.0.1:6379; KVVIZ_RAY_ADDRESS without it.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """List the devices of a Ray cluster's nodes; `KVVIZ_RAY_ADDRESS=ADDRESS kvviz serve` measures on them."""
    from kvviz.server.cluster import listed

    where = address or ray_address()
    if not where:
        raise KvvizError("name the cluster: --address 10.0.0.1:6379, or KVVIZ_RAY_ADDRESS")
    rows = listed(where)
    answer({"devices": rows}, lambda: "\n".join(map(_line, rows)) or "no node but this one", as_json)


def _line(row: dict[str, object]) -> str:
    if row["device"] is None:
        return f"{row['node']}: does not take part: {row['why']}"
    return f"{row['node']}/{row['device']}: {row['name']}, {human(float(str(row['free_bytes'])))} free"
