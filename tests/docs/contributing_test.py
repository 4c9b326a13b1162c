"""Diffs of CONTRIBUTING.md and docs/extending.md are applied to a copy: what they add works and passes CI."""

import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ("CONTRIBUTING.md", "docs/extending.md")
# What each diff adds, with how many lines elsewhere: one in a table; for a method, a row in a test, too.
ADDED = {"method": 2, "estimator": 1, "compressor": 1, "graph": 1, "dataset": 1, "model": 1}
# A run of all that settings can name, and the two that Python can.
PROGRAM = """
import sys
import saddle_jax as sj
from saddle_jax.cli import __main__ as cli
from saddle_jax.compression import COMPRESSORS
from saddle_jax.sam import GRADIENTS

print(sj.__file__)
assert str(COMPRESSORS.make("half")) == "Half()"
assert str(GRADIENTS.make("extragradient(0.1)")) == "extragradient(rho=0.1)"
things = ["--method=sign_descent", "--topology=wheel", "--dataset=stripes", "--model=bottleneck"]
train = ["saddle", "train", "--workdir=run", "--quiet", "--learning_rate=0.003", "--epochs=1"]
sys.exit(cli.main([*train, *things]))
"""


needs_git = pytest.mark.skipif(
    shutil.which("git") is None or not (ROOT / ".git").exists(), reason="git copies the checkout"
)


def diffs():
    """The diffs of the pages by what they add."""
    text = "".join(f"{(ROOT / page).read_text()}\n## \n" for page in PAGES)
    sections = re.findall(r"^## Add an? (\w+)\n(.*?)(?=^## )", text, flags=re.DOTALL | re.MULTILINE)
    return {kind: re.search(r"```diff\n(.*?)```", text, flags=re.DOTALL).group(1) for kind, text in sections}


def files_of(diff):
    """The files that a diff touches: (path, is new, lines added, lines removed)."""
    for part in re.split(r"^diff --git ", diff, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        body = lines[next(number for number, line in enumerate(lines) if line.startswith("@@")) + 1 :]
        path = re.match(r"a/(\S+) ", part).group(1)
        signs = [line[:1] for line in body]
        yield path, "new file mode" in part, signs.count("+"), signs.count("-")


@pytest.mark.parametrize(("kind", "lines"), ADDED.items())
def test_each_thing_is_one_new_file_and_one_line_elsewhere(kind, lines):
    new, *changed = sorted(files_of(diffs()[kind]), key=lambda file: not file[1])
    path, is_new, added, _ = new
    assert is_new
    assert added <= 35
    assert [(is_new, added, removed) for _, is_new, added, removed in changed] == [(False, 1, 0)] * lines
    assert pathlib.PurePath(changed[0][0]).parent == pathlib.PurePath(path).parent  # its folder's table


def test_the_page_for_contributors_is_short():
    assert len((ROOT / "CONTRIBUTING.md").read_text().splitlines()) <= 120


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """What git knows of the project, with all diffs of the pages applied."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    runpy.run_path(str(ROOT / "bin" / "mutate"))["copy_to"](tmp_path)
    assert diffs().keys() == ADDED.keys()
    # The folder is no repository, and must not become a part of one around it.
    alone = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    for diff in diffs().values():
        subprocess.run(["git", "apply"], input=diff, text=True, check=True, cwd=tmp_path, env=alone)
    return tmp_path


@needs_git
def test_the_new_things_train(copy):
    ruff = [sys.executable, "-m", "ruff"]
    new = [path for diff in diffs().values() for path, *_ in files_of(diff)]
    subprocess.run([*ruff, "check", "--quiet", *new], check=True, cwd=copy)
    subprocess.run([*ruff, "format", "--quiet", "--check", *new], check=True, cwd=copy)
    of_the_copy = {**os.environ, "PYTHONPATH": str(copy)}
    command = [sys.executable, "-P", "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=copy, env=of_the_copy)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(str(copy / "saddle_jax"))
    assert (copy / "run" / "result.json").is_file()


@pytest.mark.slow
@needs_git
def test_with_the_new_things_the_whole_ci_passes(copy):
    (copy / ".venv").symlink_to(sys.prefix)
    of_the_copy = {**os.environ, "PYTHONPATH": str(copy), "SADDLE_INSTALL": "no"}
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST"):
        of_the_copy.pop(name, None)
    done = subprocess.run([".ci/run"], capture_output=True, text=True, check=False, cwd=copy, env=of_the_copy)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
