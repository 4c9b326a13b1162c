"""Running one training for a verb: mistakes in one line, a picture at the end."""

import pathlib
from typing import Any

from saddle_jax.cli.usage import mistakes
from saddle_jax.config import Config


def run_training(
    config: Config, workdir: pathlib.Path, *, quiet: bool, profile: bool = False
) -> dict[str, Any]:
    """Trains in `workdir` and draws curves.png; what the user can mend is a UsageError."""
    from saddle_jax.report.curves import plot_curves
    from saddle_jax.screen import Screen
    from saddle_jax.train import train

    screen = Screen(quiet)
    with mistakes():
        result = train(config, workdir, screen, profile)
        plot_curves([workdir], workdir / "curves.png")
    screen.line(f"picture: {workdir / 'curves.png'}")
    return result
