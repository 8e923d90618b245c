"""A real server in its own process with its own home; its CPU time and memory as the system counts them."""

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from bench.checkout import ROOT

TICKS = os.sysconf("SC_CLK_TCK")


class Server:
    """`python app.py` on a free port, as a context manager: ready at its start, ended with a home of its own.

    Its log lies in its home, unless it is put elsewhere.
    """

    def __init__(self, home: Path | None = None, log: Path | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory() if home is None else None
        self.home = home or Path(self._folder.name)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log or self.home / "server.log"
        env = {**os.environ, "PORT": str(self.port), "KVVIZ_HOME": str(self.home)}
        with self.log.open("w") as log:
            self._process = subprocess.Popen([sys.executable, "app.py"], cwd=ROOT, env=env, stdout=log, stderr=log)

    def __enter__(self) -> "Server":
        try:
            self._wait()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """End the server."""
        self._process.terminate()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._folder is not None:
            self._folder.cleanup()

    def _wait(self) -> None:
        end = time.monotonic() + 90
        while time.monotonic() < end and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/healthz", timeout=5) as answer:
                    if b'"ready"' in answer.read():
                        return
            except OSError:
                pass
            time.sleep(0.1)
        raise SystemExit(f"the server did not come up:\n{self.log.read_text()[-2000:]}")

    def complaints(self) -> list[str]:
        """The lines of the server's log with an error."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [line for line in lines if "Error" in line or "Traceback" in line]

    def cpu_seconds(self) -> float:
        """Processor time of the server process so far, its worker's not included."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident_bytes(self) -> int:
        """Memory of the server process, its worker's not included."""
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise ProcessLookupError("the server has ended")
