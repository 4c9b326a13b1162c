"""Pictures, pages and tables that a notebook shows by itself, and that are files anywhere else."""

import dataclasses
import pathlib
from collections.abc import Sequence
from html import escape

from saddle_jax.report.tables import as_text


@dataclasses.dataclass(frozen=True)
class Picture:
    """A picture in a file; a notebook shows it."""

    path: pathlib.Path

    def _repr_png_(self) -> bytes:
        return self.path.read_bytes()


@dataclasses.dataclass(frozen=True)
class Page:
    """A page in a file that opens from disk; a notebook shows it in a frame."""

    path: pathlib.Path
    height: int = 720

    def _repr_html_(self) -> str:
        content = escape(self.path.read_text(encoding="utf-8"))
        frame = f'style="width:100%;height:{self.height}px;border:0" title="report"'
        # The page brings a script of its own, whose hash it states; it may do nothing to the notebook.
        return f'<iframe srcdoc="{content}" sandbox="allow-scripts" {frame}></iframe>'


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of text under a header; a notebook shows them as a table, and print as aligned columns."""

    rows: Sequence[Sequence[str]]

    def __str__(self) -> str:
        return as_text(self.rows)

    def _repr_html_(self) -> str:
        head, *body = self.rows
        top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
        lines = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in body
        )
        return f"<table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table>"
