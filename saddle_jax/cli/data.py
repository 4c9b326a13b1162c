"""saddle data: which datasets there are, what is in them, how they are dealt out."""

import sys
from collections.abc import Callable, Sequence

import numpy as np
from absl import flags

from saddle_jax import data
from saddle_jax.base.errors import RunError
from saddle_jax.base.files import check_named_output
from saddle_jax.cli.usage import UsageError, mistakes, parse
from saddle_jax.data import partition, prepared, sources


def run(arguments: Sequence[str]) -> None:
    """Runs one of the four verbs below."""
    verb, *rest = arguments or [""]
    if verb in ("--help", "-h"):
        print(f"usage: saddle data {' | '.join(_VERBS)} ...   (each tells its options with --help)")
        return
    if verb not in _VERBS:
        raise UsageError(f"data VERB must be one of {', '.join(_VERBS)}, got {verb!r}")
    _VERBS[verb](rest)


def _data_dir_option() -> flags.FlagValues:
    options = flags.FlagValues()
    flags.DEFINE_string(
        "data_dir", None, "Folder that tfds prepared; TFDS_DATA_DIR else.", flag_values=options
    )
    return options


def _list(arguments: Sequence[str]) -> None:
    """Every known dataset, and those that are prepared besides."""
    options = _data_dir_option()
    parse(options, arguments)
    folder = prepared.data_dir_or_default(options.data_dir)
    print(f"prepared datasets are looked for in {folder}")
    known = {sources.TFDS_NAMES.get(name, name).partition("/")[0] for name in sources.KNOWN}
    others = [path.name for path in sorted(folder.glob("*")) if path.is_dir() and path.name not in known]
    for name in (*sources.KNOWN, *others):
        if name in sources.BUILTIN:
            state = "embedded, always there"
        else:
            try:
                version = prepared.find_version(sources.TFDS_NAMES.get(name, name), folder)
                prepared.list_records(version)
                state = f"prepared: {version}"
            except data.DataError as error:
                state = str(error) if "half" in str(error) else f"not prepared: saddle data prepare {name}"
        print(f"  {name:<12} {state}")


def _show(arguments: Sequence[str]) -> None:
    """Counts, shapes, and a contact sheet."""
    options = _data_dir_option()
    flags.DEFINE_string("plot", None, "Where the contact sheet goes; NAME.png else.", flag_values=options)
    (name,) = parse(options, arguments, ["NAME"])
    with mistakes():
        check_named_output(options.plot, "plot")
        dataset = data.load(name, options.data_dir)
    print(f"{name}: {dataset.num_classes} classes, from {dataset.source}")
    for split, images, labels in (
        ("train", dataset.train_images, dataset.train_labels),
        ("test", dataset.test_images, dataset.test_labels),
    ):
        counts = np.bincount(labels, minlength=dataset.num_classes)
        shape = "x".join(map(str, images.shape[1:]))
        print(
            f"  {split:<5} {len(labels):>9,} images {shape}, {counts.min():,} to {counts.max():,} per class"
        )
    print(f"  a model sees {'x'.join(map(str, dataset.image_shape))}, {dataset.recipe}")
    _save(options.plot or f"{name}.png", _contact_sheet(dataset))


def _partition(arguments: Sequence[str]) -> None:
    """Who would hold what."""
    options = _data_dir_option()
    flags.DEFINE_string("dataset", "digits", "Name of the dataset.", flag_values=options)
    flags.DEFINE_string("partition", "dirichlet", f"One of {partition.KINDS}.", flag_values=options)
    flags.DEFINE_integer("agents", 10, "Number of agents.", flag_values=options)
    flags.DEFINE_float("alpha", 0.1, "Concentration; for sorted, shards per agent.", flag_values=options)
    flags.DEFINE_integer("seed", 0, "Seed.", flag_values=options)
    flags.DEFINE_string("plot", None, "Where the bubble plot goes; none else.", flag_values=options)
    parse(options, arguments)
    with mistakes():
        check_named_output(options.plot, "plot")
        dataset = data.load(options.dataset, options.data_dir)
        dealt = data.make_partition(
            options.partition, dataset.train_labels, options.agents, alpha=options.alpha, seed=options.seed
        )
    print(f"{dataset.name}, {dealt.name}, fingerprint {dealt.fingerprint}")
    print(f"{dealt.skew}")
    counts = dealt.class_counts
    print("agent   samples   its largest classes")
    for agent, row in enumerate(counts):
        largest = [c for c in np.argsort(-row, kind="stable")[:4] if row[c]]
        print(
            f"{agent:>5} {row.sum():>9,}   "
            + ", ".join(f"{dataset.class_names[c]} {row[c]:,}" for c in largest)
        )
    if options.plot:
        from saddle_jax.report.plots import plot_partition

        _save(options.plot, lambda path: plot_partition(dealt, dataset.class_names, path))


def _prepare(arguments: Sequence[str]) -> None:
    """Downloads and prepares a dataset: needs the internet and TensorFlow."""
    options = _data_dir_option()
    (name,) = parse(options, arguments, ["NAME"])
    if name in sources.BUILTIN:
        print(f"{name} is embedded: there is nothing to prepare")
        return
    try:
        import tensorflow  # noqa: F401  # tfds needs it to prepare, and says so less clearly
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise UsageError(
            f"preparing {name} needs TensorFlow: {sys.executable} -m pip install 'saddle_jax[prepare]'"
        ) from error
    folder = prepared.data_dir_or_default(options.data_dir)
    try:
        builder = tfds.builder(
            sources.TFDS_NAMES.get(name, name), data_dir=str(folder), file_format="array_record"
        )
        builder.download_and_prepare()
    except Exception as error:  # tfds raises whatever its downloader and parsers do
        raise UsageError(
            f"{name} could not be prepared in {folder}: {' '.join(str(error).split())[:300]}"
        ) from error
    print(f"{name} is prepared in {folder}")


def _contact_sheet(dataset: data.Dataset) -> Callable[[str], None]:
    from saddle_jax.report.plots import plot_contact_sheet

    return lambda path: plot_contact_sheet(
        dataset.train_images, dataset.train_labels, dataset.class_names, path
    )


def _save(path: str, draw: Callable[[str], None]) -> None:
    try:
        draw(path)
    except RunError as error:
        raise UsageError(str(error)) from error
    except (OSError, ValueError) as error:
        raise UsageError(f"plot must be a file that can be written, got {path!r}: {error}") from error
    print(f"picture: {path}")


_VERBS: dict[str, Callable[[Sequence[str]], None]] = {
    "list": _list,
    "prepare": _prepare,
    "show": _show,
    "partition": _partition,
}
