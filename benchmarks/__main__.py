"""saddle bench: how fast things are, as ratios."""

import pathlib
from collections.abc import Sequence
from typing import Any

from absl import flags

from benchmarks import input_command
from saddle_jax.base.files import check_named_output
from saddle_jax.cli.usage import UsageError, mistakes, parse


def run(arguments: Sequence[str]) -> None:
    """Runs the benchmarks that are named, or all of them but the soak."""
    if arguments and arguments[0] == "input":
        return input_command.run(arguments[1:])
    options = _options()
    names = parse(options, arguments, ["[CASE ...]"])

    from benchmarks import cases, measure
    from benchmarks.work import NO_PYTORCH, Options, pytorch
    from saddle_jax.runs.run_folder import write_json
    from saddle_jax.training.progress import Screen

    if options.list:
        for name, case in cases.CASES.items():
            print(f"{name:12} {case.meaning}")
        return None
    file, picture = (_file(name, getattr(options, name)) for name in ("json", "plot"))
    chosen = names or [*cases.USUAL]
    if picture is not None and picture.suffix not in (".png", ".pdf", ".svg"):
        raise UsageError(f"plot must end in .png, .pdf or .svg, got {str(picture)!r}")
    drawn = [name for name in dict.fromkeys(chosen) if name in _PICTURES]
    if picture is not None and len(drawn) != 1:
        raise UsageError(
            f"plot must come with one of the cases {' and '.join(_PICTURES)}, got {' '.join(names)}"
        )
    with mistakes():
        settings = Options(options.quick, options.repeats, options.conv_impl, options.agents_per_call)
        jobs = cases.jobs_of(chosen, settings)
        results = cases.run(jobs, Screen().line)
    print(measure.table(results))
    if pytorch("models") is None:
        print(NO_PYTORCH)
    if file is not None:
        write_json(file, cases.record(results, settings))
    if picture is not None:
        _PICTURES[drawn[0]](results, picture)
        print(f"picture: {picture}")
    return None


def _draw_growth(results: Sequence[Any], path: pathlib.Path) -> None:
    from benchmarks.growth import curves, plot_growth

    plot_growth(curves(results), path)


def _draw_soak(results: Sequence[Any], path: pathlib.Path) -> None:
    from benchmarks.soak import plot_soak

    plot_soak(next(row.figures["samples"] for row in results if "samples" in row.figures), path)


_PICTURES = {"growth": _draw_growth, "soak": _draw_soak}


def _options() -> flags.FlagValues:
    options = flags.FlagValues()
    flags.DEFINE_bool("quick", False, "Tiny sizes, to see that everything works.", flag_values=options)
    flags.DEFINE_integer("repeats", 5, "Rounds, of which the median counts.", 1, flag_values=options)
    meaning = "JSON file for the results with machine and versions (default: no file)."
    flags.DEFINE_string("json", "", meaning, flag_values=options)
    flags.DEFINE_string(
        "plot", "", "Picture of growth or soak, .png, .pdf or .svg (default: none).", flag_values=options
    )
    flags.DEFINE_string(
        "conv_impl", "auto", "How our convolutions are compiled, as in training.", flag_values=options
    )
    flags.DEFINE_integer(
        "agents_per_call", 0, "Agents that a device computes at a time; 0 chooses.", flag_values=options
    )
    flags.DEFINE_bool("list", False, "List what each case measures.", flag_values=options)
    return options


def _file(name: str, value: str) -> pathlib.Path | None:
    """Checks the file that an option names; returns None where it names none."""
    path = pathlib.Path(value)
    if value and (path.is_dir() or not path.parent.is_dir()):
        raise UsageError(f"{name} must be a file in a folder that exists, got {value!r}")
    with mistakes():
        check_named_output(value, name)
    return path if value else None
