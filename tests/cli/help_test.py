"""The help of every verb: a usage line with its arguments, a sentence, and options in plain English."""

import re

import pytest
from saddle_jax.cli.descriptions import DESCRIPTIONS

from saddle_jax.cli import __main__ as cli

CALLS = [name.split() for name in DESCRIPTIONS if name != "version"]


def test_every_verb_is_described_and_the_overview_fits(capsys):
    assert {name for name in DESCRIPTIONS if " " not in name} == {*cli.VERBS, "version"}
    assert cli.main(["saddle", "help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "usage: saddle VERB [arguments] [options]"
    assert max(map(len, lines)) <= 80
    for name, said in DESCRIPTIONS.items():
        assert re.fullmatch(r"[A-Z].*\.", said.meaning), name


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_the_help_of_a_verb(call, capsys):
    assert cli.main(["saddle", *call, "--help"]) == 0
    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert re.fullmatch(rf"usage: saddle {' '.join(call)}( [A-Z\[].*)?", lines[0])
    assert lines[1].startswith(DESCRIPTIONS[" ".join(call)].meaning[:40])
    assert max(map(len, lines)) <= 80
    for unwanted in (
        "flagfile",
        "undefok",
        "manieth",
        "repeat this option to specify",
        "(a comma separated",
        ".;",
    ):
        assert unwanted not in told.out
    assert not re.search(r"\belse\.?$", told.out, re.M)
    assert told.err == ""


def test_options_stand_in_groups_with_their_defaults(capsys):
    assert cli.main(["saddle", "sharpness", "-h"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("usage: saddle sharpness DIR... [options]\n")
    groups = re.findall(r"^[A-Z][\w ]+$", printed, re.M)
    assert groups == ["Options", "Output", "Runs that are opened again"]
    assert "--images=N                Training images to measure on (default: 1024)." in printed
    assert "--data=train|own" in printed
    assert "--output=FILE" in printed
    assert ".png, .pdf or .svg" in printed
