"""Speed relative to PyTorch or to a memory copy: bin/bench, or python -m benchmarks."""

import pathlib
from collections.abc import Sequence
from typing import Any

from absl import flags

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.files import check_named_output
from saddle_jax.cli import process
from saddle_jax.cli.verb import Output, Verb, boolean, call, integer, text, verb

VERBS: dict[str, Verb] = {}


@verb(
    "",
    "[CASE ...]",
    boolean("quick", False, "Tiny sizes, to see that everything works."),
    integer("repeats", 5, "Rounds, of which the median counts.", 1),
    text("output", "", "JSON file for the results with machine and versions (default: no file)."),
    text("plot", "", "Picture of growth or soak, .png, .pdf or .svg (default: none)."),
    text("conv_impl", "auto", "How our convolutions are compiled, as in training."),
    integer("agents_per_call", 0, "Agents that a device computes at a time; 0 chooses."),
    boolean("list", False, "List what each case measures."),
    into=VERBS,
)
def bench(options: flags.FlagValues, out: Output, *names: str) -> None:
    """Run the benchmarks that are named, or all of them but the soak."""
    from benchmarks import cases, measure
    from benchmarks.work import NO_PYTORCH, Options, pytorch
    from saddle_jax.runs.run_folder import write_json
    from saddle_jax.training.progress import Screen

    if options.list:
        for name, case in cases.CASES.items():
            print(f"{name:12} {case.meaning}")
        return
    file, picture = (_file(name, options[name].value) for name in ("output", "plot"))
    chosen = names or [*cases.USUAL]
    if picture is not None and picture.suffix not in (".png", ".pdf", ".svg"):
        raise ArgumentError(f"plot must end in .png, .pdf or .svg, got {str(picture)!r}")
    drawn = [name for name in dict.fromkeys(chosen) if name in _PICTURES]
    if picture is not None and len(drawn) != 1:
        raise ArgumentError(
            f"plot must come with one of the cases {' and '.join(_PICTURES)}, got {' '.join(names)}"
        )
    settings = Options(options.quick, options.repeats, options.conv_impl, options.agents_per_call)
    results = cases.run(cases.jobs_of(chosen, settings), Screen(out.is_silent).line)
    out.say(measure.table(results))
    out.give(cases.record(results, settings))
    if pytorch("models") is None:
        out.note(NO_PYTORCH)
    if file is not None:
        write_json(file, cases.record(results, settings))
    if picture is not None:
        _PICTURES[drawn[0]](results, picture)
        out.note(f"picture: {picture}")


@verb(
    "",
    text("model", "resnet20", "Network."),
    text("method", "qgm", "Method."),
    integer("agents", 40, "Number of agents, in a ring.", 2),
    integer("batch_size", 32, "Images per agent.", 1),
    integer("repeats", 3, "Measurements, of which the median counts.", 1),
    into=VERBS,
)
def bench_input(options: flags.FlagValues, out: Output) -> None:
    """Measure what gathering and augmenting images costs beside a step."""
    from benchmarks.parts import input_share

    size = (options.model, options.agents, options.batch_size, options.method, options.repeats)
    result = input_share(*size)
    out.say(
        f"{options.method}, {options.model}, {options.agents} agents x {options.batch_size} images 32x32: "
        f"input {1e3 * result['input']:.1f} ms, step {1e3 * result['step']:.0f} ms, "
        f"input / step = {100 * result['ratio']:.2f} %"
    )
    out.give(result)


def _draw_growth(results: Sequence[Any], path: pathlib.Path) -> None:
    from benchmarks.growth import curves, plot_growth

    plot_growth(curves(results), path)


def _draw_soak(results: Sequence[Any], path: pathlib.Path) -> None:
    from benchmarks.soak import plot_soak

    plot_soak(next(row.figures["samples"] for row in results if "samples" in row.figures), path)


_PICTURES = {"growth": _draw_growth, "soak": _draw_soak}


def _file(name: str, value: Any) -> pathlib.Path | None:
    """Checks the file that an option names; returns None if it is not set."""
    path = pathlib.Path(value)
    if value and (path.is_dir() or not path.parent.is_dir()):
        raise ArgumentError(f"{name} must be a file in a folder that exists, got {value!r}")
    check_named_output(value, name)
    return path if value else None


def main(argv: Sequence[str]) -> int:
    """Runs the benchmarks named in argv[1:]; returns the exit status."""
    return process.guarded(lambda words: call(words, VERBS), ["bench", *argv[1:]])


if __name__ == "__main__":
    process.start(main, lambda words: 0 if {"-h", "--help"} & {*words} else 1)
