"""saddle data: which datasets there are, what is in them, how they are dealt out."""

from collections.abc import Callable, Sequence

from absl import flags

from saddle_jax import data
from saddle_jax.base.files import check_named_output
from saddle_jax.cli.usage import UsageError, mistakes, parse, write_named
from saddle_jax.data import catalogue, prepared
from saddle_jax.data.partition import KINDS
from saddle_jax.data.sources import is_builtin
from saddle_jax.report.datasets import describe_dataset, describe_partition
from saddle_jax.report.plots import plot_contact_sheet, plot_partition


def run(arguments: Sequence[str]) -> None:
    """Runs one of the four verbs below."""
    verb, *rest = arguments or [""]
    if verb in ("--help", "-h"):
        print(f"usage: saddle data {' | '.join(_VERBS)} ...   (each shows its options with --help)")
        return
    if verb not in _VERBS:
        raise UsageError(f"data VERB must be one of {', '.join(_VERBS)}, got {verb!r}")
    _VERBS[verb](rest)


def _list(arguments: Sequence[str]) -> None:
    options = _options()
    parse(options, arguments)
    folder = prepared.data_dir_or_default(options.data_dir)
    print(f"prepared datasets are looked for in {folder}")
    for name, state in catalogue.states(folder).items():
        print(f"  {name:<12} {state}")


def _prepare(arguments: Sequence[str]) -> None:
    options = _options()
    (name,) = parse(options, arguments, ["NAME"])
    if is_builtin(name):
        print(f"{name} is embedded: there is nothing to prepare")
        return
    with mistakes():
        print(f"{name} is prepared in {catalogue.prepare(name, options.data_dir)}")


def _show(arguments: Sequence[str]) -> None:
    options = _options()
    flags.DEFINE_string("plot", None, "File of the contact sheet (default: NAME.png).", flag_values=options)
    (name,) = parse(options, arguments, ["NAME"])
    with mistakes():
        check_named_output(options.plot, "plot")
        dataset = data.load(name, options.data_dir)
    print(describe_dataset(dataset))
    labels, path = dataset.labels, options.plot or f"{name}.png"
    if dataset.recipe is None or labels is None:
        return  # there are no images of classes
    images, names = dataset.train["inputs"], dataset.class_names
    _draw(path, lambda: plot_contact_sheet(images, labels, names, path))


def _partition(arguments: Sequence[str]) -> None:
    options = _options()
    flags.DEFINE_string("dataset", "digits", "Name of the dataset.", flag_values=options)
    flags.DEFINE_string("partition", "dirichlet", f"One of {KINDS}.", flag_values=options)
    flags.DEFINE_integer("agents", 10, "Number of agents.", flag_values=options)
    flags.DEFINE_float("alpha", 0.1, "Concentration; for sorted, shards per agent.", flag_values=options)
    flags.DEFINE_integer("seed", 0, "Seed.", flag_values=options)
    flags.DEFINE_string("plot", None, "File of the bubble plot (default: no plot).", flag_values=options)
    parse(options, arguments)
    kind, agents, path = options.partition, options.agents, options.plot
    with mistakes():
        check_named_output(path, "plot")
        dataset = data.load(options.dataset, options.data_dir)
        if (labels := dataset.labels) is None or dataset.shares is not None:
            raise UsageError(f"dataset must have classes to be dealt out by, got {options.dataset!r}")
        partition = data.make_partition(kind, labels, agents, alpha=options.alpha, seed=options.seed)
    print(describe_partition(dataset.name, partition, dataset.class_names))
    if path:
        _draw(path, lambda: plot_partition(partition, dataset.class_names, path))


def _draw(path: str, plot: Callable[[], None]) -> None:
    write_named("plot", path, plot, (OSError, ValueError))  # matplotlib may not know the ending
    print(f"picture: {path}")


def _options() -> flags.FlagValues:
    options = flags.FlagValues()
    meaning = "Folder that tfds prepared (default: TFDS_DATA_DIR, or ~/tensorflow_datasets)."
    flags.DEFINE_string("data_dir", None, meaning, flag_values=options)
    return options


_VERBS: dict[str, Callable[[Sequence[str]], None]] = {
    "list": _list,
    "prepare": _prepare,
    "show": _show,
    "partition": _partition,
}
