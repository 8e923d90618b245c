"""A quantity is written alike by the page's scripts and by the server."""

import pytest

from kvviz.base.words import human, lasting, millis

pytestmark = pytest.mark.browser

BYTES = (0, 512, 1023, 1024, 28_672, 1_048_575, 1_048_576, 5_242_880, 1_610_612_736, 2**41)
SECONDS = (0.000_012_3, 0.001_234, 0.012_34, 0.1, 0.9996, 1.0, 9.96, 25.0, 89.0, 91.0, 200.0, 5_400.0)


def test_scripts_and_server_write_alike(open_page, measured):
    page = open_page(measured("tiny-gpt2"))
    page.wait_for_selector("link[data-kv]", state="attached")
    sizes, short, long = page.evaluate(
        """async ([sizes, seconds]) => {
          const at = new URL("..", document.querySelector("link[data-kv]").href).href
          const { bytes, ms, duration } = await import(at + "shared/format.js")
          return [sizes.map(bytes), seconds.map(ms), seconds.map(duration)]
        }""",
        [BYTES, SECONDS],
    )
    assert sizes == [human(n) for n in BYTES]
    assert short == [millis(s) for s in SECONDS]
    assert long == [millis(s) if s < 1 else lasting(s) for s in SECONDS]
