"""The map of what was forgotten, painted in node: which colour each token has at a step."""

import json
import shutil
import subprocess

import pytest

from kvviz.ui.folders import ASSETS

SCRIPT = """
import {{ paint, keepers, ticksOf }} from "{file}"
const tokens = 6
const gone = Uint16Array.from([6, 2, 3, 6, 6, 6,  6, 3, 3, 6, 6, 6])  // two heads of one layer
const colours = {{ kept: [0, 11, 12], evicted: 100, ahead: 7 }}
const drawn = (heads, step) => {{
  const rows = 2 / heads
  const pixels = new Uint32Array(rows * tokens)
  paint(pixels, {{ gone, tokens, rows, heads, step }}, colours)
  return [...pixels]
}}
const counts = [...keepers({{ gone, tokens, step: 2 }}, new Uint16Array(tokens))]
console.log(JSON.stringify({{ layer: drawn(2, 2), later: drawn(2, 4), heads: drawn(1, 2), counts,
                             ticks: [1, 100, 192, 1000].map(ticksOf) }}))
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="node runs the page's script")
def test_kept_evicted_and_still_to_come():
    script = SCRIPT.format(file=(ASSETS / "caches" / "paint.js").as_uri())
    command = ["node", "--input-type=module", "-e", script]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)
    assert found["layer"] == [12, 11, 12, 7, 7, 7], "one head has let go of the second token, so the layer keeps it"
    assert found["later"] == [12, 100, 100, 12, 12, 7], "gone from both heads"
    assert found["heads"] == [11, 100, 11, 7, 7, 7, 11, 11, 11, 7, 7, 7]
    assert found["counts"] == [2, 1, 2, 0, 0, 0]
    assert found["ticks"] == [[1], [1, 64, 100], [1, 64, 128, 192], [1, 256, 512, 768, 1000]]
