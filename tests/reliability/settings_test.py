"""Class A: settings, options, paths and variables without sense are reported in one line, with status 2."""

import contextlib
import dataclasses
import os
import subprocess
import sys

import pytest
from asking import ask, check
from folders import write_run

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import RunError
from saddle_jax.settings.settings import Settings
from saddle_jax.training.program import build

CLASS = "A"
pytestmark = pytest.mark.slow

VALUES = [
    "", " ", "0", "-1", "1", "2.5", "1e400", "-1e400", "nan", "inf", "-inf", "9" * 400, "1_000", "0x10",
    "\u0661", "true", "maybe", "None", "x", "[]", "{}", "a,b", "1,1", "1,2,", ":", "x:1", "x.py:y",
    "nowhere:y", "(", "qgm(", "qgm(beta=x)", "ring+", "torus(0, 0)", "torus(99999, 99999)", "erdos_renyi(7)",
    "../..", "/dev/null", "\udcff", "\x1b[2J", "é", "a\nb", "--", "%s", "${HOME}", "'; exit",
    "0" * 100_000,
]  # fmt: skip


def test_every_setting_with_senseless_values(attack):
    """What is accepted must be buildable, or be refused by a line of its own, too."""
    for field in dataclasses.fields(Settings):
        for value in VALUES:
            with attack.attempt(f"--{field.name}={value[:60]!r}"):
                asked = check(ask("settings", f"--{field.name}={value}"), (0, 2))
                if asked.status == 2:
                    assert asked.error.count("\n") == 1, asked.error


SMALL = {"model": "logistic", "agents": 3, "epochs": 1, "devices": "1"}


@pytest.mark.parametrize("half", [0, 1])
def test_settings_that_are_accepted_one_by_one_can_be_built_or_are_refused(half, attack):
    """No folder is made and nothing is compiled: that is what `saddle train` does before both."""
    tried = {
        "agents": (1, 2, 7, 200), "batch_size": (0, 1, 10_000_000), "subset": (1, 5, 1437, 1438, 10**12),
        "seed": (0, 2**32 - 1), "warmup_epochs": (0, 1),
        "partition": ("iid", "shards", "shards(1)", "quantity_skew", "per_agent_dirichlet", "given",
                      *(f"dirichlet({alpha})" for alpha in (1e-300, 1e-6, 1.0, 1e300))),
        "faults": tuple(f"faults({each})" for each in (
            "drop=0.0", "drop=0.999", "delay=0", "delay=1", "delay=1000000000", "drop=0.1, burst=0.5",
            "burst=1e300", "offline=0.5", "offline=0.999", "mean_offline=0.1", "mean_offline=1e300",
            "joins=[[0, 0]]", "joins=[[1, 10]]", "joins=[[9, 1]]", "joins=[[1, 99999999999]]", "joins=3",
            "leaves=[[0, 1]]", "leaves=[[0, 1], [1, 1], [2, 1]]")),
        "timing": tuple(f"timing({each})" for each in (
            "latency='10ms'", "latency='1e300s'", "latency=nowhere.npy", "bandwidth='1bit'",
            "bandwidth='1e300Gbit'", "compute='1ms'", "latency=[1, 2]")),
        "topology": ("ring", "star"),
        "method": (
            *(f"dpsgd(local_steps={each})" for each in (0, 1, 5, 10**9)),
            *(f"slowmo({each})" for each in (
                "qgm", "qgm, every=1", "qgm, every=1000000000", "every=2", "slowmo")),
            *(f"q_saddle(compressor={each})" for each in (
                "quantize(1)", "quantize(16)", "top_k(1e-300)", "low_rank(1)", "low_rank(999999)", "sign")),
            *(f"q_saddle({each})" for each in (
                "rho=0.0", "rho=1e300", "beta=0.0", "beta=0.999999", "gamma=1e-300", "gamma=1.0",
                "weight_decay=1e300", "gossip=exact(1.0, dense)", "gossip=choco(sign, order=paper)")),
        ),
        "agents_per_call": (1, 10**9), "devices": ("1", "2", "99"), "steps_per_dispatch": (1, 10**9),
        "log_every_steps": (10**9,), "checkpoint_every_steps": (10**12,), "eval_every_epochs": (10**12,),
        "keep_checkpoints": (10**12,), "sharpness_images": (1, 10**12),
        "learning_rate": (1e-300, 1e300), "epochs": (1, 2**31 - 1),
        "schedule": ("cosine", "imagenet", "exponential"), "objective": ("regression", "classification"),
        "dataset": ("convex", "characters", "synthetic", "nowhere"),
    }  # fmt: skip
    cases = [(name, value) for name, values in tried.items() for value in values][half::2]
    for name, value in cases:
        with attack.attempt(f"{name}={value}"), contextlib.suppress(ArgumentError, RunError):
            build(Settings(**{**SMALL, name: value}))


# Commands with options that cannot be, each but for "saddle" and the bars between them.
OPTIONS = """
data partition --partition="dirichlet(0)" | data partition --agents=0 | data partition --seed=-1 |
data partition --partition=x | data partition --dataset=x | data show | data x |
data show digits --plot=/dev/null | data show ../.. | data partition --plot=a.exe | topology ring |
topology ring x | topology x 4 | topology ring -4 | topology ring {many} | topology torus(3,3) 10 |
topology ring 4 --output=x.exe | theory --steps=0 | theory --steps={many} | theory --L=nan |
theory --agents=0 | theory --beta=1 | theory nowhere | theory --workdir=x | theory --topology=x |
cost --table=99 | cost --x | reproduce --table=99 | reproduce --scale=x | reproduce |
reproduce --figure=x | compare | compare --compare=method=x | compare --compare=method=qgm --seeds=x |
compare --compare=method=qgm --compare=faults.drop=2 | compare --methods=x | methods x | gradients x |
best | best nowhere | best run --metric=x | list | list nowhere | list a b | evaluate |
evaluate . | evaluate run --agent=99 |
evaluate run --trial=5 | export run --format=x | export run --output=. | export nowhere | report |
report nowhere | report run --output=/ | report run --output=/dev/stdout |
report run --output=nowhere/x.html | figure | figure x run | figure curves run --x=y |
figure curves run --output=x.exe | sharpness run --iterations=1 | sharpness run --images=0 |
sharpness nowhere | sharpness run --output=x.exe | landscape run --points=2 |
landscape run --span=nan | landscape run --points=100000001 | landscape run --directions=x |
plan --target=x | plan --target= | bench x | bench --repeats=0 | bench input --method=x |
bench input --agents=1 | bench growth --plot=x.exe | bench --json=nowhere/x | check | check x |
check nowhere.py:x | check qgm --kind=x | new | new x y | new method ../x | new method 1x |
train --x | train x | train --sweep=x | train --sweep=method.rho=x | train --config=nowhere.py |
train --config=. | train --config={nul} | train --processes=2 |
train --coordinator=x --processes=2 --process=0 | config --x=1 | train --seeds={seeds}
| train --flagfile=binary | {nothing} | x | train --epochs={many} |
train --epochs=2000000000 | TRAIN | --x | train -x
"""
FILLED = {"{many}": "9" * 400, "{nul}": "\0", "{nothing}": "", "{seeds}": ",".join(map(str, range(20_000)))}


def spelt(command):
    words = command.split()
    for name, value in FILLED.items():
        words = [word.replace(name, value) for word in words]
    return words


def test_options_of_every_verb(attack, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run")
    (tmp_path / "binary").write_bytes(b"\x7fELF\xd0\x00")
    before = sorted(os.listdir(tmp_path))
    for command in OPTIONS.split("|"):
        with attack.attempt(command):
            check(ask(*spelt(command)), (2, 3))
            assert sorted(os.listdir(tmp_path)) == before


SURROUNDINGS = [
    ({"JAX_PLATFORMS": "cuda"}, "topology ring 4", 0), ({"JAX_PLATFORMS": "cuda"}, "train --workdir=w", 2),
    ({"JAX_PLATFORMS": "x"}, "train --workdir=w", 2), ({"JAX_NUM_CPU_DEVICES": "abc"}, "list .", 2),
    ({"JAX_NUM_CPU_DEVICES": "0"}, "list .", 2), ({"JAX_NUM_CPU_DEVICES": "-1"}, "list .", 2),
    ({"JAX_DEBUG_NANS": "maybe"}, "list .", 2), ({"JAX_ENABLE_X64": "x"}, "list .", 2),
    ({"OMPI_COMM_WORLD_SIZE": "abc"}, "train --workdir=w", 2),
    ({"SLURM_STEP_NUM_TASKS": "x"}, "train --workdir=w", 2),
    ({"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}, "list .", 0),
    ({"PYTHONUTF8": "0", "LC_ALL": "C"}, "list .", 0), ({"SADDLE_CACHE_DIR": "/dev/null/x"}, "list .", 0),
    ({"TFDS_DATA_DIR": "/dev/null/x"}, "data list", 0), ({"HOME": "/nonexistent"}, "list .", 0),
    ({}, "list . > /dev/full", 2), ({}, "list . 2>&-", 0), ({}, "list . >&-", 0),
    ({}, "list nowhere 2>&-", 2), ({}, "list . <&-", 0), ({}, "config | head -1", 0),
    ({}, "train --config=exit.py", 2), ({}, "version 0<&- 1>&- 2>&-", 0), ({"COLUMNS": "x"}, "list .", 0),
    ({"TERM": "x"}, "list .", 0),
]  # fmt: skip


def test_variables_streams_and_names_around_a_command(attack, tmp_path):
    write_run(tmp_path / "é")
    write_run(tmp_path / os.fsdecode(b"run-\xff"))
    (tmp_path / "exit.py").write_text("import sys; sys.exit(0)")
    for variables, arguments, status in SURROUNDINGS:
        with attack.attempt(f"{variables} {arguments}"):
            command = f"set -o pipefail; {sys.executable} -P -m saddle_jax.cli {arguments}"
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=tmp_path,
                env=os.environ | variables,
                capture_output=True,
                check=False,
            )
            assert done.returncode in ((status, 141) if "|" in arguments else (status,)), done.stderr
            assert b"Traceback" not in done.stderr, done.stderr
            assert not (tmp_path / "w").exists()
