"""The questions and answers quote what commands really print."""

import re

import pages
import pytest

from saddle_jax.cli import __main__ as cli

SHOWN = re.findall(r"^```console\n\$ bin/(saddle .*)\n(.*)\n```", pages.page("faq").read_text(), re.MULTILINE)


def test_many_lines_are_explained():
    assert len(SHOWN) >= 10


@pytest.mark.parametrize(("command", "line"), SHOWN, ids=[command for command, _ in SHOWN])
def test_a_mistake_prints_the_line_that_is_explained(command, line, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert cli.main(command.split()) == 2
    shown = re.escape(line).replace(r"\.\.\.", r"\d+")
    assert re.fullmatch(shown, capfd.readouterr().err.rstrip("\n").splitlines()[-1])
    assert list(tmp_path.iterdir()) == []  # nothing was written
