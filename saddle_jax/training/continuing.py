"""A run that goes on for more epochs than it was given: where that is the longer run, bit for bit."""

import dataclasses
import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base.errors import RunError
from saddle_jax.base.files import in_one_go
from saddle_jax.devices import hosts
from saddle_jax.runs.checkpoints import Checkpoints
from saddle_jax.runs.differing import differing
from saddle_jax.runs.metrics import read_metrics
from saddle_jax.runs.run_folder import read_config
from saddle_jax.runs.schema import read_result
from saddle_jax.settings.config import Config
from saddle_jax.training.build import Replica
from saddle_jax.training.due import Calendar, calendar_of
from saddle_jax.training.program import Program
from saddle_jax.training.progress import Screen


def check_longer(workdir: pathlib.Path, program: Program) -> dict[str, Any] | None:
    """Returns what config.json will say of how a folder's run went on; None if it has this length already.

    Raises:
      RunError: it cannot go on as the longer run; the message says why.
    """
    if not (workdir / "config.json").exists():
        return None
    before, config = read_config(workdir), program.config
    if differing(before, config) != ["epochs"]:
        return None
    refused = f"{workdir} cannot go on from {before.epochs} to {config.epochs} epochs"
    if config.epochs < before.epochs:
        raise RunError(f"{refused}: they must not be lowered; choose another workdir")
    result = read_result(workdir)
    if result is not None and result["status"] == "diverged":
        raise RunError(f"{refused}: it diverged at step {result.get('diverged_at_step', result['steps'])}")
    steps = result["steps"] if result else max([0, *Checkpoints(workdir, 1).steps()])
    _check_rates(refused, program.replica, before, steps)
    return {"from": {"epochs": before.epochs}, "at_step": steps}


def result_of(workdir: pathlib.Path, program: Program, screen: Screen) -> dict[str, Any] | None:
    """Returns how a folder's run has ended; None if it has not.

    A run that finished with fewer steps is made unfinished: its files become those of the longer run.
    """
    result: dict[str, Any] | None = hosts.one_for_all(read_result, workdir)
    if result is None or result["status"] != "finished" or result["steps"] >= program.replica.steps:
        return result
    screen.line(f"{workdir} holds the first {result['steps']:,} steps of this run")
    with hosts.agreement():
        if hosts.writes():
            _take_out_end(workdir, calendar_of(program), result["steps"])
    return None


def _take_out_end(workdir: pathlib.Path, calendar: Calendar, step: int) -> None:
    """Takes out what was logged and measured at the end alone; to do it twice does no harm."""
    due = calendar.due(step)
    kept = {"train_loss": due.log, "test_loss": due.evaluate, "lambda_max": due.measure}
    always = calendar.config.eval_agents == "always"
    lines = []
    for record in read_metrics(workdir):
        if record["step"] == step:
            if not all(is_due for name, is_due in kept.items() if name in record):
                continue
            if "test_loss" in record and not always:
                record = {name: value for name, value in record.items() if not name.startswith("agent_")}
        lines.append(json.dumps(record) + "\n")
    with in_one_go(workdir / "metrics.jsonl") as partial:
        partial.write_text("".join(lines))
    (workdir / "result.json").unlink(missing_ok=True)


def _check_rates(refused: str, replica: Replica, before: Config, steps: int) -> None:
    """Checks that the steps which were taken had the learning rates that the longer run has."""
    per_epoch, topology = replica.batches.steps_per_epoch, replica.topology
    shorter = dataclasses.replace(replica.config, epochs=before.epochs)
    rates = []
    for config in (shorter, replica.config):
        _, schedule = replica.parts.method(config, topology, per_epoch, {})
        if schedule is None or not steps:  # the method alone knows it, and knows no epochs
            return
        rates.append(np.asarray(jax.vmap(lambda t, at=schedule: jnp.asarray(at(t)))(jnp.arange(steps))))
    other = np.flatnonzero(rates[0] != rates[1])
    if other.size:
        step, (had, has) = other[0], (rate[other[0]] for rate in rates)
        raise RunError(
            f"{refused}: schedule {before.schedule} depends on epochs, and step {step + 1:,} would have had "
            f"the learning rate {has:.4g}, not {had:.4g}; choose another workdir"
        )
