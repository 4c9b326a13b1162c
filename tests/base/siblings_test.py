"""The files beside a user's file that it imports: found by its text, followed when they change."""

import sys

import pytest

from saddle_jax.base import brought, sources
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.siblings import siblings


@pytest.fixture
def folder(tmp_path, monkeypatch):
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
    return [*siblings("method", sources.read("method", folder / name))]


def test_they_are_found_through_each_other(folder):
    write(
        folder,
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
    assert names(folder) == ["my_one", "my_pack", "my_pack.deep", "my_pack.more", "my_two"]
    write(folder, mine="def (")
    assert names(folder) == []


def test_a_changed_sibling_is_imported_again(folder):
    write(folder, mine="import my_value\nVALUE = my_value.VALUE\n", my_value="VALUE = 1\n")
    assert brought.load("method", "mine.py:VALUE") == 1
    write(folder, my_value="VALUE = 22\n")
    assert brought.load("method", "mine.py:VALUE") == 22


def test_two_folders_do_not_share_siblings_of_one_name(folder):
    takes = "import my_value\nVALUE = my_value.VALUE\n"
    write(folder, a__in__mine=takes, a__in__my_value="VALUE = 1\n")
    write(folder, b__in__mine=takes, b__in__my_value="VALUE = 2\n")
    assert brought.load("method", "a/mine.py:VALUE") == 1
    with pytest.raises(ArgumentError, match=r"^b/mine.py imports my_value, and another my_value is imported"):
        brought.load("method", "b/mine.py:VALUE")
    write(folder, a__in__mine=f"{takes}OTHER = 5\n")
    assert brought.load("method", "a/mine.py:OTHER") == 5


def test_what_somebody_else_imported_stays(folder, monkeypatch):
    write(folder, mine="import my_value\nVALUE = my_value.VALUE\n", my_value="VALUE = 1\n")
    monkeypatch.syspath_prepend(folder)
    module = __import__("my_value")
    module.VALUE = 7
    assert brought.load("method", "mine.py:VALUE") == 7
