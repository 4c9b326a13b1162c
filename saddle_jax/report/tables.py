"""Formatting tables as text, Markdown, CSV and LaTeX."""

import csv
import io
import pathlib
import re
from collections.abc import Sequence
from typing import Any

from saddle_jax.base.errors import printable
from saddle_jax.base.files import atomic_write

# Names of methods in papers.
NAMES = {
    "dpsgd": "DPSGD",
    "d_saddle": "D-SADDLe",
    "qgm": "QGM",
    "q_saddle": "Q-SADDLe",
    "ngm": "NGM",
    "n_saddle": "N-SADDLe",
}


def as_text(rows: Sequence[Sequence[str]]) -> str:
    """Formats rows with aligned columns, and escapes control characters."""
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?")


def as_records(rows: Sequence[Sequence[str]], texts: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Converts rows to dicts by their heading, with numbers parsed and missing values as None.

    Columns in `texts` are not parsed.
    """

    def plain(name: str, cell: str) -> Any:
        if cell in ("", "-"):
            return None
        if name in texts or not _NUMBER.fullmatch(cell):
            return cell
        return float(cell) if set(cell) & set(".e") else int(cell)

    head, *body = rows
    return [{name: plain(name, cell) for name, cell in zip(head, row, strict=True)} for row in body]


def as_markdown(rows: Sequence[Sequence[str]]) -> str:
    """Formats rows as a Markdown table."""
    head, *body = ("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body]) + "\n"


def as_csv(rows: Sequence[Sequence[str]]) -> str:
    """Formats rows as comma-separated values (CSV)."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "_%&#$" + "{}"},
}


def as_latex(rows: Sequence[Sequence[str]]) -> str:
    """Formats rows as a LaTeX tabular with booktabs rules and the methods' names in papers."""

    def written(cell: str) -> str:
        method, space, rest = cell.partition(" ")
        named = NAMES.get(method, method) + space + rest
        return "".join(_LATEX.get(sign, sign) for sign in named).replace("+-", r"$\pm$")

    head, *body = (" & ".join(map(written, row)) + r" \\" for row in rows)
    columns = "l" * len(rows[0])
    top = [r"% needs \usepackage{booktabs}", rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
    return "\n".join([*top, head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}", ""])


FORMS = ("txt", "md", "csv", "tex")


def in_form(rows: Sequence[Sequence[str]], form: str, caption: str = "") -> str:
    """Formats rows in one of FORMS; all but the CSV may have a caption."""
    above = f"{caption}\n\n" if caption else ""
    if form == "csv":
        return as_csv(rows)
    if form == "md":
        return above + as_markdown(rows)
    if form == "tex":
        return (f"% {caption}\n" if caption else "") + as_latex(rows)
    return f"{above}{as_text(rows)}\n"


def write_all(
    rows: Sequence[Sequence[str]],
    folder: pathlib.Path,
    name: str,
    caption: str = "",
    numbers: Sequence[Sequence[str]] | None = None,
) -> list[pathlib.Path]:
    """Writes NAME.txt, .md, .csv and .tex into a folder; `numbers` replace the rows in the CSV."""
    paths = [folder / f"{name}.{form}" for form in FORMS]
    for path, form in zip(paths, FORMS, strict=True):
        content = numbers if form == "csv" and numbers else rows
        with atomic_write(path) as partial:
            partial.write_text(in_form(content, form, caption))
    return paths
