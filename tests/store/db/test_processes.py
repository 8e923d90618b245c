"""Several processes and threads at one file, and what kill -9 leaves of them."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from kvviz.store.db.store import Store, is_there, process_mark
from tests.store.db.conftest import keep, made_up

ROOT = Path(__file__).resolve().parents[3]

# Imports once and forks for each line that it reads; the child works in a tight loop until it is killed, and says
# what has been kept once the store has returned.
WRITERS = """
import json, os, sys
from pathlib import Path
from kvviz.store.db.store import Store
from tests.store.db.conftest import made_up

def work(name):
    store = Store(Path(sys.argv[1]))
    texts, document = made_up(steps=50)
    for life in range(1000):
        work_id = f"{name}.{life}"
        store.begin(work_id, {"model": "gpt2"})
        for number in range(7):
            store.append(work_id, [json.dumps({"n": number, "fill": "x" * 2000}), *texts])
            os.write(1, f"{work_id} {number}\\n".encode())
        store.finish(work_id, "done", document)
        os.write(1, f"{work_id} done\\n".encode())

for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        work(line.strip())
    os.write(1, f"pid {pid}\\n".encode())
    sys.stdin.readline()
    os.waitpid(pid, 0)
    os.write(1, b"over .\\n")
"""


def said(writers, until):
    """What the writers' pipe brings, up to and including a word."""
    for line in writers.stdout:
        first, second = line.split()
        yield first, second
        if first == until:
            return


@pytest.mark.slow
@pytest.mark.worker
def test_kill_9_in_a_loop_loses_nothing_that_was_acknowledged(tmp_path):
    path = tmp_path / "kvviz.sqlite"
    writers = subprocess.Popen(
        [sys.executable, "-c", WRITERS, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    kept, done = defaultdict(int), set()

    def note(first, second):
        if second == "done":
            done.add(first)
        elif "." in first and second.isdecimal():
            kept[first] = int(second) + 1

    chance = random.Random(6)
    for number in range(8):
        tell(writers, f"w{number}")
        for first, second in said(writers, "pid"):
            note(first, second)
        pid = int(second)
        for _ in range(chance.randrange(14)):  # a life has eight acknowledgements
            note(*writers.stdout.readline().split())
        time.sleep(chance.uniform(0, 0.005))
        os.kill(pid, signal.SIGKILL)
        tell(writers, "killed")
        for first, second in said(writers, "over"):
            note(first, second)
        check_integrity(path)
    writers.stdin.close()
    writers.wait()
    check_what_is_there(path, kept, done)


def tell(process, line):
    process.stdin.write(line + "\n")
    process.stdin.flush()


def check_integrity(path):
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert file.execute("PRAGMA foreign_key_check").fetchall() == []


def check_what_is_there(path, kept, done):
    store = Store(path)
    texts, document = made_up(steps=50)
    assert sum(kept.values()) > 20 and done, "the writers came to something"
    for work_id, count in kept.items():
        numbers = [json.loads(text)["n"] for text in store.records(work_id) if '"n"' in text]
        assert numbers == list(range(len(numbers))) and count <= len(numbers) <= count + 1
        assert len(store.records(work_id)) == len(numbers) * (1 + len(texts)), "an append is whole or not there"
    for work_id in done:
        assert (
            store.get(work_id).state == "done"
            and store.document(work_id)["runs"][1]["step_s"] == (document["runs"][1]["step_s"])
        )
        assert store.run(f"{work_id}-cached").figures["token_ids"] == list(range(50))
    check_the_interrupted(store, done)
    store.close()


def check_the_interrupted(store, done):
    everyone = {stored.id for stored in store.find(limit=10_000)}
    running = {stored.id for stored in store.unfinished()}
    finished = everyone - running
    assert done <= finished and len(finished - done) <= 8, "at most one a round ended without saying so"
    assert len(running) <= 8 and running
    for work_id in running:
        before = store.records(work_id)
        store.finish(work_id, "interrupted")
        assert store.get(work_id).state == "interrupted" and store.records(work_id) == before
    assert store.unfinished() == []


WRITER = """
import sys, time
from pathlib import Path
from kvviz.store.db.store import Store
from tests.store.db.conftest import made_up
texts, document = made_up(steps=20)
print("ready", flush=True)
sys.stdin.readline()
store = Store(Path(sys.argv[1]))
for number in range(15):
    work_id = f"{sys.argv[2]}{number}"
    store.begin(work_id, {"model": "gpt2"})
    store.append(work_id, texts)
    store.finish(work_id, "done", document)
store.close()
"""


@pytest.mark.slow
@pytest.mark.worker
def test_two_processes_make_and_write_one_file_at_once(tmp_path):
    path = tmp_path / "kvviz.sqlite"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for name in "ab"
    ]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        tell(writer, "go")
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
    check_integrity(path)
    store = Store(path)
    assert store.count() == 30 and all(store.get(f"{name}{n}").state == "done" for name in "ab" for n in range(15))
    assert store.records("b14") == made_up(steps=20)[0]
    store.close()


@pytest.mark.slow
def test_many_threads_share_one_store(store):
    texts, document = made_up()

    def life(number):
        keep(store, f"t{number}", records=texts, document=document)
        store.tag(f"t{number}", ["threads"])
        return store.document(f"t{number}")["id"]

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(life, range(36))) == [f"t{number}" for number in range(36)]
    assert store.count(tag="threads") == 36


@pytest.mark.slow
def test_the_first_openers_do_not_trip_over_each_other(tmp_path):
    paths = [tmp_path / f"{number}.sqlite" for number in range(4)]
    with ThreadPoolExecutor(8) as pool:
        stores = list(pool.map(Store, [path for path in paths for _ in range(4)]))
    for store in stores:
        assert store.count() == 0
        store.close()


@pytest.mark.worker
def test_a_process_is_known_by_its_start():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    mark = process_mark(child.pid)
    assert mark.startswith(f"{child.pid}:") and is_there(f"{mark}/x")
    assert not is_there(f"{child.pid}:1/x") or mark == f"{child.pid}:", "the same number, another process"
    child.communicate(b"\n")
    assert process_mark(child.pid) == "" and not is_there(f"{mark}/x")
    assert not is_there(f"{process_mark(os.getpid())}/of-before")
    assert not is_there("") and not is_there("nonsense") and not is_there(f"{2**70}:1/x")
