"""A user's own code: how it is found, imported and hashed, and what is said if that fails."""

import hashlib
import sys

import pytest

from saddle_jax.base import user_code
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.user_code import UserCodeError, siblings

MINE = """
from __future__ import annotations
import dataclasses
import beside

COUNT = 3
TEXT = "a"

@dataclasses.dataclass
class Thing:
    size: int = beside.SIZE

def thing(n, size=5, *, scale=1.0):
    return Thing(n + size)

def number(n):
    return n

def anything(**options):
    return Thing(len(options))

def failing():
    raise KeyError("lost")

def refusing(n):
    from saddle_jax.base import checks
    return checks.whole("n", n, at_least=100)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "beside.py").write_text("SIZE = 7\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    yield tmp_path
    sys.modules.pop("beside", None)


def test_a_file_is_run_once_and_its_folder_is_searched_only_then(folder):
    before = list(sys.path)
    thing = user_code.load("method", "mine.py:Thing")
    assert thing().size == 7
    assert user_code.load("method", f"{folder}/mine.py:thing")(1) == thing(6)
    assert sys.modules[thing.__module__].COUNT == 3
    assert sys.path == before


def test_another_content_is_another_module(folder):
    first = user_code.load("method", "mine.py:Thing")
    with user_code.reading_once():
        assert user_code.load("method", "mine.py:COUNT") == 3
        (folder / "mine.py").write_text(MINE.replace("COUNT = 3", "COUNT = 4"))
        assert user_code.load("method", "mine.py:COUNT") == 3
        assert user_code.source("method", "mine.py:COUNT").content == MINE.encode()
    assert user_code.load("method", "mine.py:COUNT") == 4
    assert user_code.load("method", "mine.py:Thing") is not first


def test_a_module_is_imported_as_python_does(folder, monkeypatch):
    import math

    assert user_code.load("method", "math:sqrt") is math.sqrt
    (folder / "pkg").mkdir()
    (folder / "pkg/other.py").write_text("f = 1\n")
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    assert user_code.load("method", "pkg.other:f") == 1
    source = user_code.source("method", "pkg.other:f")
    assert source.path == folder / "pkg/other.py"
    assert source.sha256 == hashlib.sha256(b"f = 1\n").hexdigest()
    assert source.copy_name == f"{source.sha256[:12]}-other.py"
    with pytest.raises(ArgumentError, match="method must be in a module that has a file, got 'sys:argv'"):
        user_code.source("method", "sys:argv")


MISSING = {
    "no.py:f": "method must name a file that exists, got 'no.py'",
    "folder.py:f": "method must name a file that exists, got 'folder.py'",
    "mine.py:thign": "did you mean 'thing'? method must be in mine.py, got no 'thign' there",
    "mine:thing": "method must be in a module, got no 'mine'; for the file that is here use mine.py:thing",
    "folder.no:thing": "method must be in a module, got no 'folder.no'",
    "no.such.thing:f": "method must be in a module, got no 'no.such.thing'",
    "math:sqrtt": "did you mean 'sqrt'? method must be in math, got no 'sqrtt' there",
}


@pytest.mark.parametrize("text", MISSING)
def test_what_is_not_there_is_one_line(folder, text):
    (folder / "folder.py").mkdir()
    with pytest.raises(ArgumentError) as refusal:
        user_code.load("method", text)
    assert str(refusal.value) == MISSING[text]
    assert not isinstance(refusal.value, UserCodeError)


def test_a_large_file_is_refused(folder, monkeypatch):
    monkeypatch.setattr(user_code, "_LARGEST", 100)
    with pytest.raises(ArgumentError, match=r"of at most 0 MiB, got 'mine.py', which is larger"):
        user_code.load("method", "mine.py:thing")


HELD = """
import functools
import math
import subprocess as processes
from shutil import rmtree
from subprocess import run
import flax.linen as nn
import jax
from beside import SIZE

if SIZE > 100:
    from os import remove as either
else:
    def either():
        pass

call = processes.call
checked = functools.partial(functools.partial(run, check=True), timeout=5)
listed = [].append
layer_class = nn.Dense

def own(x):
    return x

class Net(nn.Module):
    pass

jitted = jax.jit(own)
cached = functools.cache(own)
mine = functools.partial(own, 1)
double = lambda x: 2 * x
net = Net()
layer = nn.Dense(3)
pair = (own, own)
"""
OWN = ("own", "Net", "jitted", "cached", "mine", "double", "net", "layer", "pair")
ELSEWHERE = ("math", "processes", "rmtree", "run", "SIZE", "either", "call", "checked", "listed",
             "layer_class", "__builtins__")  # fmt: skip


@pytest.mark.parametrize("name", OWN + ELSEWHERE)
def test_only_what_a_file_defines_itself_can_be_loaded(folder, name):
    (folder / "held.py").write_text(HELD)
    if name in OWN:
        user_code.load("method", f"held.py:{name}")
        return
    line = f"^method must be defined in held.py itself, got '{name}' from elsewhere$"
    with pytest.raises(ArgumentError, match=line):
        user_code.load("method", f"held.py:{name}")


def test_a_package_offers_what_its_modules_define(folder, monkeypatch):
    (folder / "offering").mkdir()
    (folder / "offering/__init__.py").write_text("from offering.inner import f\nfrom shutil import rmtree\n")
    (folder / "offering/inner.py").write_text("def f():\n    return 1\n")
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    assert user_code.load("method", "offering:f")() == 1
    with pytest.raises(ArgumentError, match="must be defined in offering itself, got 'rmtree'"):
        user_code.load("method", "offering:rmtree")


BROKEN = {
    "x = 1\nimport beside\n\ndef f():\n    return 1 / 0\n\nf()\n": "ZeroDivisionError: division by zero",
    "import no_such_package\n": "ModuleNotFoundError: No module named 'no_such_package'",
    "def (\n": "SyntaxError: .*",
    "import sys\nsys.exit('no')\n": "SystemExit: no",
    "raise ValueError('two\\nlines')\n": "ValueError: two lines",
}


@pytest.mark.parametrize("content", BROKEN)
@pytest.mark.parametrize("text", ["broken.py:f", "broken:f"])
def test_a_failing_import_has_its_own_traceback(folder, monkeypatch, content, text):
    (folder / "broken.py").write_text(content)
    if text == "broken:f":
        monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    with pytest.raises(
        UserCodeError, match=f"^method {text} cannot be imported: {BROKEN[content]}$"
    ) as failure:
        user_code.load("method", text)
    trace = failure.value.trace
    assert str(folder / "broken.py") in trace
    assert "saddle_jax" not in trace
    assert "importlib" not in trace
    assert trace.count("Traceback") == (0 if "def (" in content else 1)
    assert not any("broken" in name for name in sys.modules)


def test_the_traceback_has_the_users_lines(folder):
    (folder / "broken.py").write_text("import deeper\n")
    (folder / "deeper.py").write_text("def f():\n    return 1 / 0\n\nf()\n")
    with pytest.raises(UserCodeError) as failure:
        user_code.load("method", "broken.py:f")
    for line in ("import deeper", "return 1 / 0", "ZeroDivisionError: division by zero"):
        assert line in failure.value.trace


# ---- the files beside a user's file that it imports ----


@pytest.fixture
def beside(tmp_path, monkeypatch):
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


def write(folder, **files):
    for name, text in files.items():
        path = folder / f"{name.replace('__in__', '/')}.py"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)


def names(folder, name="mine.py"):
    return [*siblings("method", user_code.read("method", folder / name))]


def test_they_are_found_through_each_other(beside):
    write(
        beside,
        saddle_jax__in____init__="",
        mine="import numpy, saddle_jax\nfrom saddle_jax import data\n"
        "import my_one as x\ndef f():\n    from my_pack.deep import thing, other\n",
        my_one="import my_two, mine\nraise SystemExit('imported')\n",
        my_two="import my_one\nfrom . import my_three\n",
        my_three="",
        my_pack__in____init__="",
        my_pack__in__deep="import my_pack.more",
        my_pack__in__more="",
        my_pack__in__unused="",
    )
    assert names(beside) == ["my_one", "my_pack", "my_pack.deep", "my_pack.more", "my_two"]
    write(beside, mine="def (")
    assert names(beside) == []


def test_a_changed_sibling_is_imported_again(beside):
    write(beside, mine="import my_value\nVALUE = my_value.VALUE\n", my_value="VALUE = 1\n")
    assert user_code.load("method", "mine.py:VALUE") == 1
    write(beside, my_value="VALUE = 22\n")
    assert user_code.load("method", "mine.py:VALUE") == 22


def test_two_folders_do_not_share_siblings_of_one_name(beside):
    takes = "import my_value\nVALUE = my_value.VALUE\n"
    write(beside, a__in__mine=takes, a__in__my_value="VALUE = 1\n")
    write(beside, b__in__mine=takes, b__in__my_value="VALUE = 2\n")
    assert user_code.load("method", "a/mine.py:VALUE") == 1
    with pytest.raises(ArgumentError, match=r"^b/mine.py imports my_value, and another my_value is imported"):
        user_code.load("method", "b/mine.py:VALUE")
    write(beside, a__in__mine=f"{takes}OTHER = 5\n")
    assert user_code.load("method", "a/mine.py:OTHER") == 5


def test_what_somebody_else_imported_stays(beside, monkeypatch):
    write(beside, mine="import my_value\nVALUE = my_value.VALUE\n", my_value="VALUE = 1\n")
    monkeypatch.syspath_prepend(beside)
    module = __import__("my_value")
    module.VALUE = 7
    assert user_code.load("method", "mine.py:VALUE") == 7
