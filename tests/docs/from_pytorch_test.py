"""The program of the page for people who come with PyTorch runs."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_its_program_runs(tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch", reason="needs the extra torch")
    pytest.importorskip("torchax", reason="needs the extra torch")
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/from_pytorch.md").read_text(), re.DOTALL)
    exec(program, {"__name__": "from_pytorch"})
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("D-PSGD", "QGM", "Q-SADDLe, 8 bits", "tensor("))
