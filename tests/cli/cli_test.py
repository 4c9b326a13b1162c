import csv
import dataclasses
import json
import pathlib
import re
import statistics
import subprocess
import sys
import time

import flax.serialization
import forked
import numpy as np
import pytest
import safetensors.numpy
from absl import flags

from saddle_jax.base.checks import ArgumentError
from saddle_jax.cli import __main__, process, verb
from saddle_jax.runs import run_folder
from saddle_jax.settings.settings import Settings

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOOD = {
    "torus": (["topology", "torus", "40"], "torus(5, 8): 40 agents, degree 4"),
    "rows and columns": (["topology", "torus(4, 8)", "32"], "torus(4, 8): 32 agents"),
    "ring": (["topology", "ring", "10"], "spectral gap 0.1273"),
    "version": (["--version"], "0."),
    "begin": ([], "saddle train --method=q_saddle"),
    "help": (["--help"], "data partition"),
    "embedded": (["data", "prepare", "digits"], "nothing to prepare"),
}
BAD = {
    "no sub-verb": (["data"], "data VERB must be one of list, prepare, show, partition, got ''"),
    "verb": (["fly"], "VERB must be one of .*train, compare, settings, .* got 'fly'"),
    "near verb": (["trian"], r"did you mean 'train'.*VERB must be one of .* got 'trian'"),
    "name": (["topology", "rng", "10"], "did you mean 'ring'.*topology must be one of ring, .* got 'rng'"),
    "no size": (["topology", "ring"], "arguments must be TOPOLOGY AGENTS and options, got ring"),
    "size": (["topology", "ring", "ten"], "AGENTS must be a whole number, got 'ten'"),
    "small": (["topology", "ring", "0"], "agents must be an integer >= 1 and <= 10000, got 0"),
    "prime": (["topology", "torus", "7"], "got 7, a prime"),
    "field": (
        ["train", "--learning_rat=1"],
        r"there is no option --learning_rat here; did you mean '--learning_rate'\?",
    ),
    "type": (["train", "--epochs=many"], "flag --epochs=many"),
    "method": (
        ["train", "--method=qsaddle"],
        "did you mean 'q_saddle'.*method must be one of .* got 'qsaddle'",
    ),
    "range": (["train", "--method.gamma=1.5"], "gamma must be below 1.5 on .* got 1.5"),
    "compressor": (
        ["train", "--method.compressor=quantise8"],
        "compressor must be one of .* got 'quantise8'",
    ),
    "bits": (["train", "--method.compressor=quantize(40)"], "bits must be an integer .* got 40"),
    "graph": (
        ["train", "--topology=torus", "--agents=7"],
        "topology 'torus' cannot have 7 agents",
    ),
    "rows": (
        ["train", "--topology=torus(2, 4)", "--agents=10"],
        r"'torus\(2, 4\)' cannot have 10 agents",
    ),
    "warm-up": (["train", "--warmup_epochs=25"], "warmup_epochs must be below epochs = 25, got 25"),
    "ngm only": (
        ["train", "--method.self_gradient=mixed"],
        "method q_saddle takes .* got option 'self_gradient'",
    ),
    "two estimators": (
        ["train", "--method.rho=0.3", "--gradient=looksam"],
        r"rho must not be given for q_saddle\(rho=0.3\) beside gradient looksam",
    ),
    "no file": (["train", "--config=nowhere.py"], "config must be a file FILE.py.* got 'nowhere.py'"),
    "syntax": (["train", "--config=bad.py"], "config bad.py: SyntaxError: "),
    "no function": (["train", "--config=empty.py"], "config empty.py: AttributeError: .*get_config"),
    "variant": (["train", "--config=plain.py:cpu"], "config plain.py:cpu: TypeError: "),
    "no settings": (["train", "--config=wrong.py"], "must return saddle_jax.Settings, got 5"),
    "crowd": (
        ["train", "--agents=1000000"],
        "agents must be an integer >= 1 and <= 10000, got 1000000",
    ),
    "ring": (["train", "--topology=ring(3)"], r"topology ring takes no options, got 'ring\(3\)'"),
    "profile": (["train", "--profile", "--dataset=nope"], "dataset must be one of .* got 'nope'"),
    "nothing to compare": (
        ["compare", "--compare=method=", "--workdir=x"],
        "sweep must be SETTING=VALUE.*got 'method='",
    ),
    "both": (
        ["compare", "--seed=1", "--workdir=x"],
        "there is no option --seed here; did you mean '--seeds'",
    ),
    "several": (["compare", "--sweep=method.rho=0,1", "--workdir=x"], "there is no option --sweep here"),
    "target": (["train", "--target=a40x4"], "target must be given with --plan"),
    "plan": (["train", "--plan", "--workdir=x"], "workdir must not be given with --plan"),
    "copies": (["export", "a", "--downsample=5", "--agent=1"], "agent must not be given with --downsample"),
    "nothing to check": (["check", "--kind=graph"], "kind must be given with a THING to check"),
    "best": (["list", ".", "--metric=test_loss"], "metric must be given with --best"),
    "models": (["export", "a", "b"], "DIR must be one run, whose model is written, got a b"),
    "setting": (["settings", "lr"], "did you mean 'learning_rate'.*NAME must be one of method, .* got 'lr'"),
    "file": (["train", "--workdir=bad.py"], "workdir must be a folder that can be written to, got bad.py"),
    "no data": (
        ["train", "--dataset=cifar10", "--data_dir=/nowhere"],
        "'cifar10' is not prepared",
    ),
    "batch": (
        ["train", "--batch_size=500"],
        "batch_size must be at most an agent's share, 143, got 500",
    ),
    "positional": (["train", "now"], "arguments must be nothing and options, got now"),
    "compare": (["compare", "--compare=method=qgm"], "workdir must be given"),
    "seeds": (["compare", "--seeds=a", "--workdir=x"], "seeds must be whole numbers >= 0 .* got 'a'"),
    "list": (["list", "/nowhere"], "DIR must be a folder, got '/nowhere'"),
    "evaluate": (["evaluate", "/nowhere"], "/nowhere holds no run: config.json is missing"),
    "data verb": (
        ["data", "lst"],
        "did you mean 'list'.*data VERB must be one of list, prepare, show, partition, got 'lst'",
    ),
    "data name": (["data", "show"], "arguments must be NAME and options, got nothing"),
    "what others call it": (
        ["train", "--lr=0.1"],
        "there is no option --lr here; did you mean '--learning_rate'",
    ),
    "with its prefix": (
        ["train", "--momentum=0.9"],
        "there is no option --momentum here; did you mean '--method.beta'",
    ),
    "swept by another name": (["train", "--sweep=wd=0,1"], "did you mean 'method.weight_decay'.* got 'wd'"),
    "option": (
        ["data", "partition", "--agent=3"],
        "there is no option --agent here; did you mean '--agents'",
    ),
    "number": (["data", "partition", "--agents=x"], "flag --agents=x"),
    "dataset": (["data", "partition", "--dataset=digit"], "did you mean 'digits'.*got 'digit'"),
    "alpha": (["data", "partition", "--partition=dirichlet(0)"], "alpha must be a number > 0, got 0"),
    "agents": (["data", "partition", "--agents=5000"], "agents must be at most .* got 5000"),
    "plot": (["data", "partition", "--plot=/nowhere/x.png"], "plot must be a file .* got '/nowhere/x.png'"),
    "prepare": (["data", "prepare", "cifar10"], "pip install 'saddle_jax\\[prepare\\]'"),
}


@pytest.mark.parametrize("case", GOOD)
def test_verbs(case, capsys):
    arguments, expected = GOOD[case]
    assert __main__.main(["saddle", *arguments]) == 0
    assert expected in capsys.readouterr().out


@pytest.mark.parametrize("case", BAD)
def test_a_users_mistake_is_one_line_and_status_two_and_leaves_nothing(case, capsys, tmp_path, monkeypatch):
    arguments, expected = BAD[case]
    monkeypatch.chdir(tmp_path)
    files = {"bad.py": "def (", "empty.py": "", "wrong.py": "def get_config():\n    return 5\n"}
    files["plain.py"] = (
        "from saddle_jax.settings.settings import Settings\n\ndef get_config():\n    return Settings()\n"
    )
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert __main__.main(["saddle", *arguments]) == 2
    error = capsys.readouterr().err
    assert re.search(expected, error)
    assert error.count("\n") == 1
    assert {path.name for path in tmp_path.rglob("*")} == set(files)


def test_an_argument_may_be_left_out_or_repeated():
    def found(arguments, positional):
        return verb.parse(flags.FlagValues(), arguments, positional)

    assert found([], ["[DIR]"]) == []
    assert found(["a"], ["[DIR]"]) == ["a"]
    assert found(["a", "b", "c"], ["NAME", "DIR..."]) == ["a", "b", "c"]
    for arguments, positional in ((["a", "b"], ["[DIR]"]), ([], ["DIR..."]), (["a"], ["NAME", "DIR..."])):
        with pytest.raises(ArgumentError, match="arguments must be"):
            found(arguments, positional)


def test_settings_are_shown_with_their_meaning(capsys):
    assert (
        __main__.main(["saddle", "settings", f"--config={ROOT / 'configs' / 'saddle.py'}:cpu", "--seed=2"])
        == 0
    )
    printed = capsys.readouterr().out
    assert re.search(r"model +'resnet8' +network of every agent: .* \(default auto\)$", printed, re.M)
    assert re.search(r"seed +2 +seed of subset", printed)
    assert "'q_saddle(rho=0.1)'" in printed
    assert __main__.main(["saddle", "train", "--help"]) == 0
    assert "eval_every_epochs" in capsys.readouterr().out


def test_every_setting_says_its_default_and_reads_as_english():
    for field in dataclasses.fields(Settings):
        meaning = field.metadata["meaning"]
        assert re.search(r"\(default:? .+\)$", meaning), field.name
        assert len(meaning.split()) >= 4, field.name
        assert "manieth" not in meaning


def test_one_setting_is_explained_in_a_screen(capsys):
    for field in dataclasses.fields(Settings):
        assert __main__.main(["saddle", "settings", field.name]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith(f"--{field.name}=")
        assert len(lines) <= 24
        assert max(map(len, lines)) <= 80
    assert __main__.main(["saddle", "settings", "method", "--method=qgm"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("--method=qgm  (text; default 'q_saddle')\n")
    assert "names: dpsgd, d_saddle, qgm, q_saddle" in printed


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.py")), ids=lambda path: path.name)
def test_every_settings_file_can_be_read(path, capsys):
    assert __main__.main(["saddle", "settings", f"--config={path}"]) == 0


@pytest.mark.usefixtures("unrendered")
def test_comparing_listing_evaluating_and_exporting(tmp_path, capsys):
    small = [
        "--agents=3",
        "--model=logistic",
        "--epochs=2",
        "--learning_rate=0.05",
    ]
    grid = ["--compare=method=qgm", "--compare=method.compressor=none,sign"]
    grid += ["--seeds=0,1", f"--workdir={tmp_path}"]
    plain = "method=qgm-method.compressor=none"
    grid.append("--nosingle_program")  # sweep_test.py has the other way
    assert __main__.main(["saddle", "compare", *grid, *small, "--quiet"]) == 0
    printed = capsys.readouterr().out
    results = {path.parent.name: json.loads(path.read_text()) for path in tmp_path.glob("*/result.json")}
    assert len(results) == 4
    pair = [100 * results[f"{plain}-seed{seed}"]["test_accuracy"] for seed in (0, 1)]
    cell = f"{statistics.fmean(pair):.2f} +- {statistics.stdev(pair):.2f}"
    assert cell in printed
    assert cell.replace("+-", r"$\pm$") in (tmp_path / "comparison.tex").read_text()
    with (tmp_path / "comparison.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["method"], row["method.compressor"]) for row in rows] == [("qgm", "none"), ("qgm", "sign")]
    assert float(rows[0]["mean"]) == pytest.approx(statistics.fmean(pair))
    assert [float(rows[0][f"seed {seed}"]) for seed in (0, 1)] == pytest.approx(pair)
    assert "\n| method | compressor none | sign | drop |" in (tmp_path / "comparison.md").read_text()
    assert (tmp_path / "comparison.png").exists()

    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/metrics.jsonl")}
    again = [*grid, *small, "--json", "--picture=svg"]
    assert __main__.main(["saddle", "compare", *again]) == 0  # nothing is run again
    found = json.loads(capsys.readouterr().out)
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/metrics.jsonl")}
    assert [(one["method"], one["method.compressor"]) for one in found["cells"]] == [
        ("qgm", "none"),
        ("qgm", "sign"),
    ]
    assert found["cells"][0]["mean"] == pytest.approx(statistics.fmean(pair))
    assert found["differences"][0]["minus"] == "none"
    assert (tmp_path / "comparison.svg").exists()

    assert __main__.main(["saddle", "list", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("finished") == 4
    locks = {path: path.read_text() for path in tmp_path.rglob(".lock")}
    with run_folder.locked(tmp_path / f"{plain}-seed1"):
        assert __main__.main(["saddle", "list", str(tmp_path)]) == 0
        assert re.search(rf"{plain}-seed1 +running", capsys.readouterr().out)
        assert (
            __main__.main(["saddle", "compare", *grid, *small, "--quiet"]) == 2
        )  # that one; the others are told
        told = capsys.readouterr()
        assert f"{plain}-seed1 is in use by another run" in told.err
        assert f"{pair[0]:.2f}" in told.out
    assert len(locks) == 4
    run = tmp_path / f"{plain}-seed0"
    accuracy = f"{100 * results[f'{plain}-seed0']['test_accuracy']:.2f} %"
    assert __main__.main(["saddle", "evaluate", str(run)]) == 0
    assert accuracy in capsys.readouterr().out
    assert __main__.main(["saddle", "evaluate", str(run), "--agent=2"]) == 0
    assert "agent 2 at step" in capsys.readouterr().out
    assert __main__.main(["saddle", "evaluate", str(run), "--agent=3"]) == 2
    assert "agent must be 0 to 2, got 3" in capsys.readouterr().err
    for form in ("safetensors", "msgpack"):
        assert __main__.main(["saddle", "export", str(run), f"--format={form}"]) == 0
    named = safetensors.numpy.load_file(run / "model.safetensors")
    assert named["linear/kernel"].shape == (64, 10)
    restored = flax.serialization.msgpack_restore((run / "model.msgpack").read_bytes())
    np.testing.assert_array_equal(restored["linear"]["kernel"], named["linear/kernel"])


@pytest.mark.usefixtures("unrendered")
def test_a_diverged_run_is_starred_and_does_not_stop_the_others(tmp_path, capsys):
    small = ["--agents=3", "--model=mlp", "--epochs=3", "--learning_rate=1e8"]
    grid = [
        "--compare=method=dpsgd",
        "--seeds=0,1",
        f"--workdir={tmp_path}",
        "--quiet",
        "--schedule=constant",
    ]
    assert __main__.main(["saddle", "compare", *grid, *small]) == 0
    assert "dpsgd   diverged*" in capsys.readouterr().out


@pytest.mark.usefixtures("unrendered")
def test_a_profile_says_where_the_time_went(tmp_path, capsys):
    command = [
        "train",
        "--profile",
        "--model=logistic",
        "--epochs=1",
        f"--workdir={tmp_path / 'run'}",
    ]
    assert __main__.main(["saddle", *command]) == 0
    parts = ("start", "compilation", "steps", "evaluation", "saving", "trace", "loop")
    assert re.search("where it went +" + ", ".join(f"{part} .* %" for part in parts), capsys.readouterr().out)
    assert list((tmp_path / "run" / "trace").rglob("*.xplane.pb"))


def test_data_is_listed_shown_and_dealt_out(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert __main__.main(["saddle", "data", "list"]) == 0
    printed = capsys.readouterr().out
    assert "digits      embedded" in printed
    assert "cifar10     not prepared: saddle data prepare cifar10" in printed
    assert __main__.main(["saddle", "data", "show", "digits"]) == 0
    assert not (tmp_path / "digits.png").exists()
    capsys.readouterr()
    assert __main__.main(["saddle", "data", "show", "digits", "--plot=digits.png"]) == 0
    assert "train     1,437 images 8x8x1, 135 to 154 per class" in capsys.readouterr().out
    assert (tmp_path / "digits.png").read_bytes().startswith(b"\x89PNG")
    command = [
        "data",
        "partition",
        "--agents=5",
        "--partition=dirichlet(0.01)",
        f"--plot={tmp_path / 'p.png'}",
    ]
    assert __main__.main(["saddle", *command]) == 0
    assert "dirichlet(5 agents, alpha=0.01, seed=0), fingerprint" in capsys.readouterr().out
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("unrendered")
def test_what_is_printed_as_time_counts_from_the_start_of_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(process, "began", time.perf_counter() - 1000)
    small = [
        "--model=logistic",
        "--agents=3",
        "--epochs=1",
        "--eval_agents=never",
    ]
    command = ["compare", "--compare=method=dpsgd,qgm", "--seeds=0", *small, f"--workdir={tmp_path}"]
    assert __main__.main(["saddle", *command]) == 0
    printed = capsys.readouterr().out
    assert (
        printed.index("\nfolder ") < printed.index("\ncompiling ...\nready in ") < printed.index("\nepoch 1:")
    )
    assert re.search(rf"^next: .*saddle_jax.cli report {tmp_path}$|^next: \S*saddle report", printed, re.M)
    own = [line for line in printed.splitlines() if str(tmp_path) not in line and "written" not in line]
    assert max(map(len, own)) <= 80
    assert "nats" not in printed
    ready = [float(seconds) for seconds in re.findall(r"^ready in (.*) s$", printed, flags=re.MULTILINE)]
    whole = re.findall(r"^steps, time +\d+ in (.*) s  \(ready in (.*) s\)$", printed, flags=re.MULTILINE)
    assert [float(seconds) for _, seconds in whole] == ready
    assert [float(seconds) > 1000 for seconds, _ in whole] == [True, False]  # the second waited for the first


def test_the_installed_command_has_help_and_one_line_errors():
    command = [pathlib.Path(sys.executable).with_name("saddle")]
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, check=False)
    assert "topology         Show the properties of a graph" in done.stdout
    done = subprocess.run([*command, "topology", "ring", "-1"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_a_warning_of_ours_is_one_line_told_once_and_others_are_silent():
    program = (
        "import warnings, saddle_jax as sj; from saddle_jax.cli import process; process.silence_libraries()\n"
        "warnings.warn('of a library')\n"
        "for _ in range(2):\n"
        "    sj.d2(sj.ring(8), 0.1, half=False)\n"
        "    warnings.filterwarnings('ignore', 'anything')"  # Python forgets what it has told
    )
    (line,) = forked.run(program=program).stderr.splitlines()
    assert line.startswith("saddle: d2: half=False on ring(8), whose W has the eigenvalue -1/3")
