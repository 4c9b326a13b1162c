"""saddle cost: the paper's communication costs, derived, beside the exact bytes of our encodings."""

import dataclasses
from collections.abc import Sequence

from absl import flags

from saddle_jax.cli.output import Output, output_options
from saddle_jax.cli.usage import UsageError, parse
from saddle_jax.papers.saddle.costs import PRINTED, costs


def run(arguments: Sequence[str]) -> None:
    """Prints the figures of one table or of all."""
    options = flags.FlagValues()
    flags.DEFINE_string("table", None, f"One of {', '.join(PRINTED)} (default: all).", flag_values=options)
    output_options(options)
    parse(options, arguments)
    if options.table not in (None, *PRINTED):
        raise UsageError(f"table must be one of {', '.join(PRINTED)}, got {options.table!r}")
    figures = list(costs(options.table))
    output = Output(options)
    output.give([dataclasses.asdict(cost) for cost in figures])
    rows = [["table", "agents", "dataset", "method", "compressor", "paper GB", "derived GB", "wire GB"]]
    for c in figures:
        gigabytes = (f"{c.paper_gb:.2f}", f"{c.derived_gb:.2f}", f"{c.wire_gb:.4f}")
        rows.append([c.table, str(c.agents), c.dataset, c.method, c.compressor, *gigabytes])
    output.table(rows, spare=("wire GB",))
    equal = sum(c.paper_gb == c.derived_gb for c in figures)
    told = f"{equal} of {len(figures)} printed figures derived exactly; the SADDLe versions cost the same"
    output.note(f"\n{told}")
