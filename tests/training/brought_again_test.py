"""Opening runs of brought things again: nothing is imported that the user does not name."""

import hashlib
import json
import shutil

import pytest
from bringing import BROUGHT, METHOD, MINE, saddle

from saddle_jax.runs import run_folder

pytestmark = pytest.mark.usefixtures("unrendered")

VERBS = [["evaluate"], ["export"], ["sharpness", "--images=32", "--iterations=2"],
         ["landscape", "--images=32", "--points=3"], ["reproduce", "theory", "--samples=128"]]  # fmt: skip


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_opening_again_needs_the_file_to_be_named(copied, verb, capsys):
    assert saddle(*verb, "run") == 2
    assert capsys.readouterr().err == (
        "saddle: run was trained with mine.py:Compressor(size=2), which is imported only when you say so: "
        "add --code=mine.py\n"
    )
    (copied / "four.edges").unlink()  # its copy is read
    (copied / "mine.py").rename(copied.parent / "mine.py")
    assert saddle(*verb, "run", f"--code={copied.parent}/mine.py") == 0, capsys.readouterr().err


def test_the_copy_itself_may_be_named_and_another_file_not(copied, capsys):
    copy = next((copied / "run" / "code").glob("*-mine.py"))
    assert saddle("evaluate", "run", f"--code={copy}") == 0
    capsys.readouterr()
    (copied / "mine.py").write_text(MINE + "raise SystemExit('it was imported')\n")
    assert saddle("evaluate", "run", "--code=mine.py") == 2
    command = f"diff run/code/{copy.name} mine.py"
    assert capsys.readouterr().err == (
        f"saddle: run was trained with another mine.py: {command} shows the difference\n"
    )
    assert saddle("evaluate", "run", "--code=other.py") == 2
    assert "add --code=mine.py" in capsys.readouterr().err


def test_a_changed_or_planted_copy_of_a_graph_is_refused(copied, capsys):
    copy = next((copied / "run" / "code").glob("*.edges"))
    content = copy.read_bytes()
    copy.write_bytes(b"0 1\n1 2\n2 3\n")
    assert saddle("evaluate", "run", "--code=mine.py") == 2
    assert "was changed: it is no longer the graph" in capsys.readouterr().err
    copy.unlink()
    (copied / "secret.edges").write_bytes(content)
    copy.symlink_to(copied / "secret.edges")
    assert saddle("evaluate", "run", "--code=mine.py") == 2
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("verb", VERBS[:3], ids=lambda verb: verb[0])
def test_a_folder_cannot_call_what_the_named_file_imports(trained, tmp_path, monkeypatch, verb, capsys):
    monkeypatch.chdir(tmp_path)
    mine = "from subprocess import run\n" + MINE  # the user's own file, whose hash somebody knows
    (tmp_path / "mine.py").write_text(mine)
    shutil.copytree(trained / "run", tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    record = json.loads(path.read_text())
    planted = "mine.py:run(args=['touch', 'trapped'])"
    entries = [entry for entry in record["code"] if "Compressor" in entry["spec"]]
    others = {"method": f"qgm(compressor={planted})", "gradient": "plain", "topology": "ring"}
    entries[0] |= {"spec": planted, "sha256": hashlib.sha256(mine.encode()).hexdigest()}
    path.write_text(json.dumps(record | {"config": record["config"] | others, "code": entries}))
    assert saddle(*verb, "run", "--code=mine.py") == 2
    assert capsys.readouterr().err == (
        f"saddle: run calls method {planted}, as --code allows\n"
        "saddle: compressor must be defined in mine.py itself, got 'run' from elsewhere\n"
    )
    assert not (tmp_path / "trapped").exists()


def test_what_is_called_is_told_before(copied, capsys):
    assert saddle("evaluate", "run", "--code=mine.py") == 0
    assert capsys.readouterr().err == (
        f"saddle: run calls method {METHOD}, method mine.py:Compressor(size=2), "
        "gradient mine.py:estimator(radius=0.1), as --code allows\n"
    )


TRAP = "import pathlib; pathlib.Path('trapped').touch()\nraise RuntimeError('trapped')\n"


def test_nothing_that_only_reads_imports_anything(copied, capsys):
    (copied / "mine.py").write_text(TRAP)
    (copied / "four.edges").write_text("not a graph")
    for path in (copied / "run" / "code").iterdir():
        path.write_text(TRAP)
    assert saddle("list", ".") == 0
    assert METHOD in capsys.readouterr().out
    assert saddle("report", "run", "--output=page.html") == 0
    page = (copied / "page.html").read_text()
    assert "four.edges: 4 agents, degree 2" in page
    assert saddle("figure", "curves", "run", "--output=a.png") == 0
    assert saddle("figure", "partition", "run", "--output=a.png") == 0
    assert saddle("figure", "bits", "run", "--output=a.png") == 0
    assert saddle("settings", *BROUGHT) == 0
    run_folder.check_same(copied / "run", run_folder.read_config(copied / "run"))
    for verb in ("evaluate", "export", "sharpness", "landscape", "theory"):
        assert saddle(verb, "run") == 2
    assert not (copied / "trapped").exists()


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"code": []}, "run does not say which mine.py it was trained with"),
        ({"code": 5}, "config.json cannot be read"),
        ({"code": [{"sha256": "0"}]}, "config.json cannot be read: code must have the sha256 of each file"),
        ({"code": [{"sha256": "0" * 64, "file": "../../mine.py"}]}, "the name of each file"),
        ({"code": [{"sha256": "0" * 64, "file": "mi\nne.py"}]}, "the name of each file"),
        ({"code": [{"sha256": "0" * 64, "file": "mine.py", "beside": 5}]}, "config.json cannot be read"),
        ({"code": [{"sha256": "0" * 64, "file": "mine.py", "beside": [{}]}]}, "config.json cannot be read"),
        ({"config": {"method": "a" * 600 + ".py:f"}}, "method must be at most 500 letters long"),
        ({"config": {"method": "mine.py:f\x1b[2J"}}, r"got 'mine.py:f\x1b[2J'"),
        ({"config": {"model": "mine.py:f\x1b[2J"}}, r"got 'mine.py:f\x1b[2J'"),
        (
            {"config": {"dataset": "mine.py:f("}},
            "dataset must be NAME, NAME(option=value, ...), FILE.py:NAME",
        ),
        (
            {"config": {"method": "<qgm>"}},
            "was made from Python objects: open it with saddle_jax.Experiment",
        ),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, str) else "",
)
def test_a_folder_may_say_anything(copied, change, line, capsys):
    path = copied / "run" / "config.json"
    record = json.loads(path.read_text())
    config = record["config"] | change.pop("config", {})
    path.write_text(json.dumps(record | {"config": config} | change))
    status = 2 if "trained with" in line or "Python objects" in line else 3
    assert saddle("evaluate", "run", "--code=mine.py") == status
    shown = capsys.readouterr().err
    assert line in shown
    assert shown.count("\n") == 1
    assert saddle("list", ".") == 0
