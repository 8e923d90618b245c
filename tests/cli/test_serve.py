"""`kvviz serve`: a wheel holds all that the dashboard needs, wherever it was installed."""

import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from kvviz.base.paths import CHECKOUT
from kvviz.cli import open_browser
from kvviz.cli.port import health_at

LARGEST = 8 * 2**20


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=CHECKOUT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


@pytest.mark.slow
def test_it_holds_all_files_of_the_package_but_bytecode_and_the_documentation(wheel):
    left_out = {"__pycache__", "site"}
    paths = [
        path
        for path in (CHECKOUT / "kvviz").rglob("*")
        if path.is_file() and not left_out & {*path.relative_to(CHECKOUT).parts}
    ]
    known = {path.relative_to(CHECKOUT).as_posix() for path in paths}
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    beside = {name for name in names if name.startswith("kvviz/dashboard/")}
    assert {f"kvviz/dashboard/{name}" for name in ("app.py", "pages/live.py", ".streamlit/config.toml")} <= beside
    assert names - beside == known
    assert wheel.stat().st_size < LARGEST


@pytest.mark.slow
@pytest.mark.worker
def test_it_serves_from_where_it_was_installed(wheel, tmp_path, free_port):
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "KVVIZ_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "kvviz", "serve", "--port", str(free_port), "--no-browser"]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
    end = time.monotonic() + 180
    while (health_at("127.0.0.1", free_port) or {}).get("status") != "ok":
        assert server.poll() is None and time.monotonic() < end, (tmp_path / "log").read_text()
        time.sleep(0.1)
    read = Path(f"/proc/{server.pid}/cwd")
    if read.exists():
        assert read.resolve() == tmp_path / "site/kvviz/dashboard"
    server.terminate()
    assert server.wait(timeout=60) == 0


@pytest.mark.parametrize(("arguments", "says"), [(["--port", "0"], "PORT is '0'"), (["--host", "192.0.2.1"], "--host")])
def test_an_address_that_nobody_can_have_is_one_sentence(refused, arguments, says):
    refused(says, "serve", *arguments)


def test_a_browser_is_opened_once_the_server_answers(monkeypatch):
    answers, opened = iter([None, {}, {"status": "ok"}]), []
    monkeypatch.setattr(open_browser, "health_at", lambda host, port: next(answers))
    monkeypatch.setattr(open_browser.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(open_browser.webbrowser, "open", opened.append)
    open_browser.main("0.0.0.0", 8599)
    assert opened == ["http://127.0.0.1:8599"]
