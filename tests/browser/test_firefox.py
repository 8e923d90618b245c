"""The browser's engine in Firefox, where it is installed: its tokens are torch's, with WebAssembly and without.

Playwright drives a Firefox of its own alone, so a page that Firefox opens runs the engine and posts what it found.
"""

import json
import shutil
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue

import pytest
import torch

from kvviz.decoding.loop import decode
from kvviz.models.text import STORY, book
from kvviz.ui.static_edition.folder import write

pytestmark = pytest.mark.browser
NEW_TOKENS = 8
PROMPTS = [STORY, book()[700:760]]

PAGE = """<!doctype html><script type="module">
const found = { agent: navigator.userAgent, rows: [] }
try {
  const { decode, load } = await import("/assets/engine/decode.js")
  const { chooser } = await import("/assets/engine/sampling.js")
  const { order } = await (await fetch("/data.json")).json()
  const file = async (path, as) => (await fetch(`/assets/live/${path}`))[as]()
  const [config, tokenizer] = [await file(order.config, "json"), await file(order.tokenizer, "json")]
  const [weights, wasm] = [await file(order.weights, "arrayBuffer"), await file(order.wasm, "arrayBuffer")]
  for (const kernels of [undefined, "plain"]) {
    const engine = load({ config, tokenizer, weights, sha256: order.sha256 }, { wasm, kernels, positions: 128 })
    for (const prompt of PROMPTS) for (const mode of ["uncached", "cached"]) {
      const ids = engine.tokenizer.encode(prompt)
      const steps = decode(engine.model, ids, { mode, newTokens: NEW_TOKENS, choose: chooser() })
      found.rows.push({ kernels: engine.kernels, prompt, mode, tokens: [...steps].map((step) => step.id) })
    }
  }
} catch (error) {
  found.error = String(error)
}
await fetch("/found", { method: "POST", body: JSON.stringify(found) })
</script>"""


@pytest.fixture
def firefox():
    found = next(filter(None, map(shutil.which, ("firefox-esr", "firefox"))), None)
    if found is None:
        pytest.skip("Firefox is not installed")
    return found


def test_firefox_chooses_torchs_tokens(firefox, load, tmp_path):
    write(tmp_path / "edition", "mini-gpt2", [])
    page = PAGE.replace("NEW_TOKENS", str(NEW_TOKENS)).replace("PROMPTS", json.dumps(PROMPTS))
    (tmp_path / "edition" / "firefox.html").write_text(page, encoding="utf-8")
    told = Queue()

    class Taking(SimpleHTTPRequestHandler):
        def do_POST(self):
            told.put(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Taking, directory=tmp_path / "edition"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/firefox.html"
    (tmp_path / "profile").mkdir()
    options = ["--headless", "--no-remote", "--profile", str(tmp_path / "profile"), address]
    with subprocess.Popen([firefox, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            found = told.get(timeout=180)
        finally:
            process.terminate()
            server.shutdown()
            server.server_close()
    assert "error" not in found and "Firefox" in found["agent"]
    assert {row["kernels"] for row in found["rows"]} == {"wasm", "plain"}
    loaded = load("mini-gpt2", weights="bundled")
    for row in found["rows"]:
        prompt = torch.tensor([loaded.codec.encode(row["prompt"])])
        steps = decode(loaded.model, prompt, mode="cached", new_tokens=NEW_TOKENS)
        assert row["tokens"] == [step.token_ids.item() for step in steps], row
