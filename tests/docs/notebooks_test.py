"""Notebooks run from their first cell to their last, as a user runs them, and show what they keep."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
# In a process of its own: a notebook's server has warnings of its own.
PROGRAM = """
import sys
import nbclient, nbformat

notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
nbformat.write(notebook, "executed.ipynb")
"""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows(path, tmp_path):
    import nbformat

    command = [sys.executable, "-c", PROGRAM, path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    executed, kept = (nbformat.read(place, as_version=4) for place in (tmp_path / "executed.ipynb", path))
    assert [kinds(cell) for cell in executed.cells] == [kinds(cell) for cell in kept.cells]
    assert (tmp_path / "runs" / "report.html").stat().st_size > 10_000
    assert str(ROOT) not in path.read_text()


def kinds(cell):
    """What a cell shows: its text, a table, a picture."""
    found = {kind for output in cell.get("outputs", []) for kind in output.get("data", {"stream": None})}
    return sorted(found)
