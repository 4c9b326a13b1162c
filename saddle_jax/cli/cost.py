"""saddle cost: the paper's communication costs, derived, beside the exact bytes of our encodings."""

import dataclasses
import json
from collections.abc import Sequence

from absl import flags

from saddle_jax.cli.usage import UsageError, parse
from saddle_jax.paper.costs import PRINTED, costs
from saddle_jax.report.tables import as_text


def run(arguments: Sequence[str]) -> None:
    """Prints the figures of one table or of all."""
    options = flags.FlagValues()
    flags.DEFINE_string("table", None, f"One of {', '.join(PRINTED)} (default: all).", flag_values=options)
    flags.DEFINE_bool("json", False, "Print a JSON list.", flag_values=options)
    parse(options, arguments)
    if options.table not in (None, *PRINTED):
        raise UsageError(f"table must be one of {', '.join(PRINTED)}, got {options.table!r}")
    figures = list(costs(options.table))
    if options.json:
        print(json.dumps([dataclasses.asdict(cost) for cost in figures], indent=1))
        return
    rows = [["table", "agents", "dataset", "method", "compressor", "paper GB", "derived GB", "wire GB"]]
    for c in figures:
        gigabytes = (f"{c.paper_gb:.2f}", f"{c.derived_gb:.2f}", f"{c.wire_gb:.4f}")
        rows.append([c.table, str(c.agents), c.dataset, c.method, c.compressor, *gigabytes])
    print(as_text(rows))
    equal = sum(c.paper_gb == c.derived_gb for c in figures)
    print(f"\n{equal} of {len(figures)} printed figures derived exactly; the SADDLe versions cost the same")
