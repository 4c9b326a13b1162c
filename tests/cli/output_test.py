"""What verbs print: tables that fit, colours on terminals alone, and JSON with nothing beside it."""

import io
import json
import os
import pathlib
import pty
import re
import sys

import forked
import pytest
from absl import flags
from folders import write_run

from saddle_jax.cli import __main__ as cli
from saddle_jax.cli import train, verb
from saddle_jax.cli.verb import Output
from saddle_jax.report.tables import as_records, as_text
from saddle_jax.training import progress
from saddle_jax.training.progress import Screen

ROWS = [
    ["method", "sends", "demands", "citation"],
    ["gradient_tracking", "2 + a number", "doubly stochastic and connected", "Nedic et al., 2017"],
    ["qgm", "1", "", "Lin et al., ICML 2021"],
]


class Tty(io.StringIO):
    """A terminal that remembers what was printed."""

    def isatty(self):
        return True


@pytest.fixture
def tty(monkeypatch):
    """Makes standard output a terminal of 80 columns, when it is called."""
    stream = Tty()
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def begin():  # not before: pytest sets its own when a test begins
        monkeypatch.setattr(sys, "stdout", stream)
        return stream

    return begin


def drawn(stream, width, monkeypatch, spare=()):
    """The lines of ROWS on a terminal, without trailing blanks and colours."""
    monkeypatch.setenv("COLUMNS", str(width))
    options = flags.FlagValues()
    for name in ("quiet", "json"):
        flags.DEFINE_bool(name, False, "", flag_values=options)
    options.mark_as_parsed()
    Output(options).table(ROWS, spare=spare)
    return [line.rstrip() for line in re.sub(r"\033\[[\d;]*m", "", stream.getvalue()).splitlines()]


def test_a_table_has_its_natural_width_where_nothing_limits_it():
    lines = as_text(ROWS).splitlines()
    assert lines[0].split() == ROWS[0]
    assert lines[2] == "gradient_tracking  2 + a number  doubly stochastic and connected  Nedic et al., 2017"
    assert as_text([["a"], ["b"]]) == "a\n-\nb"


@pytest.mark.parametrize("width", [80, 60, 40, 20, 12])
def test_a_table_fits_by_leaving_columns_out_and_by_wrapping(width, tty, monkeypatch):
    lines = drawn(tty(), width, monkeypatch, spare=("citation", "demands"))
    left_out = ["citation"][: width < 85] + ["demands"][: width < 64]
    note = f"(left out here: {', '.join(left_out)}; a wider terminal or --json shows all)"
    assert lines.pop() == note
    assert max(map(len, lines)) <= width
    assert ("doubly" in "".join(lines)) == (width >= 64)


@pytest.mark.parametrize("width", [80, 60, 40])
def test_without_columns_to_spare_it_wraps(width, tty, monkeypatch):
    lines = drawn(tty(), width, monkeypatch)
    assert max(map(len, lines)) <= width
    text = "".join("".join(lines).split())
    assert all(letter in text for letter in "gradient_tracking")


def test_what_fits_is_left_alone(tty, monkeypatch):
    lines = drawn(tty(), 200, monkeypatch, spare=("citation", "demands"))
    assert [line.split() for line in (lines[0], *lines[2:])] == [" ".join(row).split() for row in ROWS]


def test_where_rich_is_missing_a_table_is_plain(tty, monkeypatch):
    monkeypatch.setattr(verb.importlib.util, "find_spec", lambda name: None)
    assert drawn(tty(), 40, monkeypatch, spare=("citation",)) == as_text(ROWS).splitlines()


def test_records_have_numbers_where_rows_have_texts():
    rows = [["table", "mean", "seeds", "interval"], ["1", "+1.5", "3", "-"], ["2", "1e-05", "", "[1, 2]"]]
    assert as_records(rows, texts=("table",)) == [
        {"table": "1", "mean": 1.5, "seeds": 3, "interval": None},
        {"table": "2", "mean": 1e-05, "seeds": None, "interval": "[1, 2]"},
    ]


def test_a_stream_that_is_closed_or_dumb_is_no_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    assert not progress.is_drawable(Tty())
    closed = io.StringIO()
    closed.close()
    assert verb._width_of(closed) is None
    assert not progress.is_drawable(closed)


def some_runs(folder):
    write_run(folder / "a-run-with-a-name-that-is-rather-long-for-a-terminal-of-eighty-columns")
    write_run(folder / "b", status="diverged")
    (folder / "c").mkdir()
    (folder / "c" / "config.json").write_text("{")


def test_a_list_fits_the_terminal_and_tells_states_by_colours(tmp_path, tty, monkeypatch):
    some_runs(tmp_path)
    stream = tty()
    assert cli.main(["saddle", "list", str(tmp_path)]) == 0
    printed = stream.getvalue()
    assert re.search(r"\033\[31mdiverged *\033\[0m", printed)
    assert "\033[1mrun" in printed
    plain = re.sub(r"\033\[\d*m", "", printed)
    assert max(len(line) for line in plain.splitlines() if "unreadable:" not in line) <= 80
    assert re.search(r"^\(left out here: seed.*a wider terminal or --json shows all\)$", plain, re.M)
    monkeypatch.setenv("NO_COLOR", "1")
    stream.truncate(0)
    assert cli.main(["saddle", "list", str(tmp_path)]) == 0
    assert "\033" not in stream.getvalue()


def test_a_list_in_a_pipe_is_whole_and_plain(tmp_path, capsys):
    some_runs(tmp_path)
    assert cli.main(["saddle", "list", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[0].split() == [
        "run", "state", "step", "result", "method", "seed",
    ]  # fmt: skip
    assert "\033" not in printed
    assert max(map(len, printed.splitlines())) > 80


STATES = ["finished", "diverged", "unreadable"]
JSON = {
    "list": (["list", "."], lambda found: [one["state"] for one in found] == STATES),
    "nothing": (["list", "c"], lambda found: len(found) == 1),
    "methods": (["methods", "qgm"], lambda found: found[0]["passes"] == 1),
    "gradients": (["methods", "--gradients"], lambda found: "sam" in [one["name"] for one in found]),
    "settings": (
        ["settings", "--method.rho=0.2"],
        lambda found: {one["setting"]: one["value"] for one in found}["method"] == "q_saddle(rho=0.2)",
    ),
    "topology": (["topology", "ring", "5"], lambda found: found["degrees"] == [[2] * 5]),
    "data list": (["data", "list"], lambda found: found[0]["dataset"] == "digits"),
    "data show": (["data", "show", "digits"], lambda found: found["samples"] == {"train": 1437, "test": 360}),
    "data partition": (["data", "partition", "--agents=3"], lambda found: len(found["agents"]) == 3),
    "theory": (["reproduce", "theory"], lambda found: found["setting"]["agents"] == 8),
    "check": (["check", "ring", "--kind=graph"], lambda found: all(one["kind"] == "graph" for one in found)),
    "tables": (["reproduce", "--list"], lambda found: found["tables"][0]["table"] == "1"),
    "rows": (["reproduce", "--list", "--table=1"], lambda found: found[0]["row"].startswith("cifar10")),
    "claims": (["reproduce", "--claims"], lambda found: len(found["claims"]) > 5),
    "plan": (
        ["reproduce", "--table=1", "--rows=ring5-alpha0.01-qgm", "--scale=smoke", "--plan", "--workdir=w"],
        lambda found: found["rows"][0]["steps"] == 2 and "not measured" in found["estimate"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", JSON)
def test_json_is_valid_and_alone(case, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    some_runs(tmp_path)
    ratios = [["place", "what"], ["abstract", "traffic"]]  # tests/papers/costs_test.py computes them
    monkeypatch.setattr("saddle_jax.papers.saddle.costs.ratio_rows", lambda: ratios)
    arguments, is_right = JSON[case]
    assert cli.main(["saddle", *arguments, "--json"]) == 0
    told = capsys.readouterr()
    assert is_right(json.loads(told.out))
    assert told.err == ""


def test_quiet_prints_results_without_what_is_around_them(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    assert cli.main(["saddle", "data", "list", "--quiet"]) == 0
    quiet = capsys.readouterr().out
    assert quiet.startswith("dataset ")
    assert cli.main(["saddle", "data", "list"]) == 0
    assert capsys.readouterr().out == f"prepared datasets are looked for in {tmp_path}\n{quiet}"


def test_the_bar_shows_the_newest_loss_and_accuracy(monkeypatch):
    stream = Tty()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    screen = Screen(lines=False)
    screen.start(100, 0)
    screen.note(loss="0.25")
    screen.note(accuracy="95.28 %")
    screen.advance(50)
    screen._bar.refresh()
    screen.stop()
    assert re.search(
        r"50%\|.*\| 50/100, .*steps/s, \d\d:\d\d left, loss 0.25, accuracy 95.28 %", stream.getvalue()
    )
    stream = Tty()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "dumb")
    screen.start(100, 0)
    screen.advance(50)
    screen.stop()
    assert stream.getvalue() == ""


def test_the_next_command_begins_as_this_one_was_typed(monkeypatch, tmp_path):
    monkeypatch.setenv(train.VARIABLE, "bin/saddle")
    lines = train.next_steps(pathlib.Path("runs/a b")).splitlines()
    assert lines[0] == "next: bin/saddle report 'runs/a b'"
    monkeypatch.delenv(train.VARIABLE)
    program = tmp_path / "saddle"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(program)])
    assert train.typed() == str(program)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert train.typed() == "saddle"
    monkeypatch.setattr(sys, "argv", ["/somewhere/saddle_jax/cli/__main__.py"])
    assert train.typed() == f"{sys.executable} -m saddle_jax.cli"


def test_a_real_terminal_of_80_columns(tmp_path):
    some_runs(tmp_path)
    leader, follower = pty.openpty()
    terminal_of_it = {1: os.ttyname(follower)}
    done = forked.run("list", tmp_path, "--quiet", streams=terminal_of_it, COLUMNS="80", TERM="xterm")
    assert done.returncode == 0
    os.close(follower)
    printed = b""
    try:
        while part := os.read(leader, 4096):
            printed += part
    except OSError:  # the other end is closed
        pass
    lines = re.sub(rb"\033\[\d*m", b"", printed).decode().splitlines()
    assert lines[0].startswith("run ")
    assert max(map(len, lines)) <= 80
