"""Running one training for a verb: mistakes in one line, a trace if asked for, a picture at the end."""

import contextlib
import pathlib
from typing import Any

from saddle_jax.cli.usage import UsageError
from saddle_jax.config import Config


def run_training(
    config: Config, workdir: pathlib.Path, *, quiet: bool, profile: bool = False
) -> dict[str, Any]:
    """Trains in `workdir` and draws curves.png; what the user can mend is a UsageError."""
    import jax

    from saddle_jax.report.curves import plot_curves
    from saddle_jax.rundir import RunError
    from saddle_jax.screen import Screen
    from saddle_jax.train import train

    screen = Screen(quiet)
    trace = jax.profiler.trace(str(workdir / "trace")) if profile else contextlib.nullcontext()
    try:
        with trace:
            result = train(config, workdir, screen, profile)
    except (RunError, ValueError) as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(
            f"writing to {workdir} failed: {error.strerror or error}; the last checkpoint is whole"
        ) from error
    plot_curves([workdir], workdir / "curves.png")
    screen.line(f"picture: {workdir / 'curves.png'}")
    return result
