"""Trainings of the reliability tests: small ones, started by `killing.py`, and what must be equal of them."""

import json
import pathlib
import subprocess
import sys

from saddle_jax.runs import run_folder

SETTINGS = {
    "model": "logistic",
    "method": "qgm(compressor=quantize(8))",
    "agents": 2,
    "batch_size": 64,
    "epochs": 1,
    "checkpoint_every_steps": 2,
    "keep_checkpoints": 1,
    "log_every_steps": 1,
    "eval_agents": "never",
    "devices": "1",
}
FLAGS = [f"--{name}={value}" for name, value in SETTINGS.items()]


def perform(jobs, folder):
    """Runs jobs of killing.py; returns their answers."""
    file = folder / "jobs.json"
    file.write_text(json.dumps([with_settings(job) for job in jobs]))
    program = pathlib.Path(__file__).with_name("killing.py")
    done = subprocess.run(
        [sys.executable, program, file], stdout=subprocess.PIPE, text=True, check=True, cwd=folder
    )
    return json.loads(done.stdout.splitlines()[-1])


def with_settings(job):
    if "together" in job:
        return {"together": [with_settings(each) for each in job["together"]]}
    return {"settings": FLAGS, **job}


def outcome(workdir):
    """What must not depend on how often a run was ended: its result, but for times, and its metrics."""
    result = json.loads((workdir / "result.json").read_text())
    numbers = {name: value for name, value in result.items() if not name.endswith("seconds")}
    return numbers, run_folder.read_metrics(workdir)
