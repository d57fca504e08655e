"""The notebooks run from the first cell to the last in a fresh kernel, and what ends a cell shows itself."""

from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient", reason="the extra [notebooks] is not installed")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("torch")

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
SHOWN = {"find-a-mistake": set(), "autograd-inside": {"text/html", "image/svg+xml"}, "draw-a-model": {"image/svg+xml"}}


def test_all_of_them_are_listed():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(SHOWN)


@pytest.mark.parametrize("name", SHOWN)
def test_a_notebook_runs_in_a_fresh_kernel(name, monkeypatch, tmp_path):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    book = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in book.cells), "commit notebooks without their outputs"
    nbclient.NotebookClient(
        book, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    outputs = [output for cell in book.cells for output in cell.get("outputs", ())]
    shown = {kind for output in outputs for kind in output.get("data", ())}
    assert shown >= SHOWN[name]
    assert all(output["output_type"] != "error" for output in outputs)
