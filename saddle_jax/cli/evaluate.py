"""saddle evaluate: a run's models again, by its own metrics or by others that training did without."""

import pathlib
from collections.abc import Sequence

from absl import flags

from saddle_jax.base.registry import split
from saddle_jax.cli.output import Output, output_options
from saddle_jax.cli.runs import model_options, warn
from saddle_jax.cli.usage import mistakes, parse


def run(arguments: Sequence[str]) -> None:
    """Evaluates a run's newest checkpoint again, or others, by the metrics that are named."""
    options = _options()
    (name,) = parse(options, arguments, ["DIR"])
    workdir = pathlib.Path(name)
    if not (options.metrics or options.epochs or options.json):
        _newest(workdir, options)
        return

    from saddle_jax.report.comparisons import evaluation_rows
    from saddle_jax.training import evaluation, reopen

    with mistakes():
        whole = reopen.open_whole(workdir, options.data_dir, options.trial, options.code)
        names = split(options.metrics or "")
        records, measures = evaluation.evaluate(
            workdir, whole, names, options.epochs, warn, options.trial, options.agent
        )
    output = Output(options)
    output.table(evaluation_rows(records, measures, whole.trial))
    output.note(f"written: {workdir / evaluation.FILE}")
    output.give(records)


def _newest(workdir: pathlib.Path, options: flags.FlagValues) -> None:
    """Prints the metrics of the objective of one model at the newest checkpoint, in one line."""
    from saddle_jax.training.describe import score
    from saddle_jax.training.reopen import choose, open_run

    with mistakes():
        trial, step, params = open_run(workdir, warn, options.data_dir, options.trial, options.code)
        found = {
            f"test_{name}": value for name, value in trial.evaluate(choose(params, options.agent)).items()
        }
    whose = "consensus model" if options.agent is None else f"agent {options.agent}"
    metrics = [metric.record() for metric in trial.objective.metrics]
    shown = ", ".join(f"{metric['title']} {score(found, metric)}" for metric in metrics)
    print(f"{whose} at step {step:,}: test {shown}")


def _options() -> flags.FlagValues:
    from saddle_jax.training.evaluation import MEASURES

    options = model_options()
    meaning = (
        "Metrics, with commas between them: of the run's objective, such as loss or train_loss; "
        f"{', '.join(MEASURES)}; or your own (params, batch) -> number as FILE.py:NAME."
    )
    flags.DEFINE_string("metrics", None, meaning, flag_values=options)
    meaning = "Epochs with a checkpoint, or all (default: the newest)."
    flags.DEFINE_list("epochs", [], meaning, flag_values=options)
    output_options(options)
    return options
