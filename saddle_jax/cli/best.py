"""saddle best: the best setting of every method below a folder, and whether the grid was wide enough."""

import pathlib
from collections.abc import Sequence

from absl import flags

from saddle_jax.base.files import check_named_output, in_one_go
from saddle_jax.cli.output import Output, output_options
from saddle_jax.cli.usage import UsageError, mistakes, parse, write_named
from saddle_jax.report.best import (
    BETTER,
    as_json,
    candidates_of,
    choose,
    gather_ended,
    groups_by,
    metric_of,
    rows_of,
)
from saddle_jax.report.tables import FORMS, in_form
from saddle_jax.runs.run_folder import folders_below


def run(arguments: Sequence[str]) -> None:
    """Prints the best setting of each group of the runs below folders, with its neighbours on the grid."""
    options = _options()
    folders = [pathlib.Path(name) for name in parse(options, arguments, ["DIR..."])]
    ending = pathlib.Path(options.output).suffix.removeprefix(".") if options.output else ""
    if options.output and ending not in FORMS:
        raise UsageError(
            f"output must end in {', '.join(f'.{form}' for form in FORMS)}, got {options.output!r}"
        )
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"DIR must be a folder, got {str(folder)!r}")
    with mistakes():
        check_named_output(options.output)
        runs, left_out = gather_ended([path for folder in folders for path in folders_below(folder)])
        if not runs:
            raise UsageError(f"no run below {folders[0]} has ended{'; '.join(['', *left_out])}")
        metric = metric_of(runs, options.metric, options.better)
        candidates = candidates_of(runs, metric.name, left_out)
        names = groups_by(candidates, options.by)
        choices = choose(candidates, names, metric)
    rows = rows_of(choices, metric)
    by = f"{metric.name} ({metric.better} is better)"
    title = f"best settings by {by}, mean +- standard deviation over seeds"
    output = Output(options)
    output.give(as_json(choices, metric, left_out))
    output.table(rows, title, spare=("neighbours", "edge of the grid"))
    for name in names[len(options.by) :]:
        output.note(f"grouped by {name} too: what is best for one says nothing about another")
    for line in left_out:
        output.note(f"left out: {line}")
    if options.output:
        _write(pathlib.Path(options.output), in_form(rows, ending, title))
        output.note(f"written: {options.output}")


def _write(path: pathlib.Path, text: str) -> None:
    def write() -> None:
        with in_one_go(path) as partial:
            partial.write_text(text)

    write_named("output", path, write)


def _options() -> flags.FlagValues:
    options = flags.FlagValues()
    meaning = (
        "Number to compare by, of result.json or metrics.jsonl (default: the first of the runs' objective)."
    )
    flags.DEFINE_string("metric", None, meaning, flag_values=options)
    meaning = "What is better, if the metric is not of the runs' objective."
    flags.DEFINE_enum("better", None, BETTER, meaning, flag_values=options)
    meaning = "Settings that make groups, with commas between them; the best setting is chosen in each."
    flags.DEFINE_list("by", ["method"], meaning, flag_values=options)
    output_options(options)
    meaning = f"File to write the table to, by its ending: {', '.join(FORMS)}."
    flags.DEFINE_string("output", None, meaning, flag_values=options)
    return options
