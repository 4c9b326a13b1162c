"""saddle reproduce: a table or a figure of the paper, run at some scale."""

from collections.abc import Sequence

from absl import flags

from saddle_jax.cli import claims, evidence, redrawing
from saddle_jax.cli.planning import base_runs, make_runs, place, readings_of
from saddle_jax.cli.settings import some_options
from saddle_jax.cli.usage import mistakes, parse
from saddle_jax.paper import figures
from saddle_jax.paper.experiments import EXPERIMENTS, choose_entries, named_table
from saddle_jax.paper.readings import SETTINGS, written
from saddle_jax.paper.scales import SCALES
from saddle_jax.report.reproduced import overview, write_results


def run(arguments: Sequence[str]) -> int:
    """Plans, runs what is missing, and writes the table or draws the figure."""
    options = _options()
    parse(options, arguments)
    if options.list and options.table is None:
        print(overview())
        return 0
    if options.claims:
        return claims.show(options)
    if options.evidence:
        return evidence.show(options)
    if options.figure is not None:
        return redrawing.draw(options)
    with mistakes():
        table, entries = named_table(options.table), choose_entries(options.table, options.rows)
    if options.list:
        print("\n".join(f"{entry.name:<56} {entry.printed or '-'}" for entry in entries))
        return 0
    runs, status = make_runs(options, table, entries, options.seeds)
    if runs and not options.plan:
        with mistakes():
            bases = base_runs(options, table, entries, options.seeds)
            otherwise = written(readings_of(options))
            write_results(table, options.seeds, runs, bases, *place(options), print, otherwise)
    return status


def _options() -> flags.FlagValues:
    options = flags.FlagValues()
    meaning = f"One of {', '.join(EXPERIMENTS)}, or its number in the paper."
    flags.DEFINE_string("table", None, meaning, flag_values=options)
    meaning = f"Or one of {', '.join(figures.FIGURES)}, or its number in the paper."
    flags.DEFINE_string("figure", None, meaning, flag_values=options)
    meaning = "Parts of the names of rows, * and ? included (default: all rows)."
    flags.DEFINE_list("rows", [], meaning, flag_values=options)
    flags.DEFINE_string("scale", "cpu", f"One of {', '.join(SCALES)}.", flag_values=options)
    flags.DEFINE_integer("seeds", 3, "Number of seeds, from 0 on.", lower_bound=1, flag_values=options)
    flags.DEFINE_string("workdir", None, "Folder of all runs and tables.", flag_values=options)
    flags.DEFINE_string("data_dir", "", "Folder of prepared datasets.", flag_values=options)
    meaning = "Print what the text claims of the tables, beside the tables and the runs below --workdir."
    flags.DEFINE_bool("claims", False, meaning, flag_values=options)
    meaning = "Print what the runs below --workdir say of the paper's statements, with verdicts."
    flags.DEFINE_bool("evidence", False, meaning, flag_values=options)
    flags.DEFINE_bool("list", False, "List the experiments, or the rows of one.", flag_values=options)
    some_options(options, SETTINGS)
    meaning = "Whether quantizers are divided by tau (default: as each row's name says)."
    flags.DEFINE_bool("biased", None, meaning, flag_values=options)
    flags.DEFINE_bool("plan", False, "Print the plan and stop.", flag_values=options)
    flags.DEFINE_bool("quiet", False, "Print the table only.", flag_values=options)
    return options
