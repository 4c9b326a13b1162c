"""The theorem at a trained run: its constants at the consensus model, and what it says of the run."""

import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from saddle_jax.papers.saddle.theory.bound import Setting
from saddle_jax.papers.saddle.theory.estimates import Estimates, estimate, outside_the_theorem
from saddle_jax.training.progress import Screen
from saddle_jax.training.reopen import open_run


class MeasuredRun(NamedTuple):
    """A run's constants at its newest checkpoint."""

    step: int
    estimates: Estimates
    setting: Setting
    outside: list[str]  # what of the run's method the theorem does not cover


def measure_run(
    workdir: pathlib.Path,
    samples: int,
    data_dir: str | None,
    screen: Screen,
    code: Sequence[str] = (),
    replica: int | None = None,
) -> MeasuredRun:
    """Measures the constants of the theorem at a run's newest checkpoint; `screen` shows how far it is.

    `samples` of each agent's data are looked at, or all for 0; `data_dir`, `code` and `replica` are as of
    `open_run`.
    """
    run, step, params = open_run(workdir, screen.warn, data_dir, replica, code)
    screen.line("measuring L, sigma and delta at the consensus model ...")
    passes = 0

    def advance(done: int, total: int) -> None:
        nonlocal passes
        if passes == 0:
            screen.start(total, 0)
        screen.advance(done - passes)
        passes = done

    try:
        estimates = estimate(run, params, samples=samples, report=advance)
    finally:
        screen.stop()
    config = run.config
    return MeasuredRun(step, estimates, estimates.setting(config, max(step, 1)), outside_the_theorem(config))
