"""Running trainings for a verb: mistakes in one line, a picture at the end."""

import pathlib
import sys
import time
from collections.abc import Mapping
from typing import Any

from saddle_jax.cli import clock
from saddle_jax.cli.extras import require
from saddle_jax.cli.usage import UsageError, mistakes
from saddle_jax.devices import machine, policy
from saddle_jax.settings.config import Config
from saddle_jax.training import signals


def run_training(
    config: Config,
    workdir: pathlib.Path,
    *,
    quiet: bool,
    profile: bool = False,
    since: float | None = None,
    picture: str = "png",
    lines: bool = True,
) -> dict[str, Any]:
    """Trains in `workdir` and draws its curves; what the user can mend is a UsageError.

    `since` is when it began, by time.perf_counter(); None stands for the start of the command. `picture` is
    the ending of the file of curves. Without `lines` a bar alone is shown.
    """
    require("matplotlib", "orbax.checkpoint", "tensorboardX", "tqdm")
    from saddle_jax.analysis import sharpness
    from saddle_jax.devices import hosts
    from saddle_jax.report.figures import plot_curves
    from saddle_jax.training.loop import train
    from saddle_jax.training.progress import Screen

    screen = Screen(quiet or not hosts.writes(), lines)
    with mistakes(), hosts.ending_together():
        began = clock.began if since is None else since
        result = train(config, workdir, screen, profile, began, sharpness.metrics)
        if hosts.writes():
            plot_curves([workdir], workdir / f"curves.{picture}")
    screen.line(f"picture: {workdir / f'curves.{picture}'}")
    return result


def tell_unused_gpu() -> None:
    """Prints one line if a GPU is here that JAX does not use, with what would make JAX use it."""

    if not policy.is_cpu() or machine.hides_gpus() or not machine.has_gpu():
        return
    print(
        f"saddle: JAX uses the CPU, and an NVIDIA GPU is here: {machine.gpu_remedy()}; JAX_PLATFORMS=cpu if "
        "it is meant",
        file=sys.stderr,
    )


def run_several(
    runs: Mapping[pathlib.Path, Config], *, quiet: bool, lines: bool = True
) -> tuple[list[pathlib.Path], int]:
    """Trains runs one after the other; returns the folders that could not be used, and the exit status.

    The status is 0, 2 if some could not be used, 3 if that is for damaged files, 130 if it was interrupted.
    What diverges or cannot be used does not stop the others. Without `lines` bars alone are shown.
    """
    refused, status = [], 0
    if not quiet:
        tell_unused_gpu()
    for number, (workdir, config) in enumerate(runs.items(), 1):
        if lines and not quiet:
            print(f"\n[{number} of {len(runs)}] {workdir.name}", flush=True)
        try:
            since = None if number == 1 else time.perf_counter()
            result = run_training(config, workdir, quiet=quiet, since=since, lines=lines)
        except UsageError as error:
            error.tell()
            refused.append(workdir)
            status = max(status, error.status)
            continue
        if result["status"] == "interrupted" or signals.is_heard():
            signals.tell("interrupted; the same command goes on from here")
            return refused, 130
    return refused, status
