"""saddle demo: the paper's point on the embedded data, in about 90 seconds on two cores."""

import contextlib
import pathlib
from collections.abc import Sequence

from absl import flags

from saddle_jax.analysis import landscape as surfaces
from saddle_jax.analysis.landscape import Scan
from saddle_jax.analysis.sharpness import Measurement
from saddle_jax.cli import landscape, sharpness
from saddle_jax.cli.output import Output, output_options
from saddle_jax.cli.running import run_several
from saddle_jax.cli.usage import mistakes, parse
from saddle_jax.papers.saddle import demonstration
from saddle_jax.report.figures import plot_curves
from saddle_jax.report.page import write_page
from saddle_jax.runs.table import cells_by
from saddle_jax.settings.config import Config
from saddle_jax.training.progress import Screen
from saddle_jax.training.sweep import parse_grid, runs_of_grid

# The embedded digits show the effect with these: docs/demonstration.md tells how they were found.
SETTINGS = {"partition": "dirichlet(0.001)", "learning_rate": 0.3, "rho": 0.2}
_METHODS = "qgm,q_saddle"
_MEASUREMENT = Measurement(images=256, iterations=20)
_POINTS, _SCAN = 11, Scan("filter", 0, 256)


def run(arguments: Sequence[str]) -> int:
    """Trains two methods, measures how sharp their models are, and writes curves, a landscape and a page."""
    options = flags.FlagValues()
    flags.DEFINE_string("workdir", "runs/demo", "Folder of the runs and the page.", flag_values=options)
    flags.DEFINE_string("seeds", "0,1,2,3,4", "Seeds of each method.", flag_values=options)
    output_options(options)
    parse(options, arguments)
    output, folder = Output(options), pathlib.Path(options.workdir)
    with mistakes():
        grid = parse_grid(_METHODS, "none", options.seeds)
        found = runs_of_grid(Config().to_json() | SETTINGS, grid, folder, single_program=True)
    output.note(demonstration.introduction())
    output.note(f"\n1 of 3: training QGM and Q-SADDLe, {len(grid.seeds)} seeds each")
    refused, status = run_several(found.runs, quiet=output.is_silent, lines=False)
    if status or refused:
        return status
    workdirs = list(found.runs)
    page = folder / "report.html"
    with mistakes(), contextlib.closing(Screen(output.is_silent, lines=False)) as screen:
        output.note("2 of 3: measuring how sharp the loss is around the models they found")
        sharp = sharpness.measure(workdirs, _MEASUREMENT, screen, epochs=[str(Config().epochs)])
        output.note("3 of 3: computing the loss landscape, and writing the page")
        x = surfaces.grid(_POINTS, 1.0)
        pair = [next(path for path, run in found.runs.items() if run.method == m) for m in grid.methods]
        landscape.draw(pair, folder / "landscape", x, _SCAN, screen, 0)
        plot_curves(workdirs, folder / "comparison.png")
        write_page(workdirs, page)
        shown = demonstration.shown(cells_by(workdirs, grid.axes), sharp)
    output.note()
    output.table(demonstration.rows(shown))
    output.say(f"\n{demonstration.meaning(shown)}")
    output.note(f"\nopen {page}\nopen {folder / 'landscape' / 'landscape.html'}  (turn it with the mouse)")
    output.give({**demonstration.record(shown), "folder": str(folder), "page": str(page)})
    return 0
