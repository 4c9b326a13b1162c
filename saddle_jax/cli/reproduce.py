"""saddle reproduce: a table or a figure of the paper, run at some scale."""

from collections.abc import Sequence

from absl import flags

from saddle_jax.cli import claims, evidence, redrawing
from saddle_jax.cli.output import Output, output_options
from saddle_jax.cli.planning import base_runs, interpretations_of, make_runs, place
from saddle_jax.cli.reproduced import show_results
from saddle_jax.cli.settings import some_options
from saddle_jax.cli.usage import mistakes, parse
from saddle_jax.papers.common import SCALES
from saddle_jax.papers.evidence import write_results
from saddle_jax.papers.runs import INTERPRETATIONS, scale_rows, table_rows, written
from saddle_jax.papers.saddle import figures
from saddle_jax.papers.saddle.experiments import EXPERIMENTS, PAPER
from saddle_jax.report.tables import as_records


def run(arguments: Sequence[str]) -> int:
    """Plans, runs what is missing, and writes the table or draws the figure."""
    options = _options()
    parse(options, arguments)
    output = Output(options)
    if options.list and options.table is None:
        return _show_overview(output)
    if options.claims:
        return claims.show(options)
    if options.evidence:
        return evidence.show(options)
    if options.figure is not None:
        return redrawing.draw(options)
    with mistakes():
        table, entries = PAPER.table_name(options.table), PAPER.choose(options.table, options.rows)
    if options.list:
        rows = [["row", "paper"], *([entry.name, str(entry.printed or "-")] for entry in entries)]
        output.table(rows)
        output.give(as_records(rows))
        return 0
    runs, status = make_runs(options, table, entries, options.seeds)
    if runs and not options.plan:
        with mistakes():
            bases = base_runs(options, table, entries, options.seeds)
            otherwise = written(interpretations_of(options))
            scale, folder = place(options)
            found = write_results(PAPER, table, options.seeds, runs, bases, scale, folder, otherwise)
        show_results(output, found, folder)
    return status


def _show_overview(output: Output) -> int:
    tables, drawn, scales = table_rows(PAPER), figures.figure_rows(), scale_rows()
    output.table(tables)
    output.say("")
    output.table(drawn)
    output.say("")
    output.table(scales)
    records = (as_records(rows, ("table", "figure", "number")) for rows in (tables, drawn, scales))
    output.give(dict(zip(("tables", "figures", "scales"), records, strict=True)))
    return 0


def _options() -> flags.FlagValues:
    options = flags.FlagValues()
    meaning = f"Table to make: {', '.join(EXPERIMENTS)}, or a number of the paper."
    flags.DEFINE_string("table", None, meaning, flag_values=options)
    meaning = f"Figure to draw: {', '.join(figures.FIGURES)}, or a number of the paper."
    flags.DEFINE_string("figure", None, meaning, flag_values=options)
    meaning = "Parts of the names of rows, * and ? included (default: all rows)."
    flags.DEFINE_list("rows", [], meaning, flag_values=options)
    flags.DEFINE_string("scale", "cpu", f"Size of the runs: {', '.join(SCALES)}.", flag_values=options)
    flags.DEFINE_integer("seeds", 3, "Number of seeds, from 0 on.", lower_bound=1, flag_values=options)
    meaning = "Folder of all runs and tables; --plan needs none."
    flags.DEFINE_string("workdir", None, meaning, flag_values=options)
    flags.DEFINE_string("data_dir", "", "Folder of prepared datasets.", flag_values=options)
    meaning = "Print what the text claims of the tables, beside the tables and the runs below --workdir."
    flags.DEFINE_bool("claims", False, meaning, flag_values=options)
    meaning = "Print what the runs below --workdir say of the paper's statements, with verdicts."
    flags.DEFINE_bool("evidence", False, meaning, flag_values=options)
    flags.DEFINE_bool("list", False, "List the experiments, or the rows of one.", flag_values=options)
    some_options(options, INTERPRETATIONS)
    meaning = "Whether quantizers are divided by tau (default: as each row's name says)."
    flags.DEFINE_bool("biased", None, meaning, flag_values=options)
    flags.DEFINE_bool("plan", False, "Print what would run, and stop.", flag_values=options)
    output_options(options)
    return options
