"""The house keeps its order: a room imports the rooms below it, never above; torch stays out of the server."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# From the bottom up; rooms on one line do not see each other.
FLOORS = [
    {"errors", "palette", "frontdoor", "letters", "ranges", "queueing", "ownership", "turns"},
    {"logs"},
    {"catalog", "records", "precision", "checks", "hashing", "home", "leaving", "workerlink", "blocks"},
    {"fields", "settings", "joining", "devicelock"},
    {"patterns", "pulled", "mlps", "rooms"},
    {"layers"},
    {"spec", "views", "counted", "mixers"},
    {"memory", "shape", "sources", "text", "measure", "recording", "weightfiles"},
    {"cost", "scratch", "caches"},
    {"fast", "servelooks"},
    {
        "modes",
        "looks",
        "whatif",
        "fits",
        "enginelog",
        "hubconfig",
        "expected",
        "trends",
        "pull",
        "fit",
        "bounds",
        "ceilings",
        "paces",
    },
    {"roofline", "raced"},
    {"explain", "calculator", "probing", "seen", "servewords"},
    {"plan", "charts", "shorthand", "questions", "verdict"},
    {"decode", "snapshot", "allocator", "device", "report"},
    {"models", "gauging", "profiling"},
    {"pacing", "proof", "engine", "probe", "export", "sweeps", "anatomy", "breaking"},
    {"perform", "watching", "pace", "journal", "foresight", "limits"},
    {"mistiming", "roofing", "servings", "racing"},
    {"comparing", "runs", "sweeping", "sweeptext", "works", "looking"},
    {"worker", "hub", "headless", "versus"},
    {"keeping", "health", "ready"},
    {"feed", "classroom"},
    {"cli", "roomfeed"},
    {"ui"},
]
TORCH = {
    "anatomy",
    "breaking",
    "caches",
    "counted",
    "fast",
    "servings",
    "looking",
    "mistiming",
    "scratch",
    "probe",
    "watching",
    "decode",
    "snapshot",
    "allocator",
    "proof",
    "device",
    "gauging",
    "profiling",
    "roofing",
    "models",
    "pacing",
    "perform",
    "racing",
    "sweeping",
    "engine",
    "worker",
}


def sources():
    for path in sorted((ROOT / "kvviz").rglob("*.py")):
        parts = path.relative_to(ROOT / "kvviz").with_suffix("").parts
        if parts[0] not in ("__init__", "__main__"):
            yield parts[0], path
    for path in [ROOT / "app.py", *sorted((ROOT / "pages").glob("*.py"))]:
        yield "page", path


def imported(path, top_level_only=False):
    """Dotted names that a file imports, those under TYPE_CHECKING apart."""
    tree = ast.parse(path.read_text())
    skipped = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and getattr(block.test, "id", "") == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    nodes = tree.body if top_level_only else ast.walk(tree)
    for node in nodes:
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "kvviz":
            yield from (f"kvviz.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


def floor(room):
    return next((i for i, rooms in enumerate(FLOORS) if room in rooms), len(FLOORS))


@pytest.mark.parametrize(("room", "path"), list(sources()), ids=lambda value: str(getattr(value, "name", value)))
def test_imports_run_one_way(room, path):
    assert room == "page" or any(room in rooms for rooms in FLOORS), f"{room} has no place in the house"
    for name in imported(path):
        if name.startswith("kvviz."):
            other = name.split(".")[1]
            assert other == room or floor(other) < floor(room), f"{path.name} ({room}) imports {other}"


@pytest.mark.parametrize(("room", "path"), list(sources()), ids=lambda value: str(getattr(value, "name", value)))
def test_each_package_has_its_rooms(room, path):
    top_level = {name.split(".")[0] for name in imported(path, top_level_only=True)}
    everywhere = {name.split(".")[0] for name in imported(path)}
    assert "streamlit" not in everywhere or room in ("ui", "page")
    assert "starlette" not in everywhere or room in ("feed", "roomfeed", "page")
    assert "torch" not in top_level or room in TORCH
    assert "plotly" not in everywhere or room == "charts"
    assert "sqlalchemy" not in everywhere or room == "runs"
    assert "platformdirs" not in everywhere or room == "home"
    assert not {"numba", "llvmlite"} & everywhere or room == "fast"
    assert "segno" not in everywhere or room == "joining"


def test_the_server_never_imports_torch():
    code = (
        "import runpy, sys; from kvviz.hub import hub; import kvviz.feed, kvviz.ui.live, kvviz.ui.controls;"
        "from kvviz.ui.controls import plan; from kvviz.records import ComparisonSpec;"
        "plan(ComparisonSpec(model='gpt2', prompt='x'), hub()); runpy.run_path('app.py');"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
