"""`python -m kvviz.worker FD CORES [NAME]`: started by the scheduler, never by hand.

One of several workers has a name, such as cuda:1, and `auto` stands for its own device.
`python -m kvviz.worker devices` describes the devices that work, as JSON.
"""

import json
import os
import signal
import sys

from kvviz.base.settings import device_of
from kvviz.device.cores import pin

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches a whole group: the server tells its worker to stop
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # torch's profiler would write each start into the server's log
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # and its allocator a line about profiling
    if sys.argv[1] == "devices":
        from kvviz.device.environment import working_devices

        print(json.dumps(working_devices()))
        raise SystemExit
    pin([int(core) for core in sys.argv[2].split(",") if core])  # before torch counts the cores
    name = sys.argv[3] if len(sys.argv) > 3 else ""
    if name:
        os.environ["KVVIZ_DEVICE"] = device_of(name)
    from kvviz.worker.loop import main

    main(int(sys.argv[1]), name)
