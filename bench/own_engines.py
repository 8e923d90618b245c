"""One chart of the same work, decoded here, by transformers' own server and by llama.cpp's: one model, one text.

The modes `cached` and `compiled` decode in this process. `transformers serve` and llama.cpp's server (a wheel) are
started on loopback with the same weights, one after the other, and asked as the mode `endpoint`. The comparisons are
kept where there is a store: the address of the compare page at the end shows the curves on one chart. A server that is
not installed is left out, with the reason. Rows are printed as they come.

    python bench/own_engines.py --json
    python bench/own_engines.py --transformers /path/to/another/venv/bin/transformers --running vLLM=http://127.0.0.1:8000
"""

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

if not __package__:
    import checkout  # noqa: F401

from bench import own_servers
from kvviz.base.records import new_id
from kvviz.cli.files import open_store
from kvviz.cli.measure_here import bench_here, document_here
from kvviz.device.cores import share_of_cores
from kvviz.experiments.comparison.endpoint_words import told_of_cache
from kvviz.experiments.comparison.figures import finished
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.models.text import STORY
from kvviz.store.files import exchange, reading

MODES = ("cached", "compiled")


def measure(model: str, new_tokens: int, repeats: int, command: str, running: Sequence[str] = ()) -> dict[str, Any]:
    """Measure the modes once beside each server that is there, print a row for each, and return all.

    `running` are servers that somebody else has started with the model, each as NAME=ADDRESS.
    """
    _, cores = share_of_cores()  # before this process takes the others
    rows, ids, left_out = list[dict[str, Any]](), list[str](), dict[str, str]()
    with bench_here("the engines") as bench:
        started = {name: nullcontext(url) for name, _, url in (one.partition("=") for one in running)}
        for name, server in {**_servers(model, command, cores), **started}.items():
            try:
                with server as url:
                    named = own_servers.bundled(model) if name == "transformers serve" else None
                    spec = ComparisonSpec(
                        model,
                        modes=(*MODES, "endpoint"),
                        prompt=STORY,
                        new_tokens=new_tokens,
                        repeats=repeats,
                        endpoint=url,
                        endpoint_model=named,
                    )
                    records: list[Any] = []
                    document_here(spec, replace(bench, id=new_id()), records.append)
            except (SystemExit, OSError) as error:
                left_out[name] = str(error)[-300:]
                print(f"{name} is left out: {left_out[name]}", file=sys.stderr, flush=True)
                continue
            document, kept = finished(records)
            exchange.keep(open_store(), reading.Imported(document, kept), origin="run")
            for run in document["runs"]:
                rows.append(_row(name, run))
                print(_line(rows[-1]), file=sys.stderr, flush=True)
            ids += [run["id"] for run in document["runs"] if run["mode"] == "endpoint" or not ids[1:]]
            environment = document["environment"]
    if not rows:
        raise SystemExit(f"no server could be started: {left_out}")
    return {"environment": environment, "rows": rows, "left_out": left_out, "page": f"/compare?runs={','.join(ids)}"}


def _servers(model: str, command: str, cores: list[int]) -> dict[str, AbstractContextManager[str]]:
    there = {"transformers serve": own_servers.transformers_serve(model, command, cores)}
    return there | ({"llama.cpp": own_servers.llama_cpp(model, cores=cores)} if find_spec("xllamacpp") else {})


def _row(beside: str, run: dict[str, Any]) -> dict[str, Any]:
    names = ("mode", "itl_s", "itl_mean_s", "ttft_s", "total_s", "identical")
    engine = run["engine"] and {name: run["engine"][name] for name in ("name", "version", "cached_tokens")}
    told = told_of_cache(run) if run["engine"] else None
    return {"beside": beside, **{name: run[name] for name in names}, "engine": engine, "told_of_its_cache": told}


def _line(row: dict[str, Any]) -> str:
    who = row["beside"] if row["mode"] == "endpoint" else f"{row['mode']}, beside {row['beside']}"
    times = f"first token {1e3 * row['ttft_s']:.2f} ms, then {1e3 * row['itl_mean_s']:.3f} ms a token"
    said = f"; {row['told_of_its_cache']}" if row["told_of_its_cache"] else ""
    return f"{who}: {times}, {'the same text' if row['identical'] else 'another text'}{said}"


def main() -> None:
    """Read the command line and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=own_servers.MODEL)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--transformers", default="", help="the program of `transformers serve`, if it is elsewhere")
    parser.add_argument("--running", nargs="*", default=[], metavar="NAME=ADDRESS", help="servers with the model")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measure(given.model, given.new_tokens, given.repeats, given.transformers, given.running)
    print(json.dumps(found, indent=1) if given.json else f"all curves on one chart: {found['page']}")


if __name__ == "__main__":
    main()
