"""What `saddle reproduce` prints when its runs are made: the paper's table beside ours."""

import pathlib

from saddle_jax.cli.output import Output
from saddle_jax.papers.evidence import Results
from saddle_jax.report.tables import as_records

_TEXTS = ("dataset", "graph", "method", "compressor", "scale")


def show_results(output: Output, found: Results, folder: pathlib.Path) -> None:
    """Prints a table that was written to a folder, and its differences."""
    output.note(f"\n{found.caption}\n")
    output.table(found.rows, spare=("scale", "95 % interval", "graph"))
    if found.differences:
        output.note("\nDifferences in percentage points; ours over the same seeds, with 95 % intervals\n")
        output.table(found.differences, spare=("seeds",))
    if found.hint:
        output.note(f"\n{found.hint}")
    output.note(f"\nwritten: {', '.join(path.name for path in found.files)} in {folder}")
    output.give(
        {
            "caption": found.caption,
            "rows": as_records(found.numbers, _TEXTS),
            "differences": as_records(found.differences, _TEXTS) if found.differences else [],
            "files": [str(path) for path in found.files],
        }
    )
