"""saddle reproduce --evidence: what runs say of the paper's statements, with intervals and verdicts."""

from absl import flags

from saddle_jax.base.errors import RunError
from saddle_jax.cli.output import Output
from saddle_jax.cli.planning import interpretations_of, place
from saddle_jax.cli.usage import UsageError, mistakes
from saddle_jax.papers.evidence import (
    accuracy_rows,
    finding_rows,
    findings,
    interpretation_rows,
    interpreted,
    plot_findings,
    runs_below,
    statement_rows,
)
from saddle_jax.papers.saddle.claims import STATEMENTS
from saddle_jax.papers.saddle.experiments import PAPER
from saddle_jax.report.tables import as_records, write_all


def show(options: flags.FlagValues) -> int:
    """Prints what the runs below --workdir say of each statement, and writes table and picture."""
    if options.table is not None or options.figure is not None or options.rows or interpretations_of(options):
        raise UsageError("evidence must stand alone: it is about all tables")
    scale, folder = place(options)
    with mistakes():
        runs = runs_below(PAPER, folder, scale)
        found, others = findings(STATEMENTS, runs), interpreted(PAPER, folder, scale)
        if not found:
            raise RunError(f"there are no runs to compare in {folder / scale.name}: --table=1 makes some")
        name = f"evidence-{scale.name}"
        tables = {
            name: finding_rows(found),
            f"{name}-accuracies": accuracy_rows(runs),
            **({f"{name}-interpretations": interpretation_rows(PAPER, others)} if others else {}),
            f"{name}-summary": statement_rows(found),
        }
        output = Output(options)
        for rows in tables.values():
            output.table(rows, spare=("graph", "dataset", "seeds", "p", "p of all"))
            output.say("")
        caption = (
            "Differences over the same seeds with 95 % intervals, in percentage points of accuracy or in %. "
            f"Scale {scale.name}: {scale.meaning}"
        )
        paths = [path for table, rows in tables.items() for path in write_all(rows, folder, table, caption)]
        if plot_findings(found, folder / f"{name}.png"):
            paths.append(folder / f"{name}.png")
        output.note(f"written: {', '.join(path.name for path in paths)} in {folder}")
        output.give({table: as_records(rows) for table, rows in tables.items()})
    return 0
