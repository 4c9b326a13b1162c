"""What `saddle theory` measures itself: the method on quadratics, and the corollary's slopes."""

import pathlib
from collections.abc import Callable
from typing import Any

from saddle_jax.cli.output import Output
from saddle_jax.cli.usage import UsageError, mistakes
from saddle_jax.core.mixing import Graphs
from saddle_jax.papers.saddle.theory import bound, corollary, pictures, speedup, summary, testbed


def on_testbed(
    workdir: str | None, topology: Graphs, setting: bound.Setting, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Runs the real method on the test-bed: at this setting, and over n for the slope."""
    folder = _made(workdir)
    measured = testbed.measure_setting(topology, setting)
    tell(pictures.describe_measured(measured, setting))
    points = speedup.sweep(report=lambda point: tell(pictures.describe_point(point)))
    slope = speedup.fit_slope(points)
    tell(pictures.describe_slope(slope))
    if folder:
        pictures.plot_speedup(points, slope, folder / "theory.png")
        tell(f"picture: {folder / 'theory.png'}")
    return summary.of_testbed(measured, points, slope)


def _made(workdir: str | None) -> pathlib.Path | None:
    """Makes the folder that an option names, if it names one."""
    folder = pathlib.Path(workdir) if workdir else None
    if folder:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"workdir must be a folder that can be written to, got {folder}") from error
    return folder


def show_corollary(workdir: str | None, output: Output) -> dict[str, Any]:
    """Measures the corollary's slopes by graph and momentum, and draws them."""
    folder = _made(workdir)
    output.note(
        "Q-SADDLe on quadratics under the corollary's schedule: its slopes in log(T) and log(n) are -1/2"
    )
    with mistakes():
        cases = corollary.measure_cases(
            report=lambda case: output.note(f"measured: {case.graph}, beta {case.beta:g}")
        )
        output.note()
        output.table(pictures.case_rows(cases))
        if folder:
            pictures.plot_cases(cases, folder / "corollary.png")
            output.note(f"picture: {folder / 'corollary.png'}")
    return summary.of_corollary(cases)
