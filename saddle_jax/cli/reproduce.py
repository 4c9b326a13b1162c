"""saddle reproduce: a table or a figure of the paper, run at some scale."""

import fnmatch
import pathlib
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl import flags

from saddle_jax.cli.running import run_several
from saddle_jax.cli.usage import UsageError, mistakes, parse
from saddle_jax.core.ledger import readable
from saddle_jax.methods import options_of
from saddle_jax.paper.experiments import EXPERIMENTS, Entry
from saddle_jax.paper.figures import FIGURES
from saddle_jax.paper.scales import SCALES, Scale
from saddle_jax.report.tables import as_text, cell_of, write_all
from saddle_jax.training.config import Config

if TYPE_CHECKING:
    from saddle_jax.paper.plan import Planned


def run(arguments: Sequence[str]) -> int:
    """Plans, runs what is missing, and writes the table."""
    options = flags.FlagValues()
    flags.DEFINE_string("table", None, f"One of {', '.join(EXPERIMENTS)}.", flag_values=options)
    flags.DEFINE_string("figure", None, f"Or one of {', '.join(FIGURES)}.", flag_values=options)
    flags.DEFINE_list(
        "rows", [], "Only rows whose name has one of these parts, * and ? included.", flag_values=options
    )
    flags.DEFINE_string("scale", "cpu", f"One of {', '.join(SCALES)}.", flag_values=options)
    flags.DEFINE_integer("seeds", 3, "So many seeds, from 0 on.", lower_bound=1, flag_values=options)
    flags.DEFINE_string("workdir", None, "Folder of all runs and tables.", flag_values=options)
    flags.DEFINE_string("data_dir", "", "Folder of prepared datasets.", flag_values=options)
    flags.DEFINE_bool("list", False, "List the experiments, or the rows of one.", flag_values=options)
    flags.DEFINE_bool("plan", False, "Print the plan and stop.", flag_values=options)
    flags.DEFINE_bool("quiet", False, "Print the table only.", flag_values=options)
    parse(options, arguments)
    if options.list and options.table is None:
        print(_overview())
        return 0
    if options.figure is not None:
        return _draw(options)
    entries = _choose(options.table, options.rows)
    if options.list:
        print("\n".join(f"{entry.name:<56} {entry.printed or '-'}" for entry in entries))
        return 0
    scale, folder = _place(options)
    runs, status = _make_runs(options, options.table, entries, options.seeds, scale, folder)
    if runs:
        with mistakes():
            _write_table(options, runs, scale, folder)
    return status


def _overview() -> str:
    tables = [["table", "entries", "what"]]
    tables += [[name, str(len(e.entries)), e.title] for name, e in EXPERIMENTS.items()]
    figures = [["figure", "runs of", "what"]]
    figures += [[name, f"table {f.table}" if f.table else "none", f.title] for name, f in FIGURES.items()]
    scales = "\n".join(f"--scale={scale.name:<6} {scale.meaning}" for scale in SCALES.values())
    return f"{as_text(tables)}\n\n{as_text(figures)}\n\n{scales}"


def _place(options: flags.FlagValues) -> tuple[Scale, pathlib.Path]:
    if options.scale not in SCALES:
        raise UsageError(f"scale must be one of {', '.join(SCALES)}, got {options.scale!r}")
    if not options.workdir:
        raise UsageError("workdir must be given: --workdir=DIR, one folder for all runs")
    return SCALES[options.scale], pathlib.Path(options.workdir)


def _choose(table: str | None, parts: Sequence[str]) -> list[Entry]:
    if table not in EXPERIMENTS:
        given = "nothing" if table is None else repr(table)
        raise UsageError(f"table must be one of {', '.join(EXPERIMENTS)}, got {given}")
    entries = EXPERIMENTS[table].entries
    if not all(parts):
        raise UsageError(f"rows must be parts of names, got an empty one in {','.join(parts)!r}")
    chosen = [e for e in entries if not parts or any(fnmatch.fnmatch(e.name, f"*{part}*") for part in parts)]
    if not chosen:
        raise UsageError(
            f"rows must match a row of table {table}, such as {entries[0].name}, got {','.join(parts)}"
        )
    return chosen


def _draw(options: flags.FlagValues) -> int:
    """Makes the runs behind a figure, then calls the verbs that draw it."""
    from saddle_jax.cli.__main__ import main

    if options.figure not in FIGURES:
        raise UsageError(f"figure must be one of {', '.join(FIGURES)}, got {options.figure!r}")
    if options.table is not None or options.rows:
        raise UsageError("figure must stand alone: it names its own table and rows")
    figure = FIGURES[options.figure]
    scale, folder = _place(options)
    runs: list[Planned] = []
    epochs = ""
    if figure.table is not None:
        entries = _choose(figure.table, figure.rows)
        # A method and its SADDLe version side by side: landscapes are drawn in pairs.
        entries.sort(key=lambda entry: (entry.compressor, "rho" in options_of(entry.method)))
        seeds = 1 if figure.is_of_one_seed else options.seeds
        runs, status = _make_runs(options, figure.table, entries, seeds, scale, folder)
        if not runs or status:
            return status
        epochs = _three_stages(runs[0].config)
    if not options.plan:
        with mistakes():
            folder.mkdir(parents=True, exist_ok=True)
    meant = {"output": folder / f"figure-{options.figure}-{scale.name}", "epochs": epochs}
    for command in figure.commands:
        verb = [argument.format(**meant, images=scale.images) for argument in command]
        verb += [str(run.workdir) for run in runs]
        if options.data_dir and verb[0] != "figure":
            verb.append(f"--data_dir={options.data_dir}")
        print(f"\nsaddle {shlex.join(verb)}", flush=True)
        if options.plan:
            continue
        status = main(["saddle", *verb])
        if status:
            return status
    return 0


def _three_stages(config: Config) -> str:
    """Early, before the first drop of the learning rate, and at the end; epochs that were kept."""
    every = config.keep_every_epochs or config.epochs
    return ",".join(map(str, sorted({every, min(2 * every, config.epochs), config.epochs})))


def _make_runs(
    options: flags.FlagValues,
    table: str,
    entries: Sequence[Entry],
    seeds: int,
    scale: Scale,
    folder: pathlib.Path,
) -> tuple[list["Planned"], int]:
    """Plans and runs what is missing; the runs there are then, and the exit status so far."""
    from saddle_jax.paper import plan

    def say(text: str) -> None:
        if not options.quiet:
            print(text, flush=True)

    with mistakes():
        runs = plan.plan(entries, scale, seeds, folder, options.data_dir)
        missing = [run for run in runs if run.is_missing]
    say(f"table {table}: {EXPERIMENTS[table].title}\nscale {scale.name}: {scale.meaning}")
    if missing and not options.quiet:
        with mistakes():
            _print_plan(missing)
    say(f"{len(runs)} runs, {len(runs) - len(missing)} of them made already")
    if options.plan:
        return [], 0
    refused, status = run_several({run.workdir: run.config for run in missing}, quiet=options.quiet)
    if status == 130:
        return [], status
    made = [run for run in runs if run.workdir not in refused]
    with mistakes():
        for planned in made:
            planned.note_paper(table, scale)
    return made, status


def _print_plan(missing: Sequence["Planned"]) -> None:
    """What will run, how long it will take; also shows that each can be built before any of them runs."""
    from saddle_jax.paper import plan

    sizes = {run.entry.name: plan.measure(run.config) for run in missing}
    seconds = plan.estimate(missing, sizes, print)
    rows = [["row", "seeds to run", "steps", "sends per agent", "about"]]
    total = 0.0
    for name, size in sizes.items():
        these = [run for run in missing if run.entry.name == name]
        left = sum(1 - run.steps_done / size.steps for run in these) * seconds[name]
        total += left
        rows.append([name, str(len(these)), f"{size.steps:,}", readable(size.bytes_sent), _duration(left)])
    print(f"\n{as_text(rows)}\n\nabout {_duration(total)} on this machine, compilation apart", flush=True)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _write_table(
    options: flags.FlagValues, runs: Sequence["Planned"], scale: Scale, folder: pathlib.Path
) -> None:
    from saddle_jax.report.reproduced import beside_the_paper, contrasts, plot_beside_the_paper

    cells = {
        entry: cell_of([run.workdir for run in runs if run.entry == entry])
        for entry in dict.fromkeys(run.entry for run in runs)
    }
    title = EXPERIMENTS[options.table].title
    caption = f"Table {options.table}: {title}. {options.seeds} seeds. Scale {scale.name}: {scale.meaning}"
    rows, differences = beside_the_paper(cells, scale), contrasts(cells)
    print(f"\n{caption}\n\n{as_text(rows)}")
    name = f"table-{options.table}-{scale.name}"
    paths = write_all(rows, folder, name, caption)
    if len(differences) > 1 and scale.is_comparable:
        print(f"\nDifferences in percentage points\n\n{as_text(differences)}")
        paths += write_all(differences, folder, f"{name}-differences", caption)
    plot_beside_the_paper(cells, f"Table {options.table}, scale {scale.name}", folder / f"{name}.png")
    print(f"\nwritten: {', '.join(path.name for path in paths)}, {name}.png in {folder}")
