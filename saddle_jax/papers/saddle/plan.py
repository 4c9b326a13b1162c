"""Planning the runs of an experiment: what is missing, how much it sends, how long it will take."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from saddle_jax.base.errors import RunError
from saddle_jax.papers.saddle import readings
from saddle_jax.papers.saddle.experiments import Entry
from saddle_jax.papers.saddle.scales import Scale
from saddle_jax.papers.saddle.sizes import Size, check_data, seconds_of, size_of
from saddle_jax.runs.checkpoints import Checkpoints
from saddle_jax.runs.run_folder import check_same, write_json
from saddle_jax.runs.schema import read_result
from saddle_jax.settings.config import Config


@dataclasses.dataclass(frozen=True)
class Planned:
    """One run: an entry of the paper at a scale, with a seed, in a folder."""

    entry: Entry
    config: Config
    workdir: pathlib.Path

    @property
    def status(self) -> str:
        """Returns finished, diverged, interrupted, or missing."""
        result = read_result(self.workdir)
        if result is not None:
            return result["status"]
        return "interrupted" if self.steps_done else "missing"

    @property
    def steps_done(self) -> int:
        """Returns the step of its newest checkpoint, or 0."""
        return max(Checkpoints(self.workdir, 1).steps(), default=0)

    @property
    def is_missing(self) -> bool:
        """Tells whether something of it is left to be run."""
        return self.status not in ("finished", "diverged")

    def note_paper(self, table: str, scale: Scale) -> None:
        """Writes paper.json, which names the figure of the paper that this run reproduces.

        A run that two experiments share keeps what the first of them wrote.
        """
        if (self.workdir / "paper.json").exists():
            return
        figure = None if self.entry.printed is None else str(self.entry.printed)
        name = self.workdir.name.rpartition("-seed")[0]  # with what was read otherwise
        about = {"table": table, "row": name, "paper": figure}
        write_json(self.workdir / "paper.json", {**about, "scale": f"{scale.name}: {scale.meaning}"})


def plan(
    entries: Sequence[Entry],
    scale: Scale,
    seeds: int,
    folder: pathlib.Path,
    data_dir: str,
    otherwise: Mapping[str, Any] | None = None,
) -> list[Planned]:
    """Lists the runs behind some entries, seed by seed, so that a table fills evenly.

    `otherwise` are readings of what the paper leaves open, see `readings`; folders are named after them.

    Raises:
      RunError: a folder holds another run than the one that belongs there.
    """
    runs = []
    for seed in range(seeds):
        for entry in entries:
            default = dataclasses.replace(scale.apply(entry.config(seed), entry.times), data_dir=data_dir)
            config = readings.read_otherwise(default, otherwise or {})
            name = f"{entry.name}{readings.ending(config, default)}-seed{seed}"
            runs.append(Planned(entry, config, folder / scale.name / name))
    there = next(path for path in (folder / scale.name, *(folder / scale.name).parents) if path.exists())
    if not there.is_dir():
        raise RunError(f"workdir must be a folder that can be written to, got {folder}: {there} is a file")
    for run in runs:
        if (run.workdir / "config.json").exists():
            check_same(run.workdir, run.config)
    return runs


def ended_below(folder: pathlib.Path, scale: Scale, entry: Entry, ending: str = "") -> list[pathlib.Path]:
    """Lists the folders of an entry's runs that have ended, seed by seed; `ending` is as below."""
    found = (folder / scale.name).glob(f"{entry.name}{ending}-seed*")
    return sorted(path for path in found if (path / "result.json").exists())


def endings_below(folder: pathlib.Path, scale: Scale, entry: Entry) -> list[str]:
    """Lists how the names of an entry's runs end that read the paper otherwise, such as "-order=paper"."""
    found = (folder / scale.name).glob(f"{entry.name}-*=*-seed*")
    endings = {path.name.removeprefix(entry.name).rpartition("-seed")[0] for path in found}
    # Others, such as "-every5-order=paper", are of entries whose names go on.
    return sorted(ending for ending in endings if all("=" in part for part in ending[1:].split("-")))


class Remaining(NamedTuple):
    """What is left to run of one entry."""

    name: str
    runs: int
    size: Size  # of one run
    seconds: float  # of what is left of all runs, estimated


def remaining(missing: Sequence[Planned], *, at_once: bool) -> list[Remaining]:
    """Estimates what is left of each entry; what is to run at once must have its data here."""
    rows: dict[str, Remaining] = {}
    for run in missing:
        name = run.entry.name
        if name not in rows:
            if at_once:
                check_data(run.config)
            rows[name] = Remaining(name, 0, size_of(run.config), 0.0)
        row = rows[name]
        left = 1 - run.steps_done / row.size.steps
        rows[name] = row._replace(runs=row.runs + 1, seconds=row.seconds + left * seconds_of(row.size))
    return list(rows.values())
