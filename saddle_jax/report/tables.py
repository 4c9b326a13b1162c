"""Tables of results, read from run folders: as text, Markdown, CSV and LaTeX."""

import csv
import io
import pathlib
import re
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

from saddle_jax.base.errors import printable
from saddle_jax.base.files import in_one_go

# Methods as papers write them.
NAMES = {
    "dpsgd": "DPSGD",
    "d_saddle": "D-SADDLe",
    "qgm": "QGM",
    "q_saddle": "Q-SADDLe",
    "ngm": "NGM",
    "n_saddle": "N-SADDLe",
}


def as_text(rows: Sequence[Sequence[str]], width: int | None = None) -> str:
    """Formats rows with aligned columns; control characters of names are spelt out.

    Cells are wrapped where the table would be wider than `width`.
    """
    return "\n".join(fit([[printable(cell) for cell in row] for row in rows], width).lines)


_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?")


def as_records(rows: Sequence[Sequence[str]], texts: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Turns rows into one dict each, by their heading: numbers are numbers, and what is not there is None.

    `texts` are columns that stay text, whatever they look like.
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
    """Formats rows as a LaTeX tabular with the rules of booktabs, methods by the names of the paper."""

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
    """Formats rows for a file of one of FORMS; only the CSV, which programs read, has no caption."""
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
    """Writes NAME.txt, .md, .csv and .tex in a folder; `numbers` are what the CSV has instead of the rows."""
    paths = [folder / f"{name}.{form}" for form in FORMS]
    for path, form in zip(paths, FORMS, strict=True):
        content = numbers if form == "csv" and numbers else rows
        with in_one_go(path) as partial:
            partial.write_text(in_form(content, form, caption))
    return paths


# Tables of text that fit a terminal: less important columns are left out, then long cells are wrapped.


_GAP = 2  # blanks between columns
_NARROWEST = 8  # what a column of words is wrapped to at the least


class Fitted(NamedTuple):
    """A table that fits, and the headings of the columns that it does without."""

    lines: list[str]  # the heading, of one line or several, then a rule, then the rows
    heading: int  # how many of the lines are the heading
    left_out: list[str]


def fit(rows: Sequence[Sequence[str]], width: int | None = None, spare: Sequence[str] = ()) -> Fitted:
    """Aligns the columns of rows, the first of which is the heading, in at most `width` characters.

    `spare` are the headings of columns that may be left out, the least important first. None is any width.
    """
    left_out: list[str] = []
    for name in spare:
        if width is None or _total(_natural(rows)) <= width:
            break
        if name in rows[0] and len(rows[0]) > 1:
            column = list(rows[0]).index(name)
            rows = [[*row[:column], *row[column + 1 :]] for row in rows]
            left_out.append(name)
    widths = _natural(rows) if width is None else _squeezed(rows, width)
    wrapped = [_lines(row, widths) for row in rows]
    shown = [line for lines in wrapped for line in lines]
    heading = len(wrapped[0])
    rule = "-" * max(map(len, wrapped[0]))
    return Fitted([*shown[:heading], rule, *shown[heading:]], heading, left_out)


def _natural(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _squeezed(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Returns widths of columns whose sum fits: the widest are narrowed first, if possible between words."""
    widths = _natural(rows)
    words = [
        max(len(word) for row in rows for word in row[column].split() or [""])
        for column in range(len(widths))
    ]
    for least in (
        [max(_NARROWEST, word) for word in words],
        [min(_NARROWEST, w) for w in widths],
        [1] * len(widths),
    ):
        while _total(widths) > width:
            room = [w - at_least for w, at_least in zip(widths, least, strict=True)]
            if max(room) <= 0:
                break
            widest = max((w for w, r in zip(widths, room, strict=True) if r > 0))
            column = next(i for i, w in enumerate(widths) if w == widest and room[i] > 0)
            widths[column] -= 1
    return widths


def _lines(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Returns the lines of one row, whose cells are wrapped where they are wider than their column."""
    cells = [
        textwrap.wrap(cell, width) or [""] if len(cell) > width else [cell]
        for cell, width in zip(row, widths, strict=True)
    ]
    height = max(len(cell) for cell in cells)
    full = [[*cell, *[""] * (height - len(cell))] for cell in cells]
    return [
        (" " * _GAP).join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in zip(*full, strict=True)
    ]
