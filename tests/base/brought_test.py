"""Things that a user brings: how they are spelt, found, called, and what is said if that fails."""

import hashlib
import sys

import pytest

from saddle_jax.base import brought, sources
from saddle_jax.base.brought import BroughtError
from saddle_jax.base.checks import ArgumentError

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


SPELT = {
    "mine.py:f": ("mine.py", "f", {}),
    "some folder/mine.py:f": ("some folder/mine.py", "f", {}),
    "/a/b.c/mine.py:f(beta=0.5, name=relay)": ("/a/b.c/mine.py", "f", {"beta": 0.5, "name": "relay"}),
    r"C:\work\mine.py:f": (r"C:\work\mine.py", "f", {}),
    "pkg.module:Net(sizes=[1, 2], path='a.py:b')": ("pkg.module", "Net", {"sizes": [1, 2], "path": "a.py:b"}),
    "mine:f()": ("mine", "f", {}),
    "<my method>": ("", "my method", {}),
}


@pytest.mark.parametrize("text", SPELT)
def test_a_spelling_is_read_without_looking_at_anything(text):
    assert brought.is_brought(text)
    assert brought.parse("method", text) == SPELT[text]


@pytest.mark.parametrize(
    "text",
    ["qgm", "gut(mu=0.5)", "top_k0.3", "torus:5x8", "circulant:1,5", "digits", "f(path='a.py:b')", "", "none",
     "graph.npy", "imagenette/160px-v2", "equi_static:4,undirected"],
)  # fmt: skip
def test_names_of_ours_are_not_brought(text):
    assert not brought.is_brought(text)


@pytest.mark.parametrize(
    "text",
    ["mine.py", "mine.py:", "mine.py:f(", "mine.py:f(1)", "mine.py:f(x=open('a'))", "mine.py:f(x=1)(y=2)",
     "mine.py:f.g", "mine.py:1f", "mine.py:f(x=1, x=2)", "mi\nne.py:f", "mine.py:f(x='\x1b[2J')"],
)  # fmt: skip
def test_a_wrong_spelling_is_one_line(text):
    assert brought.is_brought(text)
    with pytest.raises(ArgumentError, match=r"^method must be .*NAME") as refusal:
        brought.parse("method", text)
    assert str(refusal.value).isprintable()


def test_spellings_are_bounded():
    with pytest.raises(ArgumentError, match="method must be at most 500 letters long, got 10005"):
        brought.parse("method", "a" * 10000 + ".py:f")
    deep = "mine.py:f(x=" + "[" * 240 + "]" * 240 + ")"
    with pytest.raises(ArgumentError, match="must be NAME"):
        brought.parse("method", deep)


def test_a_file_is_run_once_and_its_folder_is_searched_only_then(folder):
    before = list(sys.path)
    thing = brought.load("method", "mine.py:Thing")
    assert thing().size == 7
    assert brought.load("method", f"{folder}/mine.py:thing")(1) == thing(6)
    assert sys.modules[thing.__module__].COUNT == 3
    assert sys.path == before


def test_another_content_is_another_module(folder):
    first = brought.load("method", "mine.py:Thing")
    with sources.reading_once():
        assert brought.load("method", "mine.py:COUNT") == 3
        (folder / "mine.py").write_text(MINE.replace("COUNT = 3", "COUNT = 4"))
        assert brought.load("method", "mine.py:COUNT") == 3
        assert brought.source("method", "mine.py:COUNT").content == MINE.encode()
    assert brought.load("method", "mine.py:COUNT") == 4
    assert brought.load("method", "mine.py:Thing") is not first


def test_a_module_is_imported_as_python_does(folder, monkeypatch):
    import math

    assert brought.load("method", "math:sqrt") is math.sqrt
    (folder / "pkg").mkdir()
    (folder / "pkg/other.py").write_text("f = 1\n")
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    assert brought.load("method", "pkg.other:f") == 1
    source = brought.source("method", "pkg.other:f(x=1)")
    assert source.path == folder / "pkg/other.py"
    assert source.sha256 == hashlib.sha256(b"f = 1\n").hexdigest()
    assert source.copy_name == f"{source.sha256[:12]}-other.py"
    with pytest.raises(ArgumentError, match="method must be in a module that has a file, got 'sys:argv'"):
        brought.source("method", "sys:argv")


MISSING = {
    "no.py:f": "method must name a file that exists, got 'no.py'",
    "folder.py:f": "method must name a file that exists, got 'folder.py'",
    "mine.py:thign": "did you mean 'thing'? method must be in mine.py, got no 'thign' there",
    "mine:thing": "method must be in a module, got no 'mine'; for the file that is here use mine.py:thing",
    "folder.no:thing": "method must be in a module, got no 'folder.no'",
    "no.such.thing:f": "method must be in a module, got no 'no.such.thing'",
    "math:sqrtt": "did you mean 'sqrt'? method must be in math, got no 'sqrtt' there",
    "<mine>": "method <mine> was made from Python objects: open it with saddle_jax.Run",
}


@pytest.mark.parametrize("text", MISSING)
def test_what_is_not_there_is_one_line(folder, text):
    (folder / "folder.py").mkdir()
    with pytest.raises(ArgumentError) as refusal:
        brought.load("method", text)
    assert str(refusal.value) == MISSING[text]
    assert not isinstance(refusal.value, BroughtError)


def test_a_large_file_is_refused(folder, monkeypatch):
    monkeypatch.setattr(sources, "_LARGEST", 100)
    with pytest.raises(ArgumentError, match=r"of at most 0 MiB, got 'mine.py', which is larger"):
        brought.load("method", "mine.py:thing")


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
def test_only_what_a_file_defines_itself_can_be_spelt(folder, name):
    (folder / "held.py").write_text(HELD)
    if name in OWN:
        brought.load("method", f"held.py:{name}")
        return
    line = f"^method must be defined in held.py itself, got '{name}' from elsewhere$"
    with pytest.raises(ArgumentError, match=line):
        brought.load("method", f"held.py:{name}")


def test_a_package_offers_what_its_modules_define(folder, monkeypatch):
    (folder / "offering").mkdir()
    (folder / "offering/__init__.py").write_text("from offering.inner import f\nfrom shutil import rmtree\n")
    (folder / "offering/inner.py").write_text("def f():\n    return 1\n")
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    assert brought.load("method", "offering:f")() == 1
    with pytest.raises(ArgumentError, match="must be defined in offering itself, got 'rmtree'"):
        brought.load("method", "offering:rmtree(path=x)")


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
        BroughtError, match=f"^method {text} cannot be imported: {BROKEN[content]}$"
    ) as failure:
        brought.load("method", text)
    trace = failure.value.trace
    assert str(folder / "broken.py") in trace
    assert "saddle_jax" not in trace
    assert "importlib" not in trace
    assert trace.count("Traceback") == (0 if "def (" in content else 1)
    assert not any("broken" in name for name in sys.modules)


def test_the_traceback_has_the_users_lines(folder):
    (folder / "broken.py").write_text("import deeper\n")
    (folder / "deeper.py").write_text("def f():\n    return 1 / 0\n\nf()\n")
    with pytest.raises(BroughtError) as failure:
        brought.load("method", "broken.py:f")
    for line in ("import deeper", "return 1 / 0", "ZeroDivisionError: division by zero"):
        assert line in failure.value.trace


def test_things_are_made_with_options_and_what_they_take(folder):
    thing = brought.load("method", "mine.py:Thing")

    def make(text, *arguments, **offered):
        return brought.make("method", text, thing, *arguments, **offered)

    assert make("mine.py:thing", 1) == thing(6)
    assert make("mine.py:thing", 1, size=2, beta=0.5) == thing(3)
    assert make("mine.py:thing(size=10)", 1, size=2) == thing(11)
    assert make("mine.py:anything(a=1, b=2)", c=3) == thing(2)
    assert brought.make("method", "mine.py:COUNT", int) == 3


WRONG = {
    "mine.py:thing(sise=1)": "did you mean 'size'? method mine.py:thing takes size, scale, got option 'sise'",
    "mine.py:number": "method mine.py:number must return a Thing, got 1",
    "mine.py:TEXT": "method mine.py:TEXT must be a function or a class, got 'a'",
    "mine.py:COUNT": "method mine.py:COUNT must be a function or a class, got 3",
    "mine.py:failing": "method mine.py:failing cannot be called: too many positional arguments",
    "mine.py:refusing": "n must be an integer >= 100, got 1",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_cannot_be_made_is_one_line(folder, text):
    with pytest.raises(ArgumentError) as refusal:
        brought.make("method", text, brought.load("method", "mine.py:Thing"), 1)
    assert str(refusal.value) == WRONG[text]
    assert not isinstance(refusal.value, BroughtError)


def test_a_factory_that_fails_has_its_own_traceback(folder):
    with pytest.raises(BroughtError, match=r"^gradient mine.py:failing failed: KeyError: 'lost'$") as failure:
        brought.make("gradient", "mine.py:failing", int)
    assert 'raise KeyError("lost")' in failure.value.trace
    assert "saddle_jax" not in failure.value.trace


def test_a_spelling_moves_to_another_place():
    assert brought.at("a/mine.py:f(x='a/mine.py')", "b/mine.py") == "b/mine.py:f(x='a/mine.py')"
