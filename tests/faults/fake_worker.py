"""A worker without a model: `python fake_worker.py FD CORES`. It does what a prompt says, in the worker's own words.

"N records" sends so many and is done; "hang" begins a step that never ends.
"""

import json
import sys
import threading
import time
from multiprocessing.connection import Connection

pipe = Connection(int(sys.argv[1]))
stopped: set[str] = set()
jobs: list[dict] = []


def listen():
    while True:
        try:
            message = json.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            import os

            os._exit(0)
        if message["do"] == "stop":
            stopped.add(message["id"])
        else:
            jobs.append(message)


def send(name, record):
    pipe.send_bytes(f"{name} {record['t']}\n{json.dumps(record)}".encode())


threading.Thread(target=listen, daemon=True).start()
send("-", {"t": "hello", "rates": {"read": 2e10, "flops": 8e10, "launch": 2e-6}, "device_name": "none"})
while True:
    if not jobs:
        time.sleep(0.005)
        continue
    job = jobs.pop(0)
    name, asked = job["id"], job["spec"]["prompt"]
    send(name, {"t": "loading"})
    send(name, {"t": "started", "spec": {}, "model": {}, "modes": [], "prompt": {}})
    if asked == "hang":
        time.sleep(600)
    for i in range(int(asked.split()[0])):
        if name in stopped:
            break
        send(name, {"t": "pass", "mode": "cached", "repeat": i, "at": i / 50})
        time.sleep(0.02)
    send(name, {"t": "stopped"} if name in stopped else {"t": "done", "document": {"runs": []}})
