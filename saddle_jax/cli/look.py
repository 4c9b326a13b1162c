"""Verbs that inspect runs and methods: list, evaluate, export, methods."""

import dataclasses
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import printable
from saddle_jax.base.files import atomic_write, check_named_output
from saddle_jax.base.registry import is_code, split
from saddle_jax.base.user_code import UserCodeError
from saddle_jax.cli.verb import (
    OPENING,
    Output,
    boolean,
    check_folder,
    choice,
    integer,
    items,
    refuse,
    text,
    verb,
    writing,
)

_TABLES = ("txt", "md", "csv", "tex")
_MODEL = (
    integer("agent", None, "Number of an agent, for its own model (default: the consensus model)."),
    integer("trial", None, "Number of a run, in a folder that holds several."),
    *OPENING,
)


@verb(
    "Look at runs",
    "DIR...",
    boolean("best", False, "Print the best setting of every method, with its neighbours on the grid."),
    text("metric", None, "Number that says what is best (default: the first of the runs' objective)."),
    choice("better", None, ("higher", "lower"), "What is better, if the objective does not say it."),
    items("by", ["method"], "Settings that make groups; the best setting is chosen in each."),
    text("output", None, f"File to write the best settings to, by its ending: {', '.join(_TABLES)}."),
    example="list runs --best --by=method,partition.alpha",
)
def list_(options: flags.FlagValues, out: Output, *names: str) -> None:
    """List the runs below folders and how far each has come, or the best setting of every method."""
    folders = [check_folder(name) for name in names]
    if options.best:
        return _best(options, out, folders)
    refuse(options, ("metric", "better", "by", "output"), "be given with --best")

    from saddle_jax.runs.table import run_rows, runs_below

    found = [run for folder in folders for run in runs_below(folder)]
    if found:
        out.table(run_rows(found), spare=("seed", "method"))
    else:
        out.say(f"no runs below {', '.join(names)}")
    for run in found:
        if run.reason and not out.is_json:
            _warn(printable(f"{run.run} is unreadable: {run.reason}"))
    return out.give([run._asdict() for run in found])


def _best(options: flags.FlagValues, out: Output, folders: Sequence[pathlib.Path]) -> None:
    """Prints the best settings of each group of runs, and whether the grid was wide enough."""
    from saddle_jax.report import best
    from saddle_jax.report.tables import in_form
    from saddle_jax.runs.run_folder import folders_below

    ending = pathlib.Path(options.output or "").suffix.removeprefix(".")
    if options.output and ending not in _TABLES:
        raise ArgumentError(
            f"output must end in {', '.join(f'.{form}' for form in _TABLES)}, got {options.output!r}"
        )
    check_named_output(options.output)
    runs, left_out = best.load_ended([path for folder in folders for path in folders_below(folder)])
    if not runs:
        raise ArgumentError(f"no run below {folders[0]} has ended{'; '.join(['', *left_out])}")
    measure = best.measure_of(runs, options.metric, options.better)
    candidates = best.candidates_of(runs, measure, left_out)
    names = best.groups_by(candidates, options.by)
    choices = best.choose(candidates, names, measure)
    rows = best.rows_of(choices, measure)
    title = (
        f"best settings by {measure.key} ({measure.better} is better), mean +- standard deviation over seeds"
    )
    out.give(best.as_json(choices, measure, left_out))
    out.table(rows, title, spare=("neighbours", "edge of the grid"))
    for name in names[len(options.by) :]:
        out.note(f"grouped by {name} too: what is best for one says nothing about another")
    for line in left_out:
        out.note(f"left out: {line}")
    if options.output:
        with writing("output", options.output), atomic_write(options.output) as partial:
            partial.write_text(in_form(rows, ending, title))
        out.note(f"written: {options.output}")


@verb(
    "Look at runs",
    "DIR",
    text(
        "metrics", None, "Metrics, such as loss,train_loss, or your own, FILE.py:NAME (default: the test's)."
    ),
    items("epochs", [], "Epochs with a checkpoint, or all (default: the newest)."),
    *_MODEL,
    example="evaluate runs/a --metrics=loss,train_loss --epochs=all",
)
def evaluate(options: flags.FlagValues, out: Output, name: str) -> None:
    """Evaluate a run's models again, also by other metrics."""
    from saddle_jax.training import evaluation, reopen

    workdir = pathlib.Path(name)
    if options.metrics or options.epochs or options.json:
        from saddle_jax.report.comparisons import evaluation_rows

        whole = reopen.open_whole(workdir, options.data_dir, options.trial, options.code)
        metrics = split(options.metrics or "")
        records, measures = evaluation.evaluate(
            workdir, whole, metrics, options.epochs, _warn, options.trial, options.agent
        )
        out.table(evaluation_rows(records, measures, whole.trial))
        out.note(f"written: {workdir / evaluation.FILE}")
        return out.give(records)

    from saddle_jax.training.describe import score

    trial, step, params = reopen.open_run(workdir, _warn, options.data_dir, options.trial, options.code)
    scores = trial.evaluate(reopen.choose(params, options.agent))
    found = {f"test_{name}": value for name, value in scores.items()}
    whose = "consensus model" if options.agent is None else f"agent {options.agent}"
    measured = [metric.record() for metric in trial.objective.metrics]
    shown = ", ".join(f"{metric['title']} {score(found, metric)}" for metric in measured)
    return out.say(f"{whose} at step {step:,}: test {shown}")


@verb(
    "Look at runs",
    "DIR...",
    choice(
        "format",
        "safetensors",
        ("safetensors", "msgpack", "torch", "wandb", "mlflow"),
        "Format of the model's file; or the logger that all metrics are given to, of any number of runs.",
    ),
    integer("downsample", None, "Copy settings, results and means of N logged lines instead.", 1),
    text(
        "output",
        None,
        "File of the model (default: model.FORMAT in DIR, or model.pt), or folder of the copies.",
    ),
    *_MODEL,
    example="export runs/a --format=safetensors",
)
def export(options: flags.FlagValues, out: Output, *names: str) -> None:
    """Write a run's model as one file, runs to Weights & Biases or MLflow, or small open copies of them."""
    if options.downsample:
        refuse(options, ("format", "agent", "trial", "data_dir", "code"), "not be given with --downsample")
        written = [_copy(name, options) for name in names]
    elif options.format in ("wandb", "mlflow"):
        refuse(
            options, ("output", "agent", "trial", "data_dir", "code"), f"not be given for {options.format}"
        )
        written = [_replayed(pathlib.Path(name), options.format) for name in names]
    elif len(names) > 1:
        raise ArgumentError(f"DIR must be one run, whose model is written, got {' '.join(names)}")
    else:
        written = [_model(pathlib.Path(names[0]), options)]
    for path, said in written:
        out.say(f"{path}{said}")
    out.give([str(path) for path, _ in written])


def _copy(name: str, options: flags.FlagValues) -> tuple[pathlib.Path, str]:

    from saddle_jax.runs.downsample import downsample

    if not options.output:
        raise ArgumentError("output must be given: --output=FOLDER, below which copies are written")
    return downsample(pathlib.Path(name), pathlib.Path(options.output), options.downsample), ""


def _replayed(workdir: pathlib.Path, logger: str) -> tuple[pathlib.Path, str]:
    from saddle_jax.runs.loggers import replay

    return workdir, f": {replay(workdir, logger):,} lines given to {logger}"


def _model(workdir: pathlib.Path, options: flags.FlagValues) -> tuple[pathlib.Path, str]:
    from saddle_jax import models
    from saddle_jax.runs.checkpoints import encode
    from saddle_jax.training.reopen import choose, open_run

    ending = "pt" if options.format == "torch" else options.format
    path = pathlib.Path(options.output or workdir / f"model.{ending}")
    check_named_output(options.output)
    trial, step, params = open_run(workdir, _warn, options.data_dir, options.trial, options.code)
    model, config = choose(params, options.agent), trial.config
    about = {"model": config.model, "dataset": config.dataset, "step": str(step)}
    content = encode(model, options.format, about, trial.model.layout)
    with atomic_write(path) as partial:
        partial.write_bytes(content)
    return path, f": step {step:,}, {models.count(model):,} parameters"


@verb(
    "Train and compare",
    "[NAME]",
    boolean("gradients", False, "Show the ways to take a gradient, SAM and its relatives, instead."),
    example="methods q_saddle",
)
def methods(options: flags.FlagValues, out: Output, name: str = "") -> None:
    """Show what each method sends, computes and needs, or one in full; --gradients shows SAM and so on."""
    from saddle_jax.methods import METHODS, base_methods
    from saddle_jax.report import algorithms as of
    from saddle_jax.sam import GRADIENTS

    facts: Callable[[str], Any]
    known: Sequence[str]
    if options.gradients:
        what, known, facts, options_of = (
            "gradient",
            [*GRADIENTS],
            of.facts_of_gradient,
            of.options_of_gradient,
        )
    else:
        what, known, facts, options_of = "method", base_methods(), of.facts_of_method, of.options_of_method

    def record(each: str) -> dict[str, Any]:
        own = [dataclasses.asdict(one) for one in options_of(each)]
        return dataclasses.asdict(facts(each)) | {"options": own}

    if name and not is_code(name):
        checks.known(what, name, known if options.gradients else METHODS)
    if out.is_json:
        out.give([record(name)] if name else _of_each(record, known))
    elif name:
        out.say(of.describe_gradient(name) if options.gradients else of.describe_method(name))
    elif options.gradients:
        out.table(of.gradient_rows(_of_each(of.facts_of_gradient, known)), spare=("citation",))
        out.note(of.about_gradients())
    else:
        rows = of.method_rows(_of_each(of.facts_of_method, known))
        out.table(rows, spare=("citation", "requires", "exact"))
        out.note(of.about_methods())


def _of_each(facts: Callable[[str], Any], names: Sequence[str]) -> list[Any]:
    """Returns the facts of all methods; those of installed packages that fail are left out with a warning."""
    found = []
    for name in names:
        try:
            found.append(facts(name))
        except UserCodeError as error:
            _warn(str(error))
    return found


def _warn(text: str) -> None:
    """Prints a warning."""
    print(f"saddle: {text}", file=sys.stderr)
