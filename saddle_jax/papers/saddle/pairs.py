"""Entries of the paper's tables that a sentence compares: SADDLe and its base, compressed and not."""

from saddle_jax.papers.saddle.experiments import EXPERIMENTS, Entry

# A SADDLe method's own method without SAM.
BASES = {"d_saddle": "dpsgd", "q_saddle": "qgm", "n_saddle": "ngm"}

# The first minus the second, in percentage points; without a second the first as it is.
Difference = tuple[Entry, Entry | None]


def gains(
    one: str, other: str, tables: str, dataset: str = "*", compressed: bool = False
) -> tuple[Difference, ...]:
    """Pairs a method's figures with another's, compressed or not; tables have spaces between them."""
    return tuple(
        (entry, base)
        for entry in entries(tables, one, dataset)
        if (entry.compressor != "none") == compressed
        for base in entries(tables, other, dataset)
        if (base.problem, base.compressor) == (entry.problem, entry.compressor)
    )


def drops(method: str, tables: str, dataset: str = "*", base: str | None = None) -> tuple[Difference, ...]:
    """Pairs uncompressed figures with the compressed ones; `base` is the table of the former, if another."""
    return tuple(
        (full, entry)
        for entry in entries(tables, method, dataset)
        if entry.compressor != "none"
        for full in entries(base or tables, method, dataset)
        if full.compressor == "none" and full.problem == entry.problem
    )


def by_alpha(method: str, table: str) -> tuple[Difference, ...]:
    """Pairs uncompressed figures at alpha 0.01 with those at 0.001."""
    found = [entry for entry in entries(table, method) if entry.compressor == "none"]
    return tuple(
        (mild, strong)
        for mild in found
        for strong in found
        if (mild.alpha, strong.alpha) == (0.01, 0.001) and mild.agents == strong.agents
    )


def efficient(method: str, compressed: bool = False) -> tuple[Difference, ...]:
    """Pairs the efficient variant's figures, compressed or not, with those of a method of Table 1."""
    return tuple(
        (entry, base)
        for entry in entries("efficient", "q_saddle")
        if (entry.compressor != "none") == compressed
        for base in entries("1", method)
        if (base.problem, base.compressor) == (entry.problem, entry.compressor)
    )


def as_many_passes() -> tuple[Difference, ...]:
    """Pairs SADDLe's uncompressed figures with those of its base for twice the epochs."""
    return tuple(
        (entry, base)
        for base in EXPERIMENTS["passes"].entries
        for method, plain in BASES.items()
        if plain == base.method
        for entry in entries("dpsgd 1 3", method)
        if (entry.problem, entry.compressor) == (base.problem, base.compressor)
    )


def turned(differences: tuple[Difference, ...]) -> tuple[Difference, ...]:
    """Returns the differences the other way round, the second minus the first."""
    return tuple((other, one) for one, other in differences if other)


def level(method: str, compressor: str) -> Entry:
    """Returns the entry of a method with a compressor in the figure of levels."""
    (found,) = (e for e in entries("levels", method) if e.compressor == compressor)
    return found


def entries(tables: str, method: str, dataset: str = "*") -> list[Entry]:
    """Lists a method's entries in tables, which have spaces between them, of one dataset or of all."""
    return [
        entry
        for table in tables.split()
        for entry in EXPERIMENTS[table].entries
        if entry.method == method and dataset in ("*", entry.dataset)
    ]
