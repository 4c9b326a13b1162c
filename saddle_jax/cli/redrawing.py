"""saddle reproduce --figure: a figure of the paper, drawn by the verbs that draw such pictures."""

import shlex

from absl import flags

from saddle_jax.cli.planning import interpretations_of, make_runs, place
from saddle_jax.cli.usage import UsageError, mistakes
from saddle_jax.papers.runs import written
from saddle_jax.papers.saddle import figures
from saddle_jax.runs.run_name import safe


def draw(options: flags.FlagValues) -> int:
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
    if options.json:
        raise UsageError("json must not be given with --figure, whose pictures other verbs draw")
    figure = figures.FIGURES[name]
    scale, folder = place(options)
    workdirs: list[str] = []
    epochs: list[int] = []
    if figure.table is not None:
        seeds = 1 if figure.one_seed else options.seeds
        runs, status = make_runs(options, figure.table, figure.entries(), seeds)
        if not runs or status:
            return status
        workdirs, epochs = [str(run.workdir) for run in runs], figures.three_stages(runs[0].config)
    if not options.plan:
        with mistakes():
            folder.mkdir(parents=True, exist_ok=True)
    interpretations = "".join(f"-{safe(text)}" for text in written(interpretations_of(options)))
    output = str(folder / f"figure-{name}-{scale.name}{interpretations}")
    for picture in figure.pictures:
        verb, arguments = figures.command_of(picture, figures.Place(output, epochs, scale.images))
        arguments = [*arguments, *workdirs]
        if options.data_dir and verb in figures.READS_DATA:
            arguments.append(f"--data_dir={options.data_dir}")
        print(f"\nsaddle {shlex.join([verb, *arguments])}", flush=True)
        if not options.plan:
            verbs[verb](arguments)
    return 0
