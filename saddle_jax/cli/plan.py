"""saddle plan: a run's step compiled for devices that need not be there, and whether it fits them."""

import json
from collections.abc import Sequence

import jax
from absl import flags

from saddle_jax.cli.settings import config_options, read_options
from saddle_jax.cli.statuses import MISTAKE
from saddle_jax.cli.usage import mistakes, parse
from saddle_jax.devices import targets


def run(arguments: Sequence[str]) -> int:
    """Prints what a run takes on a target; the exit status is that of a mistake if it does not fit."""
    options = flags.FlagValues()
    config_options(options)
    meaning = (
        f"Devices: {targets.HERE}, {', '.join(targets.GPUS)} with a number such as a40x4, or "
        f"{', '.join(targets.TPUS)} with a grid such as v5e:2x2."
    )
    flags.DEFINE_string("target", targets.HERE, meaning, flag_values=options)
    flags.DEFINE_bool("json", False, "Print one JSON object.", flag_values=options)
    parse(options, arguments)
    config = read_options(options)
    with mistakes():
        if targets.check(options.target) != targets.HERE:
            # Before anything asks JAX for devices: it would look for those that programs are compiled for.
            jax.config.update("jax_platforms", "cpu")

        from saddle_jax.report.forecasts import forecast_text
        from saddle_jax.training.forecast import forecast

        found = forecast(config, targets.target_of(options.target))
    print(json.dumps(found.to_json(), indent=1) if options.json else forecast_text(found))
    return 0 if found.fits else MISTAKE
