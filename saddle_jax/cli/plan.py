"""saddle plan: a run's step compiled for devices that need not be there, and whether it fits them."""

from collections.abc import Sequence

import jax
from absl import flags

from saddle_jax.cli.output import Output, output_options
from saddle_jax.cli.settings import config_options, read_options
from saddle_jax.cli.statuses import MISTAKE
from saddle_jax.cli.streams import doing
from saddle_jax.cli.usage import mistakes, parse
from saddle_jax.planning import targets


def run(arguments: Sequence[str]) -> int:
    """Prints what a run takes on a target; the exit status is that of a mistake if it does not fit."""
    options = flags.FlagValues()
    config_options(options)
    meaning = (
        f"Devices: {targets.HERE}, {', '.join(targets.GPUS)} with a number such as a40x4, or "
        f"{', '.join(targets.TPUS)} with a grid such as v5e:2x2."
    )
    flags.DEFINE_string("target", targets.HERE, meaning, flag_values=options)
    output_options(options)
    parse(options, arguments)
    config = read_options(options)
    with mistakes():
        if targets.check(options.target) != targets.HERE:
            # Before anything asks JAX for devices: it would look for those that programs are compiled for.
            jax.config.update("jax_platforms", "cpu")

        from saddle_jax.planning.forecast import forecast, forecast_lines, forecast_rows

        with doing(f"compiling a step for {options.target} ..."):
            found = forecast(config, targets.target_of(options.target))
    output = Output(options)
    above, below = forecast_lines(found)
    output.say("\n".join([*above, ""]))
    output.table(forecast_rows(found))
    output.say("\n".join(["", *below]))
    output.give(found.to_json())
    return 0 if found.fits else MISTAKE
