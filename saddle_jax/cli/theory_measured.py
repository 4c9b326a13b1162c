"""What `saddle theory` measures itself: the method on quadratics, and the corollary's slopes."""

import pathlib
from collections.abc import Callable
from typing import Any

from saddle_jax.cli.output import Output
from saddle_jax.cli.usage import UsageError, mistakes
from saddle_jax.core.topology import Graphs
from saddle_jax.papers.saddle.theory import bound, testbed, texts


def on_testbed(
    workdir: str | None, topology: Graphs, setting: bound.Setting, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Runs the real method on the test-bed: at this setting, and over n for the slope."""
    folder = _made(workdir)
    measured = testbed.measure_setting(topology, setting)
    tell(texts.describe_measured(measured, setting))
    points = testbed.sweep(report=lambda point: tell(texts.describe_point(point)))
    slope = testbed.fit_slope(points)
    tell(texts.describe_slope(slope))
    if folder:
        texts.plot_speedup(points, slope, folder / "theory.png")
        tell(f"picture: {folder / 'theory.png'}")
    return texts.testbed_record(measured, points, slope)


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
        cases = testbed.measure_cases(
            report=lambda case: output.note(f"measured: {case.graph}, beta {case.beta:g}")
        )
        output.note()
        output.table(texts.case_rows(cases))
        if folder:
            texts.plot_cases(cases, folder / "corollary.png")
            output.note(f"picture: {folder / 'corollary.png'}")
    return texts.corollary_record(cases)
