"""Several runs side by side: made where they are missing, then one table, one picture, one page."""

import dataclasses
import pathlib
from collections.abc import Mapping

from saddle_jax.base import brought
from saddle_jax.base.checks import ArgumentError
from saddle_jax.report import curves, page
from saddle_jax.report.tables import cell_of, headline_of
from saddle_jax.runs.run import Run
from saddle_jax.runs.shown import Page, Picture, Table


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Runs that have ended, by the names that they are compared under.

    Attributes:
      runs: the runs by name.
      table: mean and standard deviation over seeds of the metric that they share.
    """

    runs: Mapping[str, Run]
    table: Table

    def __str__(self) -> str:
        return str(self.table)

    def _repr_html_(self) -> str:
        return self.table._repr_html_()

    def figure(self, path: str | pathlib.Path | None = None, x: str | None = None) -> Picture:
        """Draws the curves of all runs; the default place is comparison.png beside the first one's folder."""
        place = pathlib.Path(path or self._beside("comparison.png"))
        curves.plot_curves(self._folders, place, x, names=list(self.runs))
        return Picture(place)

    def report(self, path: str | pathlib.Path | None = None) -> Page:
        """Writes one page of all runs; the default place is report.html beside the first one's folder."""
        place = pathlib.Path(path or self._beside("report.html"))
        page.write_page(self._folders, place, names=list(self.runs))
        return Page(place)

    @property
    def _folders(self) -> list[pathlib.Path]:
        return [run.workdir for run in self.runs.values()]

    def _beside(self, name: str) -> pathlib.Path:
        return self._folders[0].parent / name


def compare(runs: Mapping[str, Run], quiet: bool = False) -> Comparison:
    """Trains runs that have not ended, one after the other, and returns them side by side.

    Args:
      runs: the runs by the names that tables and pictures give them; each has a folder of its own.
      quiet: whether nothing is printed while they train.
    """
    if not runs or not all(isinstance(run, Run) for run in runs.values()):
        raise ArgumentError(f"runs must be training.Run by name, got {brought.shown(runs)}")
    folders = [run.workdir.resolve() for run in runs.values()]
    if len(set(folders)) < len(folders):
        raise ArgumentError(f"runs must have folders of their own, got {', '.join(map(str, folders))}")
    for name, run in runs.items():
        if not quiet:
            print(f"\n{name}", flush=True)
        run.train(quiet)
    headline = headline_of([run.workdir for run in runs.values()])
    rows = [["run", f"test {headline.title}{headline.unit}", "seeds"]]
    for name, run in runs.items():
        cell = cell_of([run.workdir])
        rows.append([name, cell.text(), str(len(cell.scores))])
    return Comparison(dict(runs), Table(rows))
