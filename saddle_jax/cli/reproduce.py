"""saddle reproduce: a table or a figure of the paper, run at some scale."""

import shlex
from collections.abc import Sequence

from absl import flags

from saddle_jax.cli.planning import base_runs, make_runs, place, readings_of
from saddle_jax.cli.settings import some_options
from saddle_jax.cli.usage import UsageError, mistakes, parse
from saddle_jax.paper import figures
from saddle_jax.paper.experiments import EXPERIMENTS, choose_entries, named_table
from saddle_jax.paper.readings import SETTINGS, written
from saddle_jax.paper.scales import SCALES
from saddle_jax.report.reproduced import overview, write_results
from saddle_jax.report.tables import as_text, write_all
from saddle_jax.training.run_name import safe


def run(arguments: Sequence[str]) -> int:
    """Plans, runs what is missing, and writes the table or draws the figure."""
    options = _options()
    parse(options, arguments)
    if options.list and options.table is None:
        print(overview())
        return 0
    if options.claims:
        return _claims(options)
    if options.figure is not None:
        return _draw(options)
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
    flags.DEFINE_bool("list", False, "List the experiments, or the rows of one.", flag_values=options)
    some_options(options, SETTINGS)
    meaning = "Whether quantizers are divided by tau (default: as each row's name says)."
    flags.DEFINE_bool("biased", None, meaning, flag_values=options)
    flags.DEFINE_bool("plan", False, "Print the plan and stop.", flag_values=options)
    flags.DEFINE_bool("quiet", False, "Print the table only.", flag_values=options)
    return options


def _claims(options: flags.FlagValues) -> int:
    """Prints the claims of the text; with --workdir also what the runs there say, and writes both."""
    from saddle_jax.report.claimed import claim_rows, means_below, ratio_rows

    if options.table is not None or options.figure is not None or options.rows or readings_of(options):
        raise UsageError("claims must stand alone: they are about all tables")
    ours, paths = None, []
    with mistakes():
        if options.workdir:
            scale, folder = place(options)
            ours = means_below(folder, scale)
        rows, cheaper = claim_rows(ours), ratio_rows()
        print(f"{as_text(rows)}\n\n{as_text(cheaper)}")
        if options.workdir:
            caption = (
                f"What the paper's text claims, in percentage points. Scale {scale.name}: {scale.meaning}"
            )
            paths = write_all(rows, folder, f"claims-{scale.name}", caption)
            print(f"\nwritten: {', '.join(path.name for path in paths)} in {folder}")
    return 0


def _draw(options: flags.FlagValues) -> int:
    """Makes the runs behind a figure, then calls the verbs that draw it."""
    from saddle_jax.cli import data, landscape, report, sharpness, topology

    verbs = {
        "landscape": landscape.run,
        "sharpness": sharpness.run,
        "figure": report.figure,
        "data": data.run,
        "topology": topology.run,
    }
    with mistakes():
        name = figures.named_figure(options.figure)
    if options.table is not None or options.rows:
        raise UsageError("figure must stand alone: it names its own table and rows")
    figure = figures.FIGURES[name]
    scale, folder = place(options)
    workdirs: list[str] = []
    epochs: list[int] = []
    if figure.table is not None:
        seeds = 1 if figure.is_of_one_seed else options.seeds
        runs, status = make_runs(options, figure.table, figure.entries(), seeds)
        if not runs or status:
            return status
        workdirs, epochs = [str(run.workdir) for run in runs], figures.three_stages(runs[0].config)
    if not options.plan:
        with mistakes():
            folder.mkdir(parents=True, exist_ok=True)
    readings = "".join(f"-{safe(text)}" for text in written(readings_of(options)))
    output = str(folder / f"figure-{name}-{scale.name}{readings}")
    for picture in figure.pictures:
        verb, arguments = picture(figures.Place(output, epochs, scale.images))
        arguments = [*arguments, *workdirs]
        if options.data_dir and verb in figures.READS_DATA:
            arguments.append(f"--data_dir={options.data_dir}")
        print(f"\nsaddle {shlex.join([verb, *arguments])}", flush=True)
        if not options.plan:
            verbs[verb](arguments)
    return 0
