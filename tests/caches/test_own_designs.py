"""Designs of one's own: read without being run, left out with a reason, run anew when their file changes."""

import os
import signal
import subprocess
import sys

import pytest
import torch

from kvviz.base.errors import KvvizError
from kvviz.base.paths import CHECKOUT
from kvviz.caches import own_designs
from kvviz.caches.designs import DESIGNS, OTHER_MODES, TAKEN, own_design
from kvviz.caches.formula import kept_bytes
from kvviz.caches.starters.write import written
from kvviz.decoding.modes import MODES, mode_of
from kvviz.decoding.read_cache import cache_class, layer_states
from tests.caches.conftest import prompt_of

BASE = "from kvviz.caches.base import InTensors\n"
BAD = {
    "half.py": (b"class Half(:\n", "half.py is no Python yet: line 1, invalid syntax"),
    "none.py": (b"x = 1\n", "none.py has no class"),
    "null.py": (b"class A:\n    x = '\0'\n", "null.py is no Python"),
    "latin.py": (b"class A:\n    title = '\xff'\n", "latin.py is no Python"),
    "deep.py": (b"(" * 5_000, "deep.py is no Python"),
    "long.py": (b"#" * 300_000, "long.py is longer than 200,000 bytes"),
    "maybe.py": (b"class A:\n    exact = 1 > 0\n", "exact in class A is None; it is True or False"),
    "lines.py": (b"class A:\n    title = 'a\\nb'\n", "it is a text of one line"),
    "wide.py": (b"class A:\n    windows = 'all'\n", "windows is 'all'; it is one of own, ring, theirs"),
    "paged.py": (b"class A:\n    pass\n", "there is a mode called paged already"),
    "Upper.py": (b"class A:\n    pass\n", "a design's name is 'Upper'"),
}


def test_a_folder_is_read_without_running_it_and_bad_files_are_left_out_with_a_reason(tmp_path):
    for name, (text, _) in BAD.items():
        (tmp_path / name).write_bytes(text)
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")
    (tmp_path / "good.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n{written('good', 'int8')}")
    found = own_designs.find(str(tmp_path), TAKEN)
    assert found.left_out.keys() == {*BAD, "gone.py"}
    assert {name for name, (_, words) in BAD.items() if words not in found.left_out[name]} == set()
    assert found.designs.keys() == {"good"} and not (tmp_path / "ran").exists()
    assert found.designs["good"]["exact"] is False and found.designs["good"]["windows"] == "theirs"
    assert own_designs.find(str(tmp_path / "nowhere"), TAKEN) == own_designs.find(None, TAKEN)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import nothing_like_it\nclass A: pass\n", "line 1 of mine.py: ModuleNotFoundError: No module named"),
        ("import sys\nsys.exit(3)\nclass A: pass\n", "line 2 of mine.py: SystemExit"),
        ("class A: pass\n", "class A in mine.py is no KVCache; write class A(InTensors)"),
        (f"{BASE}class A(InTensors): pass\n", "class A in mine.py lacks _append"),
        ("from kvviz.caches.ring import Sinks\nclass A(Sinks): pass\n", "is exact = False by now, and kvviz has read"),
    ],
)
def test_what_can_not_be_loaded_is_a_sentence(tmp_path, text, words):
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(KvvizError) as error:
        own_design(tmp_path / "mine.py").implementation()
    assert words in str(error.value)


@pytest.mark.parametrize("hides", [False, True])
def test_a_file_that_never_ends_is_stopped_and_named(tmp_path, monkeypatch, hides):
    """Also one that goes on whatever error comes."""
    monkeypatch.setattr(own_designs, "LONGEST_S", 0.05)
    body = "    try:\n        1 / 0\n    except Exception:\n        pass\n" if hides else "    pass\n"
    (tmp_path / "mine.py").write_text(f"{BASE}while True:\n{body}class Mine(InTensors):\n    pass\n")
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(KvvizError, match=r"mine.py can't be loaded: after 0.05 s it was still running line \d of mine"):
        own_designs.load(f"{tmp_path / 'mine.py'}:Mine", exact=True)
    assert signal.getsignal(signal.SIGALRM) == before and signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_names_of_modes_are_taken():
    assert set(OTHER_MODES) == MODES.keys() - DESIGNS.keys()


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """`mine(text)`: the mode of the design in that file."""

    def mine(text):
        (tmp_path / "mine.py").write_text(text)
        design = own_design(tmp_path / "mine.py")
        monkeypatch.setitem(DESIGNS, "mine", design)
        monkeypatch.setitem(MODES, "mine", mode_of(design))
        return MODES["mine"]

    return mine


def test_a_design_of_ones_own_decodes_like_any_other(mine, family):
    (model, spec), ids = family("gemma3"), prompt_of(2, 30)
    mode = mine(written("mine", "reserve", solved=True))
    with torch.inference_mode():
        logits, cache = mode.open(model, 40)(ids, ids)
        without, _ = MODES["uncached"].open(model, 40)(ids, ids)
    assert torch.equal(logits, without) and cache_class(cache) == "Ring"
    assert sum(row.nbytes for row in layer_states(cache)) == kept_bytes(mode.account, spec, 30, 2, "float32")


def test_an_error_names_the_design_and_the_line_of_the_file_as_it_is_now(mine, family):
    model, ids = family("llama")[0], prompt_of(1, 5)
    text = written("mine", solved=True)
    mode = mine(text)
    mode.open(model, 8)(ids, ids)
    broken = text.replace("        if self.seen:", "        assert k.shape[2] < 5\n        if self.seen:")
    line = broken[: broken.index("assert k.shape")].count("\n") + 1
    mine(broken)
    with pytest.raises(
        KvvizError, match=f"mine stopped with an error: line {line} of mine.py: AssertionError; `kvviz ch"
    ):
        mode.open(model, 8)(ids, ids)


@pytest.mark.worker
def test_the_folder_makes_modes_with_colours_and_needs_no_torch(tmp_path):
    (tmp_path / "mine.py").write_text(written("mine"))
    (tmp_path / "half.py").write_text("class")
    code = (
        "import sys; from kvviz.charts.palette import LIGHT; from kvviz.decoding.modes import MODES, mode_named\n"
        "from kvviz.experiments.cache_designs.spec import RACEABLE, RACED\n"
        "print('mine' in RACED, 'mine' in RACEABLE, LIGHT['mine'], MODES['mine'].exact, 'torch' in sys.modules)\n"
        "mode_named('half')"
    )
    environment = {**os.environ, "KVVIZ_DESIGNS": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "True True #A3005C True False"
    assert done.stderr.strip().endswith("half.py is no Python yet: line 1, invalid syntax")
