"""The probe in a process of its own, with a time limit: the server that shows its answer never imports torch."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

from kvviz.base.errors import KvvizError
from kvviz.base.paths import CHECKOUT

LIMIT = 90.0  # seconds; the slowest published model takes a third of it

MEMORY = 8 * 2**30  # bytes; DeepSeek-V3 takes less than a GiB
# Sets the limit, then becomes the command: a config may describe a model of any number of parts.
_BOUNDED = f"""import os, sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_DATA, ({MEMORY}, {MEMORY}))
except (ImportError, ValueError, OSError):
    pass
os.execv(sys.argv[1], sys.argv[1:])
"""

_ONE_AT_A_TIME = threading.Lock()


def probe_apart(
    config: Mapping[str, Any],
    *,
    tokens: int,
    batch: int = 1,
    dtype: str = "bfloat16",
    source_tokens: int | None = None,
    limit: float = LIMIT,
) -> dict[str, Any]:
    """The document of `kvviz probe` for a config. Raises KvvizError with its sentence, or when `limit` seconds passed.

    One probe runs at a time; another waits its turn for as long as its own limit.
    """
    command = [sys.executable, "-m", "kvviz", "probe", "-", "--json", "--dtype", dtype]
    command += ["--tokens", str(tokens), "--batch", str(batch)]
    command += ["--source-tokens", str(source_tokens)] if source_tokens else []
    if not _ONE_AT_A_TIME.acquire(timeout=limit):
        raise KvvizError("another model is being probed; try again in a minute")
    try:
        done = subprocess.run(
            [sys.executable, "-c", _BOUNDED, *command],
            input=json.dumps(config),
            capture_output=True,
            text=True,
            timeout=limit,
            cwd=CHECKOUT,
            check=False,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},  # a config that asks for more than itself gets nothing
        )
    except subprocess.TimeoutExpired as error:
        raise KvvizError(f"the probe took longer than {limit:.0f} s and was stopped; fewer tokens may do") from error
    finally:
        _ONE_AT_A_TIME.release()
    if done.returncode:
        raise KvvizError(_sentence(done.stderr))
    return json.loads(done.stdout)


def _sentence(text: str) -> str:
    """What the command said last, without its name."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("kvviz: ") if lines else "the probe ended without a word"
