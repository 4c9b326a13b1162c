"""saddle reproduce --claims: what the paper's text claims of its tables, beside what they and runs say."""

from absl import flags

from saddle_jax.cli.output import Output
from saddle_jax.cli.planning import interpretations_of, place
from saddle_jax.cli.usage import UsageError, mistakes
from saddle_jax.papers.evidence import claim_rows, means_below
from saddle_jax.papers.saddle.claims import CLAIMS
from saddle_jax.papers.saddle.costs import ratio_rows
from saddle_jax.papers.saddle.experiments import PAPER
from saddle_jax.report.tables import as_records, write_all


def show(options: flags.FlagValues) -> int:
    """Prints the claims of the text; with --workdir also what the runs there say, and writes both."""
    if options.table is not None or options.figure is not None or options.rows or interpretations_of(options):
        raise UsageError("claims must stand alone: they are about all tables")
    output, ours, paths = Output(options), None, []
    with mistakes():
        if options.workdir:
            scale, folder = place(options)
            ours = means_below(PAPER, folder, scale)
        rows, cheaper = claim_rows(CLAIMS, ours), ratio_rows()
        output.table(rows, spare=("differences", "of them"))
        output.say("")
        output.table(cheaper)
        if options.workdir:
            caption = (
                f"What the paper's text claims, in percentage points. Scale {scale.name}: {scale.meaning}"
            )
            paths = write_all(rows, folder, f"claims-{scale.name}", caption)
            output.note(f"\nwritten: {', '.join(path.name for path in paths)} in {folder}")
    output.give({"claims": as_records(rows, ("stated",)), "ratios": as_records(cheaper)})
    return 0
