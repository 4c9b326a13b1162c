"""A method, estimator, compressor and graph of a user's own: train, resume and compare."""

import hashlib
import json
import shutil
import sys

import pytest
from bringing import BROUGHT, METHOD, MINE, OURS, SMALL, result, saddle

from saddle_jax import graphs
from saddle_jax.base.checks import ArgumentError
from saddle_jax.runs import source_files
from saddle_jax.settings.settings import Settings, build_topology

pytestmark = pytest.mark.usefixtures("unrendered")


def test_brought_things_train_as_ours_do(folder, capsys):
    assert saddle("train", *SMALL, *BROUGHT, "--workdir=theirs") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"{METHOD}, sam(rho=0.1), weight decay 0.0001" in said
    assert saddle("train", "--quiet", *SMALL, *OURS, "--workdir=ours") == 0
    theirs, ours = result(folder / "theirs"), result(folder / "ours")
    for name in ("params_sha256", "test_accuracy", "bytes_sent_per_agent", "paper_bytes_sent_per_agent"):
        assert theirs[name] == ours[name]


UNCOMPRESSED = "--method.compressor=none"
TRIALS = ["--seeds=0,1", "--sweep=method.weight_decay=0,0.01"]
LOSSY = ["--devices=4", "--seeds=0,1", "--faults.drop=0.1", UNCOMPRESSED]
WAYS = {
    "trials, and a graph in a file": ([*TRIALS, "--topology=four.edges"], [*TRIALS, "--topology=ring"]),
    "devices, faults, and graphs by turns": (
        [*LOSSY, "--topology=complete+mine.py:graph+four.edges"],
        [*LOSSY, "--topology=complete+ring+ring"],
    ),
    "a drawn graph": (["--topology=mine.py:drawn"], ["--topology=erdos_renyi(0.8)"]),
}


@pytest.mark.parametrize("way", WAYS)
def test_trials_devices_faults_and_sweeps_have_them(folder, way):
    theirs, ours = WAYS[way]
    assert saddle("train", "--quiet", *SMALL, *BROUGHT, *theirs, "--workdir=theirs") == 0
    assert saddle("train", "--quiet", *SMALL, *OURS, *ours, "--workdir=ours") == 0
    first, second = result(folder / "theirs"), result(folder / "ours")
    assert first["test_accuracy"] == second["test_accuracy"]
    assert first["test_loss"] == second["test_loss"]


def test_a_module_is_found_where_python_finds_it(folder, monkeypatch, capsys):
    (folder / "mine.py").rename(folder / "my_methods.py")
    options = ["--method=my_methods:method", "--workdir=run"]
    assert saddle("train", "--quiet", *SMALL, *options) == 2
    assert "use my_methods.py:method" in capsys.readouterr().err
    assert not (folder / "run").exists()
    monkeypatch.syspath_prepend(folder)
    assert saddle("train", "--quiet", *SMALL, *options) == 0
    (entry,) = json.loads((folder / "run" / "config.json").read_text())["code"]
    assert entry["file"] == "my_methods.py"
    assert saddle("evaluate", "run") == 2
    assert "add --code=my_methods\n" in capsys.readouterr().err
    assert saddle("evaluate", "run", "--code=my_methods") == 0


def test_the_folder_has_hashes_and_copies(trained):
    record = json.loads((trained / "run" / "config.json").read_text())
    assert [entry["setting"] for entry in record["code"]] == ["method", "method", "gradient", "topology"]
    for entry in record["code"]:
        content = (trained / entry["file"]).read_bytes()
        assert entry["sha256"] == hashlib.sha256(content).hexdigest()
        assert entry["copy"] == f"code/{entry['sha256'][:12]}-{entry['file']}"
        assert (trained / "run" / entry["copy"]).read_bytes() == content
    assert [entry["spec"] for entry in record["code"][:2]] == [METHOD, "mine.py:Compressor(size=2)"]
    assert len([*(trained / "run" / "code").iterdir()]) == 2
    assert record["topology"]["graphs"][0][0] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


def interrupt(run):
    """Leaves what a run that was killed after its second step leaves."""
    (run / "result.json").unlink()
    for path in (run / "checkpoints").iterdir():
        if path.name != "00000002":
            shutil.rmtree(path)


RESUMED = [*SMALL, *BROUGHT, "--topology=four.edges", "--checkpoint_every_steps=2",
           "--epochs=2", "--keep_checkpoints=9", "--workdir=run"]  # fmt: skip


def test_a_run_goes_on_with_its_file_wherever_it_lies(copied):
    before = result(copied / "run")
    interrupt(copied / "run")
    checkpoint = copied / "run" / "checkpoints" / "00000002" / "seal.json"
    written = checkpoint.stat().st_mtime_ns
    (copied / "elsewhere").mkdir()
    for name in ("mine.py", "four.edges"):
        (copied / name).rename(copied / "elsewhere" / name)
    moved = [option.replace("mine.py", "elsewhere/mine.py").replace("four.edges", "elsewhere/four.edges")
             for option in RESUMED]  # fmt: skip
    assert saddle("train", *moved) == 0
    assert checkpoint.stat().st_mtime_ns == written
    after = result(copied / "run")
    assert after["params_sha256"] == before["params_sha256"]
    assert after["test_loss"] == before["test_loss"]


@pytest.mark.parametrize("name", ["mine.py", "four.edges"])
def test_a_run_does_not_go_on_with_a_changed_file(copied, name, capsys):
    interrupt(copied / "run")
    old = hashlib.sha256((copied / name).read_bytes()).hexdigest()
    with (copied / name).open("a") as file:
        file.write("# changed\n")
    assert saddle("train", "--quiet", *RESUMED) == 2
    assert capsys.readouterr().err == (
        f"saddle: run was trained with another {name}: diff run/code/{old[:12]}-{name} {name} shows the "
        "difference; or choose another workdir\n"
    )
    assert not (copied / "run" / "result.json").exists()


def test_files_that_it_imports_are_kept_and_compared_too(folder, capsys):
    (folder / "my_helper.py").write_text("BETA = 0.5\n")
    (folder / "mine.py").write_text("import my_helper\n" + MINE.replace("beta=0.9", "beta=my_helper.BETA"))
    options = [*SMALL, "--method=mine.py:method", "--workdir=run"]
    assert saddle("train", "--quiet", *options) == 0
    (entry,) = json.loads((folder / "run" / "config.json").read_text())["code"]
    (beside,) = entry["beside"]
    assert (folder / "run" / beside["copy"]).read_text() == "BETA = 0.5\n"
    assert saddle("evaluate", "run", "--code=mine.py") == 0
    (folder / "my_helper.py").write_text("BETA = 0.6\n")
    command = f"diff run/{beside['copy']} "
    assert saddle("train", "--quiet", *options) == 2
    line = "run was trained with another my_helper.py: " + command
    assert line in capsys.readouterr().err
    assert saddle("evaluate", "run", "--code=mine.py") == 2
    assert line in capsys.readouterr().err
    sys.modules.pop("my_helper")


def test_a_graph_without_a_seed_does_not_go_on_as_another(folder, capsys):
    options = [*SMALL, "--agents=8", "--topology=mine.py:without_seed", "--workdir=run"]
    assert saddle("train", "--quiet", *options) == 0
    graphs._made.cache_clear()  # as in another process
    assert saddle("train", "--quiet", *options) == 2
    assert "another graph of this name: a graph that is random must take a seed" in capsys.readouterr().err


def test_other_options_are_another_run(copied, capsys):
    assert saddle("train", *RESUMED, "--method=mine.py:method(beta=0.7)") == 2
    assert f'method "{METHOD}" -> "{METHOD.replace("0.8", "0.7")}"' in capsys.readouterr().err


WRONG = {
    "no file": (["--method=no.py:f"], "method must name a file that exists, got 'no.py'"),
    "no name": (["--method=mine.py:methd"],
                "did you mean 'method'? method must be in mine.py, got no 'methd' there"),
    "kind": (["--method=mine.py:number"], "method mine.py:number must return a Method, got 5"),
    "no function": (["--method=mine.py:__doc__"], "must be defined in mine.py itself"),
    "another graph": (["--method=mine.py:on_another"], "must be on the graph that it is given, of 4"),
    "missing option": (["--method=mine.py:needy"], "method mine.py:needy must be given"),
    "wrong option": (["--method=mine.py:method(bta=1)"],
                     "takes beta, weight_decay, compressor, name, got option 'bta'"),
    "setting": (["--method=mine.py:method", "--method.gamma=0.5"],
                "takes beta, weight_decay, compressor, name, got option 'gamma'"),
    "sweep": (["--method=mine.py:method", "--sweep=method.gamma=0.5,1"],
              "method mine.py:method takes beta, weight_decay, compressor, name, got option 'gamma'"),
    "seeds": (["--topology=mine.py:drawn", "--seeds=0,1"],
              "seeds must be one for topology mine.py:drawn, whose graph differs between seeds"),
    "gradient": (["--gradient=mine.py:number"],
                 "gradient mine.py:number must return a GradientEstimator, got 5"),
    "rho": (["--gradient=mine.py:estimator", "--gradient.rho=0.3"],
            "gradient mine.py:estimator takes radius, got option 'rho'"),
    "compressor": (["--method.compressor=mine.py:number"],
                   "compressor mine.py:number must return an Operator"),
    "graph": (["--topology=mine.py:number"], "must return a Topology or a TimeVarying, got 5"),
    "size": (["--topology=four.edges", "--agents=5"],
             "topology 'four.edges' cannot have 5 agents: four.edges has 4"),
    "no graph": (["--topology=no.npy"],
                 "topology must name a file that exists, got 'no.npy'"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_a_mistake_is_one_line_and_leaves_nothing(folder, kind, capsys):
    options, line = WRONG[kind]
    assert saddle("train", *SMALL, *options, "--workdir=run") == 2
    shown = capsys.readouterr().err
    assert line in shown
    assert shown.count("\n") == 1
    assert not (folder / "run").exists()


@pytest.mark.parametrize(
    "command", [["train", "--workdir=run"], ["compare", "--compare=method=qgm,broken.py:f", "--workdir=run"],
                ["compare", "--compare=method.compressor=none,broken.py:f", "--workdir=run"],
                ["methods", "broken.py:f"]]
)  # fmt: skip
def test_a_failing_import_is_one_line_and_its_own_traceback(folder, command, capsys):
    (folder / "broken.py").write_text("import mine\n\n\ndef f():\n    return [][1]\n\n\nf()\n")
    options = ["--method=broken.py:f"] if command[0] == "train" else []
    assert saddle(*command, *([] if command[0] == "methods" else SMALL), *options) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith("broken.py:f cannot be imported: IndexError: list index out of range")
    assert lines[1] == "Traceback (most recent call last):"
    assert lines[-1] == "IndexError: list index out of range"
    assert sum("Traceback" in line for line in lines) == 1
    assert not any("saddle_jax" in line for line in lines)
    assert not (folder / "run").exists()


def test_a_factory_that_fails_shows_where(folder, capsys):
    assert saddle("train", *SMALL, "--method=mine.py:failing", "--workdir=run") == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "saddle: method mine.py:failing failed: KeyError: 'lost'"
    assert '    return {}["lost"]' in lines
    assert not (folder / "run").exists()


def test_comparisons_have_rows_for_brought_things(folder, capsys):
    grid = [
        "--compare=method=mine.py:method(beta=0.8)",
        "--compare=topology=mine.py:graph,four.edges",
        "--seeds=0,1",
    ]
    assert saddle("compare", "--quiet", *SMALL, *grid, "--workdir=compared") == 0
    table = capsys.readouterr().out
    rows = [line.split()[:2] for line in table.splitlines() if "mine" in line]
    assert ["mine.py:method(beta=0.8)", "mine.py:graph"] in rows
    names = {path.parent.name for path in (folder / "compared").glob("*/result.json")}
    mine = "method=mine.py_method_beta=0.8-topology={}-seeds0,1"
    pair = {mine.format("mine.py_graph"), mine.format("four.edges")}
    assert names == pair
    assert len({result(folder / "compared" / name)["test_accuracy"] for name in pair}) == 1
    stamps = {path: path.stat().st_mtime_ns for path in folder.glob("compared/*/result.json")}
    moved = [option.replace("mine.py", f"{folder}/mine.py") for option in grid]
    assert saddle("compare", "--quiet", *SMALL, *moved, "--workdir=compared") == 0
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert table.count("+-") == capsys.readouterr().out.count("+-")


def test_the_other_verbs_show_brought_things(folder, capsys):
    assert saddle("topology", "mine.py:graph(hops=2)", 6) == 0
    assert "circulant(6, [1, 2]): 6 agents, degree 4" in capsys.readouterr().out
    assert saddle("topology", "four.edges", 4, "--output=a.svg") == 0
    assert "four.edges: 4 agents, degree 2" in capsys.readouterr().out
    assert saddle("methods", "mine.py:method") == 0
    shown = capsys.readouterr().out
    assert "A method of momentum whose equations are those of QGM." in shown
    assert "    beta=0.9 " in shown
    assert "of the momentum." in shown
    assert saddle("methods", "mine.py:method", "--json") == 0
    (facts,) = json.loads(capsys.readouterr().out)
    assert facts["sends"] == "1"
    assert saddle("methods", "--gradients", "mine.py:estimator") == 0
    assert "It takes 2 backward passes per gradient" in capsys.readouterr().out
    for words in (["methods"], ["methods", "--gradients"]):
        assert saddle(*words, "mine.py:nothing") == 2
        assert "got no 'nothing' there" in capsys.readouterr().err


def test_objects_of_a_program_are_named_and_not_looked_for():
    config = Settings(method="<my method>", topology="<a + b>", model="<net>", seeds="0,1")
    assert [thing.text for thing in source_files.source_refs(config)] == ["<my method>", "<a + b>", "<net>"]
    assert source_files.collect(config) == []
    with pytest.raises(ArgumentError, match="was made from Python objects"):
        build_topology(config)


def test_settings_look_at_no_file_before_a_run_is_built(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = Settings(method="no.py:f(x=1, y=no.py:F)", gradient="no:f", topology="no.npy+no.py:g",
                    model="no.py:M", dataset="no.py:load", seeds="0,1")  # fmt: skip
    assert len(config.each()) == 2
    assert [thing.short for thing in source_files.source_refs(config)] == [
        "no.py:f(x=1, y=no.py:F)", "no.py:F", "no:f", "no.npy", "no.py:g", "no.py:M", "no.py:load",
    ]  # fmt: skip
    assert source_files.short("topology", "a/b.npy+ring+c/d.py:g(x='a/b')") == (
        "alternate(b.npy, ring, d.py:g(x='a/b'))"
    )
