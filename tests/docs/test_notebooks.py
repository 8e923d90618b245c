"""The notebooks run from the first cell to the last, in a kernel of their own; they are kept without outputs."""

import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "docs/notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_kept_without_outputs_and_installs_kvviz_first(path):
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in cells)
    assert "%pip install" in "".join(cells[0]["source"])


@pytest.mark.long
@pytest.mark.worker
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path, tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat", reason="`make docs` installs it")
    nbclient = pytest.importorskip("nbclient", reason="`make docs` installs it")
    root = Path(__file__).resolve().parents[2]
    monkeypatch.setenv("PYTHONPATH", str(root))
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()  # raises the first cell's error, its assertions among them
    printed = json.dumps([cell.get("outputs") for cell in notebook.cells])
    assert "application/vnd.plotly" in printed or "meets the contract" in printed
