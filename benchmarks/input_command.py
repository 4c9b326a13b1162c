"""saddle bench input: what gathering and augmenting images costs beside a step."""

from collections.abc import Sequence

from absl import flags

from saddle_jax.cli.usage import mistakes, parse


def run(arguments: Sequence[str]) -> None:
    """Prints what gathering and augmenting images costs beside a step."""
    options = flags.FlagValues()
    flags.DEFINE_string("model", "resnet20", "Network.", flag_values=options)
    flags.DEFINE_string("method", "qgm", "Method.", flag_values=options)
    flags.DEFINE_integer("agents", 40, "Number of agents, in a ring.", 2, flag_values=options)
    flags.DEFINE_integer("batch_size", 32, "Images per agent.", 1, flag_values=options)
    flags.DEFINE_integer("repeats", 3, "Measurements, of which the median counts.", 1, flag_values=options)
    parse(options, arguments)

    from benchmarks.parts import input_share

    with mistakes():
        result = input_share(
            options.model, options.agents, options.batch_size, options.method, options.repeats
        )
    print(
        f"{options.method}, {options.model}, {options.agents} agents x {options.batch_size} images 32x32: "
        f"input {1e3 * result['input']:.1f} ms, step {1e3 * result['step']:.0f} ms, "
        f"input / step = {100 * result['ratio']:.2f} %"
    )
