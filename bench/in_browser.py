"""The browser's engine in headless Chromium, beside the server's modes on the same prompt, and as on a phone.

    python bench/in_browser.py --json                 server eager and compiled, browser WebAssembly and JavaScript
    python bench/in_browser.py --keep                 the same, kept: it prints the address that draws them as one chart
    python bench/in_browser.py --throttle 4 --json    the browser alone, its processor slowed down as Chrome's tools do

What a throttle of 4 stands for: it is the preset "Mid-tier mobile" of Chrome's developer tools and the multiplier with
which Lighthouse stands for such a phone (https://github.com/GoogleChrome/lighthouse/blob/main/docs/throttling.md). Both
mean a fast desktop that is slowed down to it; of a slower machine it makes a slower phone. Chromium stops the page's
thread for three quarters of the time: caches and memory stay this machine's. The throttle is meant for the page's
thread, so the engine runs in that one here, and not in a worker. `throttle_observed` is how much longer a fixed loop
took.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

if not __package__:
    import checkout  # noqa: F401

from playwright.sync_api import Page, sync_playwright

from kvviz.cli.files import open_store
from kvviz.cli.measure_here import alone, bench_here, document_here
from kvviz.experiments.comparison.figures import finished
from kvviz.experiments.comparison.in_browser import decoded_there, order_of
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.models.text import STORY
from kvviz.store.files import exchange
from kvviz.store.files.browser import from_browser
from kvviz.store.files.reading import Imported
from kvviz.ui.static_edition.folder import write

KERNELS = {"wasm": "WebAssembly with SIMD", "plain": "plain JavaScript"}
SERVER = ("uncached", "cached", "compiled")

DECODE = """async ({ kernels, order, environment }) => {
  const beside = new URL("assets/live/", location.href)
  const got = async (path, as) => (await fetch(new URL(path, beside)))[as]()
  const { load } = await import(new URL("../engine/decode.js", beside))
  const { Tokenizer } = await import(new URL("../engine/tokenizer.js", beside))
  const { comparison, promptOf } = await import(new URL("browser_comparison.js", beside))
  const [config, tokenizer] = await Promise.all([got(order.config, "json"), got(order.tokenizer, "json")])
  const [weights, wasm] = await Promise.all([got(order.weights, "arrayBuffer"), got(order.wasm, "arrayBuffer")])
  const positions = promptOf(order, new Tokenizer(tokenizer)).length + order.spec.new_tokens
  const files = { config, tokenizer, weights, sha256: order.sha256 }
  const engine = load(files, { wasm, kernels, positions, caches: order.modes.length })
  return [...comparison(engine, order, environment)]
}"""
LOOP = """() => {
  const began = performance.now()
  let x = 1
  for (let i = 0; i < 3e7; i++) x = (x * 48271) % 2147483647
  return [performance.now() - began, x][0]
}"""


class Quiet(SimpleHTTPRequestHandler):
    """A plain file server without a line for each request."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def opened(model: str) -> Iterator[Page]:
    """A page of a static edition in headless Chromium."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        write(Path(folder) / "edition", model, [])
        handler = partial(Quiet, directory=str(Path(folder) / "edition"))
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        chromium = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        page = chromium.new_page()
        page.set_default_timeout(600_000)
        page.goto(f"http://127.0.0.1:{server.server_port}/?page=start")
        yield page
        chromium.close()
        server.shutdown()


def in_browser(page: Page, work: ComparisonSpec, kernels: str, throttle: float) -> tuple[Imported, float]:
    """Decode in the page's own thread; returns the comparison and how much the throttle slowed a fixed loop."""
    plain = statistics.median(page.evaluate(LOOP) for _ in range(5))
    session = page.context.new_cdp_session(page)
    session.send("Emulation.setCPUThrottlingRate", {"rate": throttle})
    slowed = statistics.median(page.evaluate(LOOP) for _ in range(5))
    version = page.context.browser.version.split(".")[0] if page.context.browser else ""
    environment = {
        **{"device": "browser", "device_name": f"Chromium {version}, {KERNELS[kernels]}", "threads": 1, "cores": 0},
        **{"platform": page.evaluate("navigator.platform"), "dtype": "float32"},
        **{"attn_implementation": KERNELS[kernels], "torch": "none", "transformers": "none", "python": "none"},
    }
    records = page.evaluate(
        DECODE, {"kernels": kernels, "order": order_of(decoded_there(work)), "environment": environment}
    )
    session.send("Emulation.setCPUThrottlingRate", {"rate": 1})
    return from_browser(records), slowed / plain


def on_server(work: ComparisonSpec) -> Imported:
    """Decode here as the server's worker does."""
    records: list[Any] = []
    with bench_here("bench/in_browser.py") as bench:
        document_here(work, bench, records.append)
    return Imported(*finished(records))


def rows_of(name: str, comparison: Imported) -> list[dict[str, Any]]:
    """The figures of each mode."""
    document = comparison.document
    assert document is not None
    names = ("mode", "ttft_s", "itl_s", "total_s", "speedup", "token_ids")
    return [{"where": name, **{field: run[field] for field in names}} for run in document["runs"]]  # type: ignore[literal-required]


def table(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with their ratio to the first run with a cache, the server's if there is one; whether tokens agree."""
    base = next(row for row in rows if row["mode"] == "cached")
    return [
        {
            **{name: value for name, value in row.items() if name != "token_ids"},
            "step_ratio": row["itl_s"] / base["itl_s"],
            "same_tokens": row["token_ids"] == base["token_ids"],
        }
        for row in rows
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document (else a table)")
    parser.add_argument("--model", default="mini-gpt2")
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--kernels", default=",".join(KERNELS), help="how the browser computes")
    parser.add_argument("--throttle", type=float, help="slow the page down so many times, and leave the server out")
    parser.add_argument("--keep", action="store_true", help="keep the runs, and print the compare page's address")
    asked = parser.parse_args()
    shape: dict[str, Any] = {"prompt": STORY, "new_tokens": asked.new_tokens, "repeats": asked.repeats}
    work = ComparisonSpec(asked.model, weights="bundled", dtype="float32", modes=("uncached", "cached"), **shape)
    found: dict[str, Imported] = {}
    observed: dict[str, float] = {}
    if asked.throttle is None:
        found["server"] = on_server(ComparisonSpec(asked.model, weights="bundled", modes=SERVER, **shape))
    with alone("bench/in_browser.py"), opened(asked.model) as page:
        for kernels in asked.kernels.split(","):
            found[kernels], observed[kernels] = in_browser(page, work, kernels, asked.throttle or 1)
    rows = table([row for name, one in found.items() for row in rows_of(name, one)])
    answer: dict[str, Any] = {"model": asked.model, "new_tokens": asked.new_tokens, "rows": rows}
    if asked.throttle is not None:
        both = {name: sum(row["total_s"] for row in rows if row["where"] == name) for name in found}
        answer |= {"throttle": asked.throttle, "throttle_observed": observed, "both_ways_s": both}
    if asked.keep:
        kept = {name: exchange.take_in(open_store(), exchange.written(one, "json")) for name, one in found.items()}
        wanted = [
            (name, mode) for name in kept for mode in (("cached", "compiled") if name == "server" else ("cached",))
        ]
        wanted += [(name, "uncached") for name in kept if name != "plain"]
        answer["compare"] = f"/compare?runs={','.join(f'{kept[name]}-{mode}' for name, mode in wanted)}"
    if asked.json:
        print(json.dumps(answer))
        return
    for row in rows:
        print(
            f"{row['where']:7} {row['mode']:9} step {1000 * row['itl_s']:8.3f} ms ({row['step_ratio']:6.2f}×), "
            f"{asked.new_tokens} tokens in {row['total_s']:.3f} s, same tokens: {row['same_tokens']}"
        )
    for name in ("throttle_observed", "both_ways_s", "compare"):
        if name in answer:
            print(f"{name}: {answer[name]}")


if __name__ == "__main__":
    main()
