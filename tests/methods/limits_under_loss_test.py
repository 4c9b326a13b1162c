"""Where methods end when messages get lost: docs/methods.md has a table that examples/limits.py prints."""

import pathlib
import re
import runpy
import sys

import pytest

from saddle_jax.methods import base_methods

ROOT = pathlib.Path(__file__).resolve().parents[2]
NETWORKS = ("nothing lost", "both ways", "one way", "renormalised", "agents offline")

TRACKING = {"gradient_tracking", "d2", "momentum_tracking", "kgt"}
COPIES = {"dcd", "ecd", "beer", "motef", "ada_gossip"}
PUSH = {"sgp", "push_diging"}
CROSSED = {"ngm", "n_saddle", "cga"}
EXACT = {
    "nothing lost": TRACKING | {"push_diging", "relay_sgd", "beer", "motef"},
    "both ways": TRACKING | {"push_diging"},
    "one way": {"push_diging"},
    "renormalised": set(),
    "agents offline": TRACKING | {"push_diging"},
}
REFUSED = {
    "nothing lost": set(),
    "both ways": COPIES,
    "one way": COPIES | CROSSED,
    "renormalised": COPIES | PUSH,
    "agents offline": COPIES,
}


def rows(text):
    """The lines of a table, {method: {network: cell}}."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    assert tuple(lines[0][1:]) == NETWORKS
    return {name: dict(zip(NETWORKS, cells, strict=True)) for name, *cells in lines[2:]}


def documented():
    """The share that is lost, and the table of the page."""
    text = (ROOT / "docs" / "methods.md").read_text()
    ((share, table),) = re.findall(r"examples/limits.py ([\d.]+) all`.*?\n\n((?:\|.*\n)+)", text)
    return share, rows(table)


SHARE, TABLE = documented()


def test_the_page_tells_of_all_methods_what_is_known_of_them():
    assert TABLE.keys() == {*base_methods()}
    for network in NETWORKS:
        for word, expected in (("exact", EXACT), ("refused", REFUSED)):
            assert {name for name in TABLE if TABLE[name][network] == word} == expected[network], network


def check(name, monkeypatch, capsys):
    """Prints a line of the table anew."""
    monkeypatch.setattr(sys, "argv", ["limits.py", SHARE, name])
    runpy.run_path(str(ROOT / "examples" / "limits.py"))
    found, page = rows(capsys.readouterr().out)[name], TABLE[name]
    for network in NETWORKS:
        words = [cell[network].strip(")").split(" (") for cell in (found, page)]
        assert len(words[0]) == len(words[1]), (network, found[network], page[network])
        if len(words[0]) == 1:
            assert found[network] == page[network], network
            continue
        (distance, norm), stated = (list(map(float, numbers)) for numbers in words)
        assert [distance, norm] == pytest.approx(stated, rel=0.1), network
        assert 0.8 < norm < 1.5, network  # nobody's models shrink


# One of each kind; the others are of the same kinds.
FEW = ("dpsgd", "d2", "push_diging", "relay_sgd", "ngm", "dcd")


@pytest.mark.parametrize("name", FEW)
def test_a_method_ends_where_the_page_says(name, monkeypatch, capsys):
    check(name, monkeypatch, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("name", base_methods())
def test_every_method_ends_where_the_page_says(name, monkeypatch, capsys):
    check(name, monkeypatch, capsys)
