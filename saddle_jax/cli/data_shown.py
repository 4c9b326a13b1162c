"""saddle data show, saddle data partition: what is in a dataset, and who would hold what."""

import pathlib
from collections.abc import Callable, Sequence

from absl import flags

from saddle_jax import data
from saddle_jax.cli.output import Output, output_options
from saddle_jax.cli.pictures import checked, output_option
from saddle_jax.cli.usage import UsageError, mistakes, parse, write_named
from saddle_jax.data.partition import PARTITIONS
from saddle_jax.report.datasets import dataset_record, describe_dataset, partition_record, partition_rows
from saddle_jax.report.plots import plot_contact_sheet, plot_partition


def data_options() -> flags.FlagValues:
    """Defines where prepared datasets are looked for."""
    options = flags.FlagValues()
    meaning = "Folder that tfds prepared (default: TFDS_DATA_DIR, or ~/tensorflow_datasets)."
    flags.DEFINE_string("data_dir", None, meaning, flag_values=options)
    return options


def show(arguments: Sequence[str]) -> None:
    """Prints counts and shapes of a dataset, and draws some of its images."""
    options = data_options()
    output_option(options, "Picture of some images of each class", "none", "plot")
    output_options(options)
    (name,) = parse(options, arguments, ["NAME"])
    path = options.plot and checked(options.plot, "", "plot")
    with mistakes():
        dataset = data.load(name, options.data_dir)
    output, labels = Output(options), dataset.labels
    output.say(describe_dataset(dataset))
    if path:
        if dataset.recipe is None or labels is None:
            raise UsageError(f"plot must be of images with classes, got {name!r}")
        images, names = dataset.train["inputs"], dataset.class_names
        _draw(path, lambda: plot_contact_sheet(images, labels, names, path), output)
    output.give(dataset_record(dataset))


def partition(arguments: Sequence[str]) -> None:
    """Prints which agent would hold how much of which class."""
    options = data_options()
    flags.DEFINE_string("dataset", "digits", "Name of the dataset.", flag_values=options)
    meaning = f"One of {', '.join(PARTITIONS)}, with options as in dirichlet(0.1)."
    flags.DEFINE_string("partition", "dirichlet", meaning, flag_values=options)
    flags.DEFINE_integer("agents", 10, "Number of agents.", flag_values=options)
    flags.DEFINE_integer("seed", 0, "Seed.", flag_values=options)
    output_option(options, "Picture of who holds how much of which class", "none", "plot")
    output_options(options)
    parse(options, arguments)
    path = options.plot and checked(options.plot, "", "plot")
    kind, agents, output = options.partition, options.agents, Output(options)
    with mistakes():
        dataset = data.load(options.dataset, options.data_dir)
        if (labels := dataset.labels) is None or dataset.shares is not None:
            raise UsageError(f"dataset must have classes to be partitioned by, got {options.dataset!r}")
        dealt = data.make_partition(kind, labels, agents, seed=options.seed)
    output.note(f"{dataset.name}, {dealt.name}, fingerprint {dealt.fingerprint}\n{dealt.skew}")
    output.table(partition_rows(dealt, dataset.class_names))
    if path:
        _draw(path, lambda: plot_partition(dealt, dataset.class_names, path), output)
    output.give(partition_record(dealt, dataset.class_names))


def _draw(path: pathlib.Path, plot: Callable[[], None], output: Output) -> None:
    write_named("plot", path, plot)
    output.note(f"picture: {path}")
