"""Opens a browser when the server that was just started answers: `python -m kvviz.cli.open_browser HOST PORT`."""

import sys
import time
import webbrowser

from kvviz.cli.port import health_at

PATIENCE_S = 120


def main(host: str, port: int) -> None:
    """Wait until the server answers, at most two minutes, and open its first page."""
    here = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if (health_at(here, port) or {}).get("status") == "ok":
            webbrowser.open(f"http://{f'[{here}]' if ':' in here else here}:{port}")
            return
        time.sleep(0.2)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
