"""The packages keep their order: each imports only those before it, and torch stays out of the server."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Lowest first: a package imports itself and those before it.
PACKAGES = (
    "base",
    "models",
    "memory",
    "cost",
    "deployment",
    "device",
    "caches",
    "decoding",
    "experiments",
    "charts",
    "store",
    "worker",
    "server",
    "notebook",
    "ui",
    "cli",
)
# Who may import a library at all, and who at the top of a file: the server imports the other packages whole.
MAY_IMPORT = {
    "torch": {"device", "caches", "decoding", "experiments", "worker", "notebook", "cli"},
    "transformers": {"device", "caches", "decoding", "experiments", "worker", "notebook", "cli"},
    "llvmlite": {"decoding"},
    "streamlit": {"ui", "page"},
    "plotly": {"charts", "notebook"},
    "sqlalchemy": {"store"},
    "starlette": {"server", "page"},
    "typer": {"cli"},
    "platformdirs": {"base"},
    "segno": {"server"},
    "huggingface_hub": {"models", "decoding"},
    "pyarrow": {"store"},
    "openai": {"decoding"},
    "httpx2": {"decoding"},
    "zmq": {"decoding"},
    "msgspec": {"decoding"},
    "ray": {"server"},
    "accelerate": {"decoding"},
}


def sources():
    for path in sorted((ROOT / "kvviz").rglob("*.py")):
        parts = path.relative_to(ROOT / "kvviz").with_suffix("").parts
        if parts[0] not in ("__init__", "__main__"):
            yield parts[0], path
    for path in [ROOT / "app.py", *sorted((ROOT / "pages").glob("*.py"))]:
        yield "page", path


FILES = [pytest.param(package, path, id=str(path.relative_to(ROOT))) for package, path in sources()]


def imported(path):
    """Dotted names that a file imports, those under TYPE_CHECKING included: a type is an import too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "kvviz":
            yield from (f"kvviz.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


@pytest.mark.slow
@pytest.mark.parametrize(("package", "path"), FILES)
def test_imports_run_one_way(package, path):
    order = (*PACKAGES, "page")
    assert package in order, f"{package} has no place in the order of packages"
    for name in imported(path):
        if name.startswith("kvviz."):
            other = name.split(".")[1]
            assert order.index(other) <= order.index(package), f"{path.name} ({package}) imports {name}"


@pytest.mark.slow
@pytest.mark.parametrize(("package", "path"), FILES)
def test_each_library_has_its_packages(package, path):
    for name in {name.split(".")[0] for name in imported(path)} & MAY_IMPORT.keys():
        assert package in MAY_IMPORT[name], f"{path.name} ({package}) imports {name}"


def test_package_files_hold_a_docstring_alone():
    """A name imported in a package's `__init__` would pull its module into every importer, the server's among them."""
    for path in (ROOT / "kvviz").rglob("*/__init__.py"):
        first, *others = ast.parse(path.read_text()).body
        assert ast.get_docstring(ast.Module([first], [])), path
        assert not others or path.parent.name == "memory", path
    assert {name.split(".")[0] for name in imported(ROOT / "kvviz" / "memory" / "__init__.py")} == {
        "sys", "types", "typing", "kvviz",  # `kvviz` when it is called
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.worker
def test_the_server_never_imports_torch():
    code = (
        "import runpy, sys; from kvviz.server.scheduler import scheduler\n"
        "import kvviz.server.feed, kvviz.ui.live.component, kvviz.ui.live.form\n"
        "from kvviz.ui.shared.model_choice import accepted\n"
        "from kvviz.experiments.comparison.spec import ComparisonSpec\n"
        "accepted(scheduler(), ComparisonSpec(model='gpt2', prompt='x')); runpy.run_path('app.py')\n"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
