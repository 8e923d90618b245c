"""Opens the dashboard, from a checkout or from an installed package."""

import os
import subprocess
import sys
from importlib.util import find_spec
from typing import Annotated

import typer

from kvviz.base.errors import KvvizError
from kvviz.base.paths import dashboard
from kvviz.cli.port import asked_port, bind_problem

PORT = Annotated[int | None, typer.Option(help="The TCP port to listen at. [default: $PORT, else 8501]")]
HOST = Annotated[str | None, typer.Option(help="The address to listen at. [default: $HOST, else 127.0.0.1]")]
BROWSER = Annotated[bool | None, typer.Option(help="Open the page in a browser. [default: where there is a screen]")]


def serve(port: PORT = None, host: HOST = None, browser: BROWSER = None) -> None:
    """Open the dashboard, for this machine alone unless --host says otherwise."""
    if find_spec("streamlit") is None:
        raise KvvizError("the dashboard's packages are not installed here: pip install 'kvviz[dashboard]' brings them")
    given = {name: str(value) for name, value in (("PORT", port), ("HOST", host)) if value is not None}
    environment = {**os.environ, **given}
    host, port = environment.get("HOST") or "127.0.0.1", asked_port(environment)
    if problem := bind_problem(host, port):
        raise KvvizError(f"{problem}; take another --port or --host")
    if has_screen() if browser is None else browser:
        subprocess.Popen([sys.executable, "-m", "kvviz.cli.open_browser", host, str(port)], stdin=subprocess.DEVNULL)
    os.chdir(dashboard())  # Streamlit reads its settings there
    os.execve(sys.executable, [sys.executable, "app.py"], environment)  # signals reach the server itself


def has_screen() -> bool:
    """Whether a browser can be seen: this machine has a screen, and a person started the command in a terminal."""
    shown = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(shown) and sys.stdout.isatty()
