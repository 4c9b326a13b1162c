"""A plain `pip install .`, without extras: what works there works, and what does not says so in one line."""

import functools
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
from imports_test import ALSO

from saddle_jax.cli import process, train
from saddle_jax.cli.verb import load
from saddle_jax.settings.settings import Settings
from saddle_jax.version import __version__

ROOT = pathlib.Path(__file__).resolve().parents[2]
# A verb gets as far as its packages with these; the others need no arguments for that.
ARGUMENTS = {
    "list": ["."],
    "evaluate": ["run"],
    "export": ["run"],
    "report": ["run"],
    "figure": ["curves", "run"],
    "sharpness": ["run"],
    "landscape": ["run"],
    "reproduce": ["--table=1", "--scale=smoke"],
    "compare": ["--compare=method=qgm", "--workdir=compared"],
    "data show": ["digits"],
    "data prepare": ["digits"],
    "topology": ["ring", "4"],
}
WITHOUT_EXTRAS = """
import contextlib, io, json, sys, traceback

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in json.loads(sys.argv[1]):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from saddle_jax.cli import __main__ as cli
from saddle_jax.cli.verb import load

found = {}
for verb in load():
    with contextlib.redirect_stderr(io.StringIO()) as errors, contextlib.redirect_stdout(io.StringIO()):
        try:
            status = cli.main(["saddle", *verb.split(), *json.loads(sys.argv[2]).get(verb, [])])
        except BaseException:
            status = traceback.format_exc()
    found[verb] = [status, errors.getvalue()]
print(json.dumps(found))
"""


def without_extras(folder):
    """Status and errors of every verb where the extras' packages cannot be imported."""
    blocked = sorted({name.partition(".")[0] for name in process.OPTIONAL} | {"tensorflow", "torch"})
    command = [sys.executable, "-c", WITHOUT_EXTRAS, json.dumps(blocked), json.dumps(ARGUMENTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return json.loads(done.stdout.splitlines()[-1])


def test_without_the_extras_every_verb_works_or_tells_in_one_line_what_it_needs(tmp_path):
    found = without_extras(tmp_path)
    assert found.keys() == load().keys()
    for verb, (status, errors) in found.items():
        assert status in (0, 2), f"{verb}: {status}"
        assert len(errors.splitlines()) == (status != 0), f"{verb}: {errors}"
    assert found["train"] == [
        2,
        "saddle: flax is not installed: train needs pip install 'saddle_jax[all]'\n",
    ]
    assert list(tmp_path.iterdir()) == []
    assert found["check"][0] == 0  # it says what to install


def test_a_missing_module_that_no_extra_brings_keeps_its_traceback():
    for missing in ("no_such_module", "flax.no_such_part"):
        with pytest.raises(ModuleNotFoundError, match=missing):
            process.tell(ModuleNotFoundError(f"No module named {missing!r}", name=missing))


def test_what_is_needed_at_the_end_is_told_at_the_start(tmp_path, monkeypatch):
    monkeypatch.setattr(
        process.importlib.util, "find_spec", lambda name: None if name == "matplotlib" else name
    )
    with pytest.raises(ModuleNotFoundError, match="matplotlib"):
        train.run_training(Settings(), tmp_path / "run", quiet=True)
    assert list(tmp_path.iterdir()) == []


def test_the_list_of_optional_packages_is_what_the_code_imports():
    told_elsewhere = {"pandas", "rich", "tensorflow", "torch", "torchax"}  # by the functions that want them
    ours = {name.partition(".")[0] for name in process.OPTIONAL}
    assert ours == set().union(*ALSO.values()) - told_elsewhere


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel that bin/wheel has built, and tried with what training needs."""
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run([sys.executable, ROOT / "bin" / "wheel", folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("saddle_jax-*.whl")
    assert done.stdout == (
        f"{built.name}: installed, imported, and trained --dataset=digits --model=logistic --agents=4\n"
    )
    return built


@pytest.mark.slow
def test_a_plain_installation(wheel, tmp_path):
    python = tmp_path / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    constraints = ["--constraint", ROOT / "constraints.txt"]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *constraints, wheel], check=True)

    # Only what was installed there, whatever PYTHONPATH says of this checkout.
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    there = functools.partial(subprocess.run, capture_output=True, text=True, cwd=tmp_path, env=alone)
    program = "import saddle_jax as sj; print(sj.__version__, sj.__file__, sj.ring(4).size)"
    done = there([python, "-c", program], check=True)
    version, place, agents = done.stdout.split()
    assert (version, agents) == (__version__, "4")
    assert pathlib.Path(place).is_relative_to(tmp_path / "venv")  # and not the checkout
    page = (ROOT / "docs" / "library.md").read_text()
    example = re.search(r"```python\n(.*?)```", page, flags=re.DOTALL).group(1)
    done = there([python, "-c", example], check=True)
    assert done.stdout
    saddle = python.with_name("saddle")
    done = there([saddle, "train"], check=False)
    assert done.returncode == 2
    assert done.stderr == "saddle: flax is not installed: train needs pip install 'saddle_jax[all]'\n"
    (licences,) = tmp_path.glob("venv/lib/python*/site-packages/saddle_jax-*.dist-info/licenses")
    for name in ("LICENSE", "NOTICE"):
        assert (licences / name).read_text() == (ROOT / name).read_text()
