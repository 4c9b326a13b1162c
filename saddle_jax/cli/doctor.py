"""saddle doctor: whether everything works here, and what to install or set if it does not."""

from collections.abc import Sequence

from absl import flags

from saddle_jax.cli.extras import BY_EXTRA
from saddle_jax.cli.output import Output, output_options
from saddle_jax.cli.statuses import MISTAKE
from saddle_jax.cli.usage import parse
from saddle_jax.report.health import Finding, examine


def run(arguments: Sequence[str]) -> int:
    """Prints what was found; returns 2 if something that is needed is broken."""
    options = flags.FlagValues()
    meaning = "Folder of prepared datasets (default: TFDS_DATA_DIR, or ~/tensorflow_datasets)."
    flags.DEFINE_string("data_dir", None, meaning, flag_values=options)
    output_options(options)
    parse(options, arguments)
    output, found = Output(options), examine(BY_EXTRA, options.data_dir)
    rows = [["what", "state", "found"], *([one.what, one.state, one.seen] for one in found)]
    output.table(rows)
    for one in found:
        if one.remedy:
            output.say(f"{one.what}: {one.remedy}")
    output.note(f"\n{_verdict(found)}")
    broken = [one.what for one in found if one.state == "broken"]
    output.give({"usable": not broken, "findings": [one._asdict() for one in found]})
    return MISTAKE if broken else 0


def _verdict(found: Sequence[Finding]) -> str:
    states = [one.state for one in found]
    if "broken" in states:
        return "something that is needed is broken: see above"
    return "saddle works here" + (", without what is missing above" if "missing" in states else "")
