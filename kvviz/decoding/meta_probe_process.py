"""Run the probe in a child process with a time limit, so that the server never imports torch."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

from kvviz.base.errors import KvvizError
from kvviz.base.paths import CHECKOUT

LIMIT = 90.0  # seconds; the slowest published model needs a third of it

MEMORY = 8 * 2**30  # bytes; DeepSeek-V3 needs less than 1 GiB
# Limits the memory first and then replaces itself with the command: a config may describe a model with any number
# of modules.
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
) -> dict[str, Any]:
    """Return the JSON document of `kvviz probe` for a config.

    Only one probe runs at a time; others wait for at most LIMIT seconds. Raises KvvizError with the probe's last
    message if it fails, and when it takes longer than that.
    """
    command = [sys.executable, "-m", "kvviz", "probe", "-", "--json", "--dtype", dtype]
    command += ["--tokens", str(tokens), "--batch", str(batch)]
    command += ["--source-tokens", str(source_tokens)] if source_tokens else []
    if not _ONE_AT_A_TIME.acquire(timeout=LIMIT):
        raise KvvizError("another model is being probed; try again in a minute")
    try:
        done = subprocess.run(
            [sys.executable, "-c", _BOUNDED, *command],
            input=json.dumps(config),
            capture_output=True,
            text=True,
            timeout=LIMIT,
            cwd=CHECKOUT,
            check=False,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},  # a config cannot make the probe download anything
        )
    except subprocess.TimeoutExpired as error:
        raise KvvizError(f"the probe took longer than {LIMIT:.0f} s and was stopped; fewer tokens may do") from error
    finally:
        _ONE_AT_A_TIME.release()
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise KvvizError(said[-1].removeprefix("kvviz: ") if said else "the probe ended without a word")
    return json.loads(done.stdout)
