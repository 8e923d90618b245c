"""Real servers with OpenAI's interface, started here with a bundled model: llama.cpp's own and `transformers serve`.

llama.cpp's comes as a wheel, `pip install xllamacpp gguf`; the other is part of `pip install "transformers[serving]"`.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from bench.llama_cpp_peer import write_gguf
from kvviz.decoding.loading import load
from kvviz.models.catalog.rows import HERE
from kvviz.models.sources import find_source

MODEL = "mini-gpt2"
PATIENCE = 60.0  # seconds until a server is well
_LLAMA = """
import signal, sys, xllamacpp
given = xllamacpp.CommonParams()
given.model.path, (tokens, slots, threads, port) = sys.argv[1], map(int, sys.argv[2:])
given.n_ctx, given.n_parallel, given.cpuparams.n_threads, given.port = tokens, slots, threads, port
given.endpoint_metrics = given.endpoint_slots = True
given.warmup = given.use_jinja = given.enable_chat_template = False
server = xllamacpp.Server(given)
signal.pause()
"""


@contextmanager
def started(command: Sequence[str], cores: Sequence[int] = ()) -> Iterator[str]:
    """Start a server, whose last argument is its port, on these cores (none: any); yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder, Path(folder, "log").open("w") as log:
        apart = {"HF_HUB_CACHE": folder, "HF_HUB_OFFLINE": "1"}
        server = subprocess.Popen([*command, str(port)], env={**os.environ, **apart}, stdout=log, stderr=log)
        try:
            if cores:
                os.sched_setaffinity(server.pid, cores)
            _wait(f"http://127.0.0.1:{port}/health", server, Path(folder, "log"))
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(20)


def _wait(address: str, server: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and server.poll() is None:
        try:
            return urlopen(address, timeout=1).close()
        except (URLError, OSError):
            time.sleep(0.2)
    raise SystemExit(f"the server did not start: {log.read_text()[-400:]}")


def llama_cpp_version() -> str:
    """The build of llama.cpp in the wheel: the last part of its version."""
    return f"b{version('xllamacpp').rpartition('.')[2]}"


@contextmanager
def llama_cpp(model: str = MODEL, *, slots: int = 2, tokens: int = 512, cores: Sequence[int] = ()) -> Iterator[str]:
    """llama.cpp's server with a bundled GPT-2 in float32: so many slots with room for so many tokens together."""
    loaded = load(find_source(model, "bundled"), dtype="float32", device="cpu", attn="sdpa")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, f"{model}.gguf")
        write_gguf(loaded, file, HERE / "bundled" / model / "tokenizer.json")
        threads = len(cores) or max(1, (os.cpu_count() or 2) - 1)
        sizes = (str(tokens), str(slots), str(threads))
        with started([sys.executable, "-c", _LLAMA, str(file), *sizes], cores) as address:
            yield address


@contextmanager
def transformers_serve(model: str = MODEL, command: str = "", cores: Sequence[int] = ()) -> Iterator[str]:
    """`transformers serve` with a bundled model, whose name there is that of its folder."""
    program = command or str(Path(sys.executable).with_name("transformers"))
    with started([program, "serve", bundled(model), "--device", "cpu", "--port"], cores) as address:
        yield address


def bundled(model: str) -> str:
    """The folder of a bundled model."""
    return str(HERE / "bundled" / model)
