"""Take the pictures of README and documentation, and the README's animation: `make screens`.

They are of a server that this starts with an empty KVVIZ_HOME, so they show the recordings that come with kvviz and
nothing of this machine. `python -m tools.screens animation` takes those whose names begin so. The picture of a room is
made by hand, since it takes a class. Needs Chromium. The clock of the animation is the script's own, so that a busy
machine makes the same one.
"""

import io
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, Route, sync_playwright

from kvviz.cli.port import health_at

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def _drawn(page: Page) -> None:
    page.locator(".js-plotly-plot .main-svg").first.wait_for(timeout=60_000)


def _replayed(page: Page) -> None:
    page.wait_for_function(
        "() => document.querySelector('[data-testid=kv-chart]')?.data?.some((line) => line.x.length === 192)",
        timeout=60_000,
    )


# picture: page, width, height, what to wait for
SCREENS: dict[str, tuple[str, int, int, Callable[[Page], None]]] = {
    "start": ("", 1440, 960, _replayed),
    "screens/mistakes-1280": ("mistakes", 1280, 1200, _drawn),
    "screens/roofline-1280": ("roofline", 1280, 940, _drawn),
    "screens/memory-1440": ("memory", 1440, 1000, _drawn),
}
ANIMATION = "animation"
FRAME_MS, FRAMES, STILL, HOLD_MS = 100, 120, 25, 4_000  # between two, at most, alike at the end, of the last one
WIDTH, COLOURS, LARGEST = 820, 128, 2 * 2**20  # pixels, colours, bytes
RECORDING = "**/recording.json.gz"


@contextmanager
def server() -> Iterator[str]:
    """The address of a server of one's own, which knows no runs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "PORT": str(port), "HOST": "127.0.0.1", "KVVIZ_HOME": home, "KVVIZ_LOG": "error"}
        running = subprocess.Popen([sys.executable, "app.py"], cwd=ROOT, env=environment)
        try:
            end = time.monotonic() + 180
            while (health_at("127.0.0.1", port) or {}).get("status") != "ok":
                if running.poll() is not None or time.monotonic() > end:
                    raise SystemExit("the server did not start")
                time.sleep(0.2)
            yield f"http://127.0.0.1:{port}"
        finally:
            running.terminate()
            running.wait(timeout=60)


def picture(browser: Browser, url: str, name: str) -> None:
    """Take one picture, on a light page."""
    path, width, height, wait = SCREENS[name]
    page = browser.new_page(viewport={"width": width, "height": height})
    page.goto(f"{url}/{path}")
    wait(page)
    page.wait_for_timeout(3_000)  # what fades in has done so
    page.screenshot(path=DOCS / f"{name}.png")
    page.close()


def animation(browser: Browser, url: str) -> None:
    """Film the first page's recording, frame by frame at the pace at which it is shown.

    The page's clock stands still before the recording arrives, and then moves on by a frame at a time.
    """
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    held: list[Route] = []
    page.route(RECORDING, lambda route: held.append(route))
    page.clock.install()
    page.goto(url)
    page.locator("[data-testid=kv-chart]").wait_for(timeout=60_000)
    while not held:
        page.wait_for_timeout(100)
    page.wait_for_timeout(2_000)  # what fades in has done so
    page.clock.pause_at(page.evaluate("Date.now()") + 1_000)
    with page.expect_response(RECORDING):
        held[0].continue_()
    frames: list[bytes] = []
    while len(frames) < FRAMES and (len(frames) < STILL or len(set(frames[-STILL:])) > 1):
        page.clock.run_for(FRAME_MS)
        box = page.locator(".kv-live").bounding_box()
        assert box is not None
        clip = {"x": box["x"], "y": box["y"], "width": box["width"], "height": 890 - box["y"]}
        frames.append(page.screenshot(clip=clip))
    page.close()
    path = DOCS / f"{ANIMATION}.gif"
    write(path, frames[: 1 - STILL])
    print(f"{path}: {len(frames)} frames, {path.stat().st_size:,} bytes")
    if path.stat().st_size > LARGEST:
        raise SystemExit(f"that is more than {LARGEST:,} bytes: take fewer colours or a smaller WIDTH")


def write(path: Path, frames: list[bytes]) -> None:
    """Write frames as a GIF with one palette: that of the last, fullest frame."""
    images = [Image.open(io.BytesIO(data)).convert("RGB") for data in frames]
    size = (WIDTH, round(images[0].height * WIDTH / images[0].width))
    images = [image.resize(size, Image.Resampling.LANCZOS) for image in images]
    palette = images[-1].quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE)
    flat = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    pauses = [*([FRAME_MS] * (len(flat) - 1)), HOLD_MS]
    flat[0].save(path, save_all=True, append_images=flat[1:], duration=pauses, loop=0, optimize=True)


def main(asked: str) -> None:
    """Take every picture whose name begins with `asked`."""
    found = shutil.which("chromium") or shutil.which("google-chrome")
    with server() as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        for name in SCREENS:
            if name.startswith(asked):
                picture(browser, url, name)
        if ANIMATION.startswith(asked):
            animation(browser, url)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
