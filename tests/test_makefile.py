"""What `make` would install: torch's wheels for processors alone where no NVIDIA card is seen."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


def installs(*given):
    """The lines with which `make python` would install, without doing it."""
    command = ["make", "--dry-run", "--always-make", "python", *given]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "pip install" in line]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere torch's usual wheels have no CUDA")
def test_without_a_card_torch_comes_without_cuda():
    first, rest = installs("CARD=")
    assert "--index-url https://download.pytorch.org/whl/cpu" in first and '"torch==' in first
    assert rest.endswith("-r requirements.txt")


def test_with_a_card_torch_is_the_usual_one():
    (line,) = installs("CARD=/proc/driver/nvidia/version")
    assert "--index-url" not in line


def test_another_index_is_taken_where_it_is_named():
    assert "--index-url https://example.org/whl" in installs("CARD=", "TORCH_INDEX=https://example.org/whl")[0]
    assert len(installs("CARD=", "TORCH_INDEX=")) == 1


def test_kvviz_can_be_imported_from_any_folder():
    command = ["make", "--dry-run", "--always-make", "python", "CARD="]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    (line,) = (line for line in done.stdout.splitlines() if "kvviz.pth" in line)
    assert line.startswith(f"echo '{ROOT}' > ")


def test_windows_is_refused_in_a_sentence():
    code = "import sys; sys.platform = 'win32'; import kvviz"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode != 0 and done.stderr.splitlines()[-1].endswith(
        "run it in WSL (the Windows Subsystem for Linux)"
    )
