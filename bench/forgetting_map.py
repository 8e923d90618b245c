"""How many frames a second the map of forgotten tokens draws while it plays, in headless Chromium.

The map's own script gets seeded random evictions of a model with 48 layers and 8 KV heads that has read 4,096 tokens.
`frames_per_s` counts the frames of one play of all tokens, which lasts 8 seconds; `draw_ms` is what a frame's drawing
takes, the median of 100 moments of the text.

    python bench/forgetting_map.py --json
"""

import argparse
import base64
import functools
import http.server
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import sync_playwright

if not __package__:
    import checkout  # noqa: F401

from bench.pages import ARGS
from kvviz.charts import palette
from kvviz.ui.folders import ASSETS

PAGE = """<!doctype html><meta charset="utf-8"><body style="margin:24px;width:1300px">
<div id="place"><div class="kv-forgetting kv-live"></div></div>"""

PLAY = """async (data) => {
  const { mount } = await import("/caches/forgetting.js")
  const place = document.querySelector("#place")
  mount({ data, parentElement: place })
  const map = place.querySelector(".kv-forgetting").kvForgetting()
  const spent = []
  for (let i = 0; i < 100; i++) {
    map.step = -1
    const start = performance.now()
    map.goTo(Math.floor((i + 0.5) * map.tokens / 100))
    spent.push(performance.now() - start)
  }
  map.goTo(0)
  for (let i = 0; i < 3; i++) await new Promise(requestAnimationFrame)  // the first has a time from before the drawing
  let frames = 0
  const draw = map.draw.bind(map)
  map.draw = () => { frames++; draw() }
  const start = performance.now()
  map.start()
  while (map.playing !== null) await new Promise((next) => setTimeout(next, 50))
  const seconds = (performance.now() - start) / 1000
  const canvas = place.querySelector("[data-testid=kv-forgetting-map]")
  const { width, height } = canvas
  const pixels = canvas.getContext("2d").getImageData(0, 0, width, height).data
  const colours = new Set(new Uint32Array(pixels.buffer)).size
  if (map.step !== map.tokens - 1) throw new Error(`the play ended at token ${map.step}`)
  return { frames, seconds, draw_ms: spent.sort((a, b) => a - b)[50], width, height, colours }
}"""


def drawn(layers: int, heads: int, tokens: int) -> dict[str, Any]:
    """What the page hands to the map: each head lets go of half of the tokens, some time after they came."""
    rng, every = np.random.default_rng(0), np.arange(tokens)
    gone = every + rng.geometric(8 / tokens, (layers, heads, tokens))
    gone = np.where(rng.random(gone.shape) < 0.5, np.minimum(gone, tokens), tokens).astype(np.uint16)
    moments = [tokens // 2 - 1, tokens - 1]
    history = rng.integers(0, 255, (len(moments), layers, tokens), dtype=np.uint8)

    def packed(numbers: np.ndarray) -> str:
        return base64.b64encode(numbers.tobytes()).decode()

    run = {"title": "Random", "layers": list(range(layers)), "heads": heads, "scored": True, "moments": moments}
    run |= {"gone": packed(gone), "history": packed(history), "lost": rng.random((layers, tokens)).round(3).tolist()}
    colours = {"kept": palette.KEPT, "evicted": palette.GIVEN_UP, "ahead": palette.FREE}
    both = {name: [colour, palette.ON_DARK.get(colour, colour)] for name, colour in colours.items()}
    return {"name": "largest", "run": run, "pieces": [" word"] * tokens, "colours": both, "assets": ""}


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves the assets, and the page at the root."""

    def do_GET(self) -> None:
        if self.path != "/":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document (it always does)")
    parser.add_argument("--layers", type=int, default=48)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--screenshot", type=Path, help="also write a picture of the map as it ends")
    asked = parser.parse_args()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=ASSETS))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGS)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        found = page.evaluate(PLAY, drawn(asked.layers, asked.heads, asked.tokens))
        if asked.screenshot:
            page.screenshot(path=asked.screenshot)
        version = browser.version
        browser.close()
    server.shutdown()
    sizes = {"layers": asked.layers, "heads": asked.heads, "tokens": asked.tokens}
    rate = {"frames_per_s": found["frames"] / found["seconds"]}
    print(json.dumps({**sizes, **rate, **found, "environment": {"chromium": version}}))


if __name__ == "__main__":
    main()
