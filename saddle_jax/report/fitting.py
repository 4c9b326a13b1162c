"""Tables of text that fit a terminal: less important columns are left out, then long cells are wrapped."""

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

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
