"""Class G: what is installed, from where, and what the package itself may do."""

import pathlib
import re
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).parents[1] / "package"))
from bare_test import without_extras

CLASS = "G"
ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_every_verb_without_the_extras(attack, tmp_path):
    for verb, (status, errors) in without_extras(tmp_path).items():
        with attack.attempt(verb):
            assert status in (0, 2), status
            assert len(errors.splitlines()) == (status != 0), errors
    with attack.attempt("nothing is written"):
        assert list(tmp_path.iterdir()) == []


FORBIDDEN = {
    "a shell": r"shell\s*=\s*True|os\.system|os\.popen",
    "eval": r"(?<![\w.])eval\(",
    "pickles": r"^\s*(import|from) (pickle|marshal|shelve|dill)|allow_pickle\s*=\s*True",
    "names in /tmp that can be guessed": r"[\"']/tmp|tempfile\.mktemp",
    "yaml that makes objects": r"yaml\.(unsafe_)?load\(",
    "certificates that are not checked": r"verify\s*=\s*False|_create_unverified_context",
}


# CIFAR's authors publish pickles; data/outside_test.py holds what is read of them to arrays and bytes.
ALLOWED = {"pickles": {"archives.py"}}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_package_does_without(what, attack):
    paths = sorted((ROOT / "saddle_jax").rglob("*.py"))
    for path in (path for path in paths if path.name not in ALLOWED.get(what, ())):
        with attack.attempt(f"{what} in {path.name}"):
            assert not re.search(FORBIDDEN[what], path.read_text(), flags=re.MULTILINE)
