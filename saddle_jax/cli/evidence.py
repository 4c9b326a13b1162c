"""saddle reproduce --evidence: what runs say of the paper's statements, with intervals and verdicts."""

from absl import flags

from saddle_jax.base.errors import RunError
from saddle_jax.cli.output import Output
from saddle_jax.cli.planning import place, readings_of
from saddle_jax.cli.usage import UsageError, mistakes
from saddle_jax.report.evidence import finding_rows, findings, plot_findings, runs_below, statement_rows
from saddle_jax.report.tables import as_records, write_all


def show(options: flags.FlagValues) -> int:
    """Prints what the runs below --workdir say of each statement, and writes table and picture."""
    if options.table is not None or options.figure is not None or options.rows or readings_of(options):
        raise UsageError("evidence must stand alone: it is about all tables")
    scale, folder = place(options)
    with mistakes():
        found = findings(runs_below(folder, scale))
        if not found:
            raise RunError(f"there are no runs to compare in {folder / scale.name}: --table=1 makes some")
        rows, summary = finding_rows(found), statement_rows(found)
        output = Output(options)
        output.table(rows, spare=("graph", "dataset", "seeds"))
        output.say("")
        output.table(summary)
        caption = (
            "Differences over the same seeds with 95 % intervals, in percentage points of accuracy or in %. "
            f"Scale {scale.name}: {scale.meaning}"
        )
        name = f"evidence-{scale.name}"
        paths = write_all(rows, folder, name, caption)
        paths += write_all(summary, folder, f"{name}-summary", caption)
        plot_findings(found, folder / f"{name}.png")
        output.note(f"\nwritten: {', '.join(path.name for path in paths)}, {name}.png in {folder}")
        output.give({"findings": as_records(rows), "statements": as_records(summary)})
    return 0
