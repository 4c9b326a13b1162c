"""Tables of results, read from run folders: as text, Markdown, CSV and LaTeX."""

import csv
import dataclasses
import io
import pathlib
import statistics
from collections.abc import Sequence

from saddle_jax.base.files import in_one_go
from saddle_jax.training.run_folder import read_config, read_result


@dataclasses.dataclass(frozen=True)
class Cell:
    """One setting's accuracies in percent, one per finished seed, and how many runs diverged."""

    accuracies: tuple[float, ...]
    diverged: int = 0

    @property
    def mean(self) -> float | None:
        """Returns the mean accuracy; None if no run finished."""
        return statistics.fmean(self.accuracies) if self.accuracies else None

    def text(self, plus_minus: str = "+-") -> str:
        """Formats the cell, such as "71.20 +- 0.40"; a star marks runs that diverged, as in the paper."""
        star = "*" if self.diverged else ""
        if not self.accuracies:
            return f"diverged{star}" if self.diverged else "-"
        spread = f" {plus_minus} {statistics.stdev(self.accuracies):.2f}" if len(self.accuracies) > 1 else ""
        return f"{self.mean:.2f}{spread}{star}"


def gather(workdirs: Sequence[pathlib.Path]) -> dict[tuple[str, str], Cell]:
    """Returns cells by (method, compressor), from the runs that have ended."""
    folders_by_cell: dict[tuple[str, str], list[pathlib.Path]] = {}
    for workdir in workdirs:
        config = read_config(workdir)
        folders_by_cell.setdefault((config.method, config.compressor), []).append(workdir)
    return {key: cell_of(folders) for key, folders in folders_by_cell.items()}


def cell_of(workdirs: Sequence[pathlib.Path]) -> Cell:
    """Returns the cell of runs that differ in the seed only, one or several to a folder, if they ended."""
    folders = [result for result in map(read_result, workdirs) if result is not None]
    results = [result for folder in folders for result in folder.get("replicas", [folder])]
    return Cell(
        tuple(100 * r["test_accuracy"] for r in results if r["status"] == "finished"),
        sum(r["status"] == "diverged" for r in results),
    )


def comparison(
    cells: dict[tuple[str, str], Cell], methods: Sequence[str], compressors: Sequence[str]
) -> list[list[str]]:
    """Lists a method a row: its accuracy under every compressor, and the drop from the first, as text."""
    header = ["method"]
    for compressor in compressors:
        header += [compressor] if compressor == compressors[0] else [compressor, "drop"]
    rows = [header]
    for method in methods:
        base = cells.get((method, compressors[0]), Cell(()))
        row = [method, base.text()]
        for compressor in compressors[1:]:
            cell = cells.get((method, compressor), Cell(()))
            drop = "-" if base.mean is None or cell.mean is None else f"{base.mean - cell.mean:.2f}"
            row += [cell.text(), drop]
        rows.append(row)
    return rows


def run_names(workdirs: Sequence[pathlib.Path]) -> list[str]:
    """Names runs in tables and pictures: by their folders, or by whole paths if two are alike."""
    names = [workdir.resolve().name for workdir in workdirs]
    return names if len(set(names)) == len(names) else [str(workdir) for workdir in workdirs]


def as_text(rows: Sequence[Sequence[str]]) -> str:
    """Formats rows with aligned columns, for a terminal."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def as_markdown(rows: Sequence[Sequence[str]]) -> str:
    """Formats rows as a Markdown table."""
    head, *body = ("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body]) + "\n"


def as_csv(rows: Sequence[Sequence[str]]) -> str:
    """Formats rows as comma-separated values (CSV)."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()


def as_latex(rows: Sequence[Sequence[str]]) -> str:
    """Formats rows as a LaTeX tabular."""

    def escape(cell: str) -> str:
        return cell.replace("_", r"\_").replace("%", r"\%").replace("+-", r"$\pm$")

    head, *body = (" & ".join(map(escape, row)) + r" \\" for row in rows)
    columns = "l" * len(rows[0])
    return "\n".join(
        [
            rf"\begin{{tabular}}{{{columns}}}",
            r"\hline",
            head,
            r"\hline",
            *body,
            r"\hline",
            r"\end{tabular}",
            "",
        ]
    )


def write_all(
    rows: Sequence[Sequence[str]], folder: pathlib.Path, name: str, caption: str = ""
) -> list[pathlib.Path]:
    """Writes NAME.txt, .md, .csv and .tex in a folder; only the CSV, which programs read, has no caption."""
    above = f"{caption}\n\n" if caption else ""
    forms = {
        "txt": f"{above}{as_text(rows)}\n",
        "md": above + as_markdown(rows),
        "csv": as_csv(rows),
        "tex": (f"% {caption}\n" if caption else "") + as_latex(rows),
    }
    paths = []
    for ending, text in forms.items():
        paths.append(folder / f"{name}.{ending}")
        with in_one_go(paths[-1]) as partial:
            partial.write_text(text)
    return paths
