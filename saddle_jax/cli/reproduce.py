"""saddle reproduce: a table of the paper, run at some scale, beside the paper's own figures."""

import fnmatch
import pathlib
import sys
from collections.abc import Sequence

from absl import flags

from saddle_jax.cli.running import run_training
from saddle_jax.cli.usage import UsageError, mistakes, parse
from saddle_jax.ledger import readable
from saddle_jax.paper.experiments import EXPERIMENTS, Entry
from saddle_jax.paper.scales import SCALES, Scale
from saddle_jax.report.tables import as_text, cell_of, write_all


def run(arguments: Sequence[str]) -> int:
    """Plans, runs what is missing, and writes the table."""
    options = flags.FlagValues()
    flags.DEFINE_string("table", None, f"One of {', '.join(EXPERIMENTS)}.", flag_values=options)
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
    entries = _choose(options.table, options.rows)
    if options.list:
        print("\n".join(f"{entry.name:<56} {entry.printed or '-'}" for entry in entries))
        return 0
    if options.scale not in SCALES:
        raise UsageError(f"scale must be one of {', '.join(SCALES)}, got {options.scale!r}")
    if not options.workdir:
        raise UsageError("workdir must be given: --workdir=DIR, one folder for all runs")
    return _reproduce(options, entries, SCALES[options.scale], pathlib.Path(options.workdir))


def _overview() -> str:
    rows = [["table", "figures", "what"]]
    rows += [[name, str(len(e.entries)), e.title] for name, e in EXPERIMENTS.items()]
    scales = "\n".join(f"--scale={scale.name:<6} {scale.meaning}" for scale in SCALES.values())
    return f"{as_text(rows)}\n\n{scales}"


def _choose(table: str | None, parts: Sequence[str]) -> list[Entry]:
    if table not in EXPERIMENTS:
        given = "nothing" if table is None else repr(table)
        raise UsageError(f"table must be one of {', '.join(EXPERIMENTS)}, got {given}")
    entries = EXPERIMENTS[table].entries
    chosen = [e for e in entries if not parts or any(fnmatch.fnmatch(e.name, f"*{part}*") for part in parts)]
    if not chosen:
        raise UsageError(
            f"rows must match a row of table {table}, such as {entries[0].name}, got {','.join(parts)}"
        )
    return chosen


def _reproduce(
    options: flags.FlagValues, entries: Sequence[Entry], scale: Scale, folder: pathlib.Path
) -> int:
    from saddle_jax import reproduction

    def say(text: str) -> None:
        if not options.quiet:
            print(text, flush=True)

    experiment = EXPERIMENTS[options.table]
    with mistakes():
        runs = reproduction.plan(entries, scale, options.seeds, folder, options.data_dir)
        missing = [run for run in runs if run.is_missing]
    say(f"table {options.table}: {experiment.title}\nscale {scale.name}: {scale.meaning}")
    if missing:
        with mistakes():
            _print_plan(reproduction, missing, say)
    say(f"{len(runs)} runs, {len(runs) - len(missing)} of them made already")
    if options.plan:
        return 0
    refused = []
    for number, planned in enumerate(missing, 1):
        say(f"\n[{number} of {len(missing)}] {planned.workdir.name}")
        try:
            result = run_training(planned.config, planned.workdir, quiet=options.quiet)
        except UsageError as error:  # one folder that cannot be used does not stop the others
            print(f"saddle: {error}", file=sys.stderr)
            refused.append(planned.workdir)
            continue
        if result["status"] == "interrupted":
            print("interrupted; the same command goes on from here", file=sys.stderr)
            return 130
    for planned in runs:
        if planned.workdir not in refused:
            planned.note_paper(options.table, scale)
    _write_table(options, runs, scale, folder)
    return 2 if refused else 0


def _print_plan(reproduction, missing, say) -> None:
    """What will run, how long it will take; also shows that each can be built before any of them runs."""
    sizes = {run.entry.name: reproduction.measure(run.config) for run in missing}
    seconds = reproduction.estimate(missing, sizes, say)
    rows = [["row", "seeds to run", "steps", "sends per agent", "about"]]
    total = 0.0
    for name, size in sizes.items():
        these = [run for run in missing if run.entry.name == name]
        left = sum(1 - run.steps_done / size.steps for run in these) * seconds[name]
        total += left
        rows.append([name, str(len(these)), f"{size.steps:,}", readable(size.bytes_sent), _duration(left)])
    say(f"\n{as_text(rows)}\n\nabout {_duration(total)} on this machine, compilation apart")


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _write_table(options: flags.FlagValues, runs, scale: Scale, folder: pathlib.Path) -> None:
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
