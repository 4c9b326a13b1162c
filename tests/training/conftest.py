"""Folders with things of a user's own, a run that was trained with them, and programs that are built once."""

import functools
import shutil
import sys

import pytest
from bringing import BROUGHT, MINE, SMALL, saddle

from saddle_jax.training import loop


@pytest.fixture(scope="module")
def built_once():
    """Runs of the same settings share one program: to go on compiles nothing (new processes: killed_test)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "build", functools.cache(loop.build))
        yield


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "four.edges").write_text("0 1\n1 2\n2 3\n3 0\n")
    yield tmp_path
    for name in ("mine", "my_methods"):  # what they import as modules
        sys.modules.pop(name, None)


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A run of brought things on a graph from a file, beside their file."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "mine.py").write_text(MINE)
    (folder / "four.edges").write_text("0 1\n1 2\n2 3\n3 0\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        more = ["--topology=four.edges", "--checkpoint_every_steps=2", "--epochs=2"]
        assert saddle("train", "--quiet", *SMALL, *BROUGHT, *more, "--keep_checkpoints=9",
                      "--workdir=run") == 0  # fmt: skip
    return folder


@pytest.fixture
def copied(trained, tmp_path, monkeypatch):
    """A copy of that run and its files, to damage."""
    shutil.copytree(trained, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy"
