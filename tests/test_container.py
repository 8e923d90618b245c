"""The container's recipe, read: what it copies is there and is enough, who it runs as, what it asks of its health."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kvviz.base.settings import read_settings
from tests.cli.test_ready import OK, answering

ROOT = Path(__file__).resolve().parents[1]


def instructions():
    """(name, arguments) of each instruction, lines that go on joined."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")]
    whole = re.sub(r"\\\n", " ", "\n".join(lines))
    return [tuple(line.split(maxsplit=1)) for line in whole.splitlines() if line.strip()]


def of(name):
    return [arguments for found, arguments in instructions() if found == name]


def copies():
    """(source, target) of each file or folder that is copied."""
    for arguments in of("COPY"):
        *sources, target = shlex.split(arguments)
        yield from ((source, target) for source in sources)


def test_every_instruction_is_one_and_comes_where_it_takes_effect():
    names = [name for name, _ in instructions()]
    known = ["FROM", "ARG", "RUN", "WORKDIR", "COPY", "ENV", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "CMD"]
    assert set(names) <= set(known) and names[0] == "FROM" and names[-1] == "CMD"
    assert names.index("USER") > max(i for i, name in enumerate(names) if name in ("RUN", "COPY"))
    assert of("USER") == ["1000"] and "--uid 1000 kvviz" in of("RUN")[0], "not root, and the number that a Space has"


@pytest.mark.worker
def test_what_is_copied_is_in_the_repository_and_not_ignored():
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = {line[1:] for line in ignore if line.startswith("!")}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    for source, _ in copies():
        assert (ROOT / source).exists() and source in allowed
        assert not tracked or any(name == source or name.startswith(f"{source}/") for name in tracked)
    assert allowed == {source for source, _ in copies()}, "nothing is sent to the builder that it does not need"


@pytest.mark.slow
@pytest.mark.worker
def test_what_is_copied_is_enough_to_serve(tmp_path):
    for source, target in copies():
        place = tmp_path / (target if not target.endswith("/") else f"{target}{Path(source).name}")
        (shutil.copytree if (ROOT / source).is_dir() else shutil.copyfile)(ROOT / source, place)
    (script,) = [json.loads(arguments)[1:] for arguments in of("CMD")]
    run = f"import runpy; runpy.run_path({script[0]!r})"
    code = f"{run}\nfrom kvviz.ui.folders import PAGES; print(len(list(PAGES.glob('*.py'))))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert int(done.stdout) == len(list((ROOT / "pages").glob("*.py"))), done.stderr


def environment():
    (words,) = of("ENV")
    return dict(word.split("=", 1) for word in shlex.split(words))


def test_it_is_open_to_the_world_and_careful():
    given = environment()
    assert (given["HOST"], given["KVVIZ_PUBLIC"], given["PORT"]) == ("0.0.0.0", "1", of("EXPOSE")[0])
    assert [given["KVVIZ_HOME"]] == of("VOLUME") and given["HF_HOME"].startswith(f"{given['KVVIZ_HOME']}/")


@pytest.mark.slow
@pytest.mark.worker
@pytest.mark.parametrize(("code", "answer", "status"), [(200, OK, 0), (503, {**OK, "status": "degraded"}, 1)])
def test_its_health_is_the_servers(code, answer, status):
    (check,) = of("HEALTHCHECK")
    command = json.loads(check.partition(" CMD ")[2])
    with answering(code, json.dumps(answer).encode()) as port:
        done = subprocess.run([sys.executable, *command[1:]], cwd=ROOT, env={"PORT": str(port)}, capture_output=True)
    assert done.returncode == status, done.stderr


def test_both_devices_are_installed_from_the_pins():
    run = of("RUN")[1]
    assert re.search(r"^torch==", (ROOT / "requirements.txt").read_text(), re.MULTILINE) and "^torch==" in run
    assert of("ARG") == ["DEVICE=cpu"] and "cpu)" in run and "cuda)" in run


def test_the_spaces_front_matter_leads_to_the_container():
    text = (ROOT / "docs/space/README.md").read_text()
    front = yaml.safe_load(text.split("---")[1])
    assert (front["sdk"], str(front["app_port"]), front["license"]) == ("docker", environment()["PORT"], "mit")
    assert len(front["short_description"]) <= 60, "the Hub refuses a longer one"


def test_the_spaces_settings_are_settings():
    text = (ROOT / "docs/space/kvviz.toml").read_text()
    assert read_settings(text, public=False).public
