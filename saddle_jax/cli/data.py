"""Verbs of datasets: list, prepare, show and partition."""

from absl import flags

from saddle_jax.base.checks import ArgumentError
from saddle_jax.cli.verb import Output, picture_file, picture_option, settings_of, text, verb, writing

_THEME = "Data, and your own"
_DATA_DIR = text(
    "data_dir", None, "Folder that tfds prepared (default: TFDS_DATA_DIR, or ~/tensorflow_datasets)."
)


@verb(_THEME, _DATA_DIR)
def data_list(options: flags.FlagValues, out: Output) -> None:
    """List the datasets and whether they are prepared."""
    from saddle_jax.data import prepared, sources

    folder = prepared.data_dir_or_default(options.data_dir)
    states = sources.states(folder)
    out.note(f"prepared datasets are looked for in {folder}")
    out.table([["dataset", "state"], *([name, state] for name, state in states.items())])
    out.give([{"dataset": name, "state": state} for name, state in states.items()])


@verb(
    _THEME,
    "NAME",
    text("from", None, "CIFAR's own archive .tar.gz, or the folder of its files, in place of a download."),
    _DATA_DIR,
)
def data_prepare(options: flags.FlagValues, out: Output, name: str) -> None:
    """Prepare a dataset: download it with TensorFlow, or read CIFAR's own archive with --from=FILE."""
    from saddle_jax.data import sources

    is_here = sources.is_builtin(name)
    folder = None if is_here else str(sources.prepare(name, options.data_dir, options["from"].value))
    out.say(
        f"{name} is embedded: there is nothing to prepare" if is_here else f"{name} is prepared in {folder}"
    )
    out.give({"dataset": name, "folder": folder})


@verb(_THEME, "NAME", picture_option("Picture of some images of each class", "none", "plot"), _DATA_DIR)
def data_show(options: flags.FlagValues, out: Output, name: str) -> None:
    """Show the counts and shapes of a dataset, and draw some of its images."""
    from saddle_jax import data
    from saddle_jax.report.datasets import dataset_record, describe_dataset
    from saddle_jax.report.plots import plot_contact_sheet

    path = options.plot and picture_file(options.plot, "", "plot")
    dataset = data.load(name, options.data_dir)
    labels = dataset.labels
    out.say(describe_dataset(dataset))
    if path:
        if dataset.recipe is None or labels is None:
            raise ArgumentError(f"plot must be of images with classes, got {name!r}")
        with writing("plot", path):
            plot_contact_sheet(dataset.train["inputs"], labels, dataset.class_names, path)
        out.note(f"picture: {path}")
    out.give(dataset_record(dataset))


@verb(
    _THEME,
    picture_option("Picture of who holds how much of which class", "none", "plot"),
    settings=("dataset", "partition", "agents", "seed", "data_dir"),
    example="data partition --agents=5 --partition.alpha=0.01",
)
def data_partition(options: flags.FlagValues, out: Output) -> None:
    """Show which agent would hold which samples."""
    from saddle_jax import data
    from saddle_jax.report.datasets import partition_record, partition_rows
    from saddle_jax.report.plots import plot_partition

    path = options.plot and picture_file(options.plot, "", "plot")
    config = settings_of(options, partition="dirichlet")
    dataset = data.load(config.dataset, config.data_dir or None)
    if (labels := dataset.labels) is None or dataset.agent_samples is not None:
        raise ArgumentError(f"dataset must have classes to be partitioned by, got {config.dataset!r}")
    partition = data.make_partition(config.partition, labels, config.agents, seed=config.seed)
    out.note(f"{dataset.name}, {partition.name}, fingerprint {partition.fingerprint}\n{partition.skew}")
    out.table(partition_rows(partition, dataset.class_names))
    if path:
        with writing("plot", path):
            plot_partition(partition, dataset.class_names, path)
        out.note(f"picture: {path}")
    out.give(partition_record(partition, dataset.class_names))
