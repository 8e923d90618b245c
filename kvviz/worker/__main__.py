"""`python -m kvviz.worker FD CORES`: started by the scheduler, never by hand."""

import os
import signal
import sys

from kvviz.device.cores import pin

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches a whole group: the server tells its worker to stop
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # torch's profiler would write each start into the server's log
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # and its allocator a line about profiling
    pin([int(core) for core in sys.argv[2].split(",") if core])  # before torch counts the cores
    from kvviz.worker.loop import main

    main(int(sys.argv[1]))
