"""Class H: many runs and long ones are listed and shown in bounded time and memory."""

import json
import re
import subprocess
import sys
import time

import pytest
from asking import ask, check
from folders import write_run

CLASS = "H"
pytestmark = pytest.mark.slow


# The most memory that the command itself has had; what the system counts of children has their parent's, too.
MEASURED = """
import sys
from saddle_jax.cli import __main__ as cli
status = cli.main(["saddle", *sys.argv[1:]])
print(open("/proc/self/status").read())
sys.exit(status)
"""


def many_lines(path, count):
    with path.open("w") as file:
        for step in range(1, count + 1):
            line = {"step": step, "epoch": step / 100, "train_loss": 2.0 / step, "bytes_sent_per_agent": step}
            file.write(json.dumps(line) + "\n")
            if step % 1000 == 0:
                scores = {"test_accuracy": 0.5, "test_loss": 1.0 / step, "consensus_distance": 0.1}
                file.write(json.dumps({"step": step, "epoch": step / 100, **scores}) + "\n")


def seconds_of(*arguments):
    began = time.monotonic()
    check(ask(*arguments), (0,))
    return time.monotonic() - began


def test_a_thousand_runs(attack, tmp_path):
    for number in range(1000):
        write_run(tmp_path / f"group{number % 10}" / f"run{number}")
    for arguments, limit in ((["list", tmp_path], 60), (["list", "--best", tmp_path], 120)):
        with attack.attempt(" ".join(map(str, arguments))):
            assert seconds_of(*arguments) < limit


@pytest.mark.parametrize("lines", [130_000, 1_000_000])
def test_a_long_run(lines, attack, tmp_path):
    """The page keeps as many points as can be drawn; memory does not grow with the file."""
    run = write_run(tmp_path / "run")
    many_lines(run / "metrics.jsonl", lines)
    commands = (["list", str(tmp_path)], ["report", str(run)], ["figure", "curves", str(run)])
    for arguments in commands:
        with attack.attempt(f"{lines} lines: {arguments[0]}"):
            done = subprocess.run(
                [sys.executable, "-P", "-c", MEASURED, *arguments],
                capture_output=True,
                text=True,
                check=False,
                cwd=tmp_path,
                timeout=300,
            )
            assert done.returncode == 0, done.stderr
            peak = int(re.search(r"VmHWM:\s+(\d+) kB", done.stdout)[1])
            assert peak < 1_000_000, f"{peak} kB"
    with attack.attempt(f"{lines} lines: size of the page"):
        assert (run / "report.html").stat().st_size < 20e6


def test_graphs_of_many_agents_are_not_built_to_be_listed(attack, tmp_path):
    for topology in ("complete", "ring", "hypercube", "erdos_renyi(0.5)"):
        run = write_run(tmp_path / topology.partition(":")[0])
        about = json.loads((run / "config.json").read_text())
        about["config"] |= {"agents": 10_000, "topology": topology}
        (run / "config.json").write_text(json.dumps(about))
        with attack.attempt(topology):
            assert seconds_of("list", tmp_path) < 10
