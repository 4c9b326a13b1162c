"""Diffs of CONTRIBUTING.md are applied to a copy of the package, and what they add keeps the invariants."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What each diff adds, by the name that its tests have in brackets.
ADDED = {
    "method": "sign_descent",
    "estimator": "extragradient",
    "compressor": "Half",
    "graph": "wheel",
    "dataset": "stripes",
    "model": "bottleneck",
}
TESTS = (
    "core/method", "methods/methods_common", "sam/estimators", "compression/compression", "core/topology",
    "data/builtin", "models/models", "package/imports",
)  # fmt: skip
# The tests of the new things, then a run of all that settings can name.
PROGRAM = """
import sys
import pytest, saddle_jax
from saddle_jax.cli import __main__ as cli
from saddle_jax.compression import COMPRESSORS

print(saddle_jax.__file__)
status = pytest.main(sys.argv[1:])
assert str(COMPRESSORS.make("half")) == "Half()"
train = [
    "saddle", "train", "--workdir=run", "--quiet", "--method=sign_descent", "--topology=wheel",
    "--dataset=stripes", "--model=bottleneck", "--learning_rate=0.003",
    "--epochs=1",
]
assert cli.main([*train, "--method.compressor=half"]) == 2  # the method sends models whole
sys.exit(status or cli.main(train))
"""


def diffs():
    """The diffs of the page by what they add."""
    sections = re.findall(
        r"^## Add an? (\w+)\n(.*?)(?=^## )",
        (ROOT / "CONTRIBUTING.md").read_text(),
        flags=re.DOTALL | re.MULTILINE,
    )
    return {kind: re.search(r"```diff\n(.*?)```", text, flags=re.DOTALL).group(1) for kind, text in sections}


def files_of(diff):
    """The files that a diff touches: (path, is new, lines added, lines removed)."""
    for part in re.split(r"^diff --git ", diff, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        body = lines[next(number for number, line in enumerate(lines) if line.startswith("@@")) + 1 :]
        path = re.match(r"a/(\S+) ", part).group(1)
        signs = [line[:1] for line in body]
        yield path, "new file mode" in part, signs.count("+"), signs.count("-")


@pytest.mark.parametrize("kind", ADDED)
def test_each_thing_is_one_new_file_and_one_line_elsewhere(kind):
    new, *changed = sorted(files_of(diffs()[kind]), key=lambda file: not file[1])
    path, is_new, added, _ = new
    assert is_new
    assert added <= 35
    assert [(is_new, added, removed) for _, is_new, added, removed in changed] == [(False, 1, 0)]
    assert pathlib.PurePath(changed[0][0]).parent == pathlib.PurePath(path).parent  # its folder's table


@pytest.fixture
def copy(tmp_path):
    """The package and its tests, with all diffs of the page applied."""
    for folder in ("saddle_jax", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    assert diffs().keys() == ADDED.keys()
    for diff in diffs().values():
        # The folder is no repository, and must not become a part of one around it.
        alone = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
        subprocess.run(["git", "apply"], input=diff, text=True, check=True, cwd=tmp_path, env=alone)
    return tmp_path


def of_imports(case):
    """Whether a test looks at what a file imports, and not at what the thing in it does."""
    return case.get("classname").endswith("imports_test")


@pytest.mark.skipif(shutil.which("git") is None, reason="git applies the diffs")
def test_the_new_things_keep_the_invariants_and_train(copy):
    ruff = [sys.executable, "-m", "ruff"]
    new = [path for diff in diffs().values() for path, *_ in files_of(diff)]
    subprocess.run([*ruff, "check", "--quiet", *new], check=True, cwd=copy)
    subprocess.run([*ruff, "format", "--quiet", "--check", *new], check=True, cwd=copy)

    tests = [f"tests/{name}_test.py" for name in TESTS]
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--junitxml=results.xml"]
    command = [sys.executable, "-P", "-c", PROGRAM, *options, *tests, "-k", " or ".join(ADDED.values())]
    of_the_copy = {**os.environ, "PYTHONPATH": str(copy)}
    of_the_copy.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=copy, env=of_the_copy)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(str(copy / "saddle_jax"))
    assert (
        "compressor must be none for sign_descent, which has no such option or sets it itself, got 'half'"
        in done.stderr
    )
    cases = [*xml.etree.ElementTree.parse(copy / "results.xml").getroot().iter("testcase")]
    kept = [case.get("name") for case in cases if case.find("skipped") is None and not of_imports(case)]
    for kind, name in ADDED.items():
        assert any(name.lower() in case.lower() for case in kept), kind
    assert len([case for case in cases if of_imports(case)]) == 2 * len(ADDED)
    assert (copy / "run" / "result.json").is_file()
