"""The paper's experiments: every table, and the figures with runs of their own, as settings of runs.

What the paper leaves open is stated where it is decided; the hyper-parameters of datasets are in settings.py.
"""

import dataclasses
import fnmatch
from collections.abc import Iterator, Sequence

from saddle_jax.base.checks import ArgumentError
from saddle_jax.papers.saddle import printed
from saddle_jax.papers.saddle.printed import Printed
from saddle_jax.papers.saddle.settings import SETTINGS, averaging_rate
from saddle_jax.settings.config import Config


@dataclasses.dataclass(frozen=True)
class Entry:
    """One figure of a table: the runs behind it differ in the seed only."""

    agents: int
    dataset: str
    alpha: float | None  # None: data dealt at random (IID)
    method: str
    compressor: str
    gamma: float
    printed: Printed | None  # None: the paper draws it without a number
    # What a table's Drop column prints, in percentage points: the same entry may be in another table without.
    drop: float | None = dataclasses.field(default=None, compare=False)
    topology: str = "ring"
    ascent_every: int = 1
    schedule: str = "step"
    rho: float | None = None  # None: the dataset's
    times: int = 1  # how many times as long as the others, with the schedule stretched

    @property
    def problem(self) -> tuple[str, str, str]:
        """Returns dataset, alpha and graph as tables name them; methods are compared on the same one."""
        alpha = "iid" if self.alpha is None else f"{self.alpha:g}"
        return self.dataset, alpha, f"{self.topology} {self.agents}"

    @property
    def variant(self) -> str:
        """Returns the method as tables name it, such as "q_saddle every 5" or "q_saddle rho 0.2"."""
        parts = [self.method, *([f"every {self.ascent_every}"] if self.ascent_every > 1 else [])]
        parts += [self.schedule] if self.schedule == "exponential" else []
        parts += [] if self.rho is None else [f"rho {self.rho:g}"]
        return " ".join([*parts, *([f"{self.times} times as long"] if self.times > 1 else [])])

    @property
    def name(self) -> str:
        """Returns a name of its own, such as cifar10-ring10-alpha0.01-q_saddle-quantize8."""
        share = "iid" if self.alpha is None else f"alpha{self.alpha:g}"
        parts = [self.dataset, f"{self.topology}{self.agents}", share, self.method, self.compressor]
        parts += [f"every{self.ascent_every}"] if self.ascent_every > 1 else []
        parts += [self.schedule] if self.schedule == "exponential" else []
        parts += [] if self.rho is None else [f"rho{self.rho:g}"]
        parts += [f"times{self.times}"] if self.times > 1 else []
        return "-".join(parts)

    def config(self, seed: int = 0) -> Config:
        """Returns the settings of a run at full size."""
        setting = SETTINGS[self.dataset]
        return Config(
            method=self.method,
            topology=self.topology,
            agents=self.agents,
            model=setting.model,
            dataset=self.dataset,
            partition="iid" if self.alpha is None else "dirichlet",
            alpha=1.0 if self.alpha is None else self.alpha,
            batch_size=setting.batch_size,
            epochs=self.times * setting.epochs,
            learning_rate=setting.learning_rate,
            schedule=self.schedule,
            rho=setting.rho if self.rho is None else self.rho,
            ascent_every=self.ascent_every,
            gamma=self.gamma,
            compressor=self.compressor,
            seed=seed,
            keep_every_epochs=setting.epochs // 4,  # the stages at which sharpness is measured
            diagnostics=True,
        )


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A table of the paper, or a figure drawn from runs of its own.

    Attributes:
      title: what is run.
      entries: its figures.
      base: the table that has the uncompressed runs, or those of the plain method, if others have them.
    """

    title: str
    entries: tuple[Entry, ...]
    base: str | None = None

    def bases(self, entries: Sequence[Entry]) -> list[Entry]:
        """Returns what these entries are compared with in another table: the same problems' runs there."""
        problems = {entry.problem for entry in entries}
        found = EXPERIMENTS[self.base].entries if self.base else ()
        return [entry for entry in found if entry.problem in problems]


_CIFAR = (("cifar10", 0.01), ("cifar10", 0.001), ("cifar100", 0.01), ("cifar100", 0.001))
_CIFAR10 = _CIFAR[:2]
_IMAGENETTE = (("imagenette", 0.01), ("imagenette", 0.001))
_IMAGENET = (("imagenet", 0.01), ("imagenet", 0.001))


def _entries(
    text: str, columns: tuple[tuple[str, float | None], ...], drops: str = "", **common
) -> Iterator[Entry]:
    """Yields the figures of a printed table, with the averaging rate that the paper gives for them."""
    drops_of = {line[:3]: [drop.mean for drop in line.figures] for line in printed.lines(drops)}
    for line in printed.lines(text):
        dropped = drops_of.get(line[:3], [None] * len(columns))
        for (dataset, alpha), figure, drop in zip(columns, line.figures, dropped, strict=True):
            options = {**common, "drop": drop}
            options.setdefault("gamma", averaging_rate(line.method, line.compressor, dataset, alpha))
            if dataset == "imagenet":
                options["schedule"] = "imagenet"
            yield Entry(line.agents, dataset, alpha, line.method, line.compressor, printed=figure, **options)


def _levels() -> Iterator[Entry]:
    """Yields the runs with ever fewer bits per number, from full precision down.

    The paper draws this without saying which: the ends are those of its tables (8 bits for QGM; one bit for
    NGM, which loses "about 7 %" by the text, 6.76 by Table 3), those between are ours. So is alpha, by the
    accuracies that the text quotes (79 % to 73 %, Table 1's at 0.001). What a table has is that table's run.
    """
    tabled = {entry.name: entry for table in (_TABLE_1, _TABLE_3, _TWO_BIT) for entry in table}
    ladders = {
        ("qgm", "q_saddle"): ("none", "quantize16", "quantize12", "quantize10", "quantize8"),
        ("ngm", "n_saddle"): (
            "none",
            "quantize8_biased",
            "quantize4_biased",
            "quantize2_biased",
            "sign",
        ),
    }
    for methods, compressors in ladders.items():
        for compressor in compressors:
            for method in methods:
                gamma = averaging_rate(method, compressor, "cifar10", 0.001)
                entry = Entry(10, "cifar10", 0.001, method, compressor, gamma, printed=None)
                yield dataclasses.replace(tabled.get(entry.name, entry), drop=None)


def _errors() -> Iterator[Entry]:
    """Yields the runs whose compression errors are drawn, with the learning rate that falls in every epoch.

    The appendix gives the schedule of 0.981 per epoch to "Figure 2", which is this one. Alpha is that of the
    other figures.
    """
    for method in ("qgm", "q_saddle"):
        yield Entry(
            10, "cifar10", 0.001, method, "quantize8", gamma=1.0, printed=None, schedule="exponential"
        )


def _radii() -> Iterator[Entry]:
    """Yields Q-SADDLe with smaller and larger radii than the paper's, and QGM, which has none.

    The paper has one radius for each dataset, 0.1 here, and does not show how much depends on it.
    """
    base, chosen = (entry for entry in _TABLE_1 if entry.problem == _PROBLEM and entry.compressor == "none")
    yield base
    for rho in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5):
        yield chosen if rho == 0.1 else dataclasses.replace(chosen, rho=rho, printed=None)


def _beyond() -> Iterator[Entry]:
    """Yields runs that compress more than the tables do.

    The text: "For QGM, stochastic quantization diverges beyond 8-10 bits, and Top-k diverges beyond 30 %".
    """
    for compressor, gamma in (
        *((f"quantize{bits}", 1.0) for bits in (6, 4, 2)),
        *((f"top_k{kept:g}", 0.4) for kept in (0.2, 0.1, 0.05)),
    ):
        for method in ("qgm", "q_saddle"):
            yield Entry(10, "cifar10", 0.001, method, compressor, gamma, printed=None)


def _as_many_passes() -> Iterator[Entry]:
    """Yields the methods without SAM for twice the epochs: SAM takes two backward passes in a step, not one.

    The paper compares after equal numbers of epochs. Whether SADDLe's gain is more than that of computing
    twice as much, only such runs can tell.
    """
    for table, method in ((_DPSGD, "dpsgd"), (_TABLE_1, "qgm"), (_TABLE_3, "ngm")):
        for entry in table:
            if entry.method == method and entry.problem == _PROBLEM and entry.compressor == "none":
                yield dataclasses.replace(entry, times=2, printed=None)


_PROBLEM = ("cifar10", "0.001", "ring 10")  # of the figures
_TABLE_1 = tuple(_entries(printed.QGM_CIFAR, _CIFAR))
_TABLE_3 = tuple(_entries(printed.NGM_CIFAR, _CIFAR))
_TWO_BIT = tuple(_entries(printed.TWO_BIT, _CIFAR10, printed.TWO_BIT_DROPS))
_DPSGD = (
    *_entries(printed.DPSGD_IID, (("cifar10", None), ("cifar100", None))),
    *_entries(printed.DPSGD, _CIFAR),
)

EXPERIMENTS = {
    "1": Experiment("QGM and Q-SADDLe on CIFAR-10 and CIFAR-100, 5 to 40 agents, 8 bits", _TABLE_1),
    "2": Experiment(
        "QGM and Q-SADDLe on Imagenette, 10 bits", tuple(_entries(printed.QGM_IMAGENETTE, _IMAGENETTE))
    ),
    "3": Experiment("NGM and N-SADDLe on CIFAR-10 and CIFAR-100, 1-bit sign", _TABLE_3),
    "4": Experiment(
        "NGM and N-SADDLe on Imagenette and ImageNet, 1-bit sign",
        tuple(_entries(printed.NGM_IMAGENET, _IMAGENETTE + _IMAGENET)),
    ),
    "5": Experiment(
        "all on a torus of 40 agents, CIFAR-10",
        tuple(_entries(printed.TORUS, _CIFAR10[1:], topology="torus", gamma=0.5)),
    ),
    "efficient": Experiment(
        "compute-efficient Q-SADDLe: the ascent in every fifth step",
        tuple(_entries(printed.EFFICIENT, _CIFAR10, ascent_every=5)),
        base="1",
    ),
    "compression": Experiment(
        "compression errors, learning rate x 0.981 after every epoch (figure)", tuple(_errors())
    ),
    "levels": Experiment("accuracy against the level of compression (figure)", tuple(_levels())),
    "beyond": Experiment(
        "fewer bits and smaller shares than in any table, where the text says QGM diverges",
        tuple(_beyond()),
        base="1",
    ),
    "rho": Experiment("Q-SADDLe with other radii than the paper chose (figure)", tuple(_radii())),
    "passes": Experiment(
        "methods without SAM for twice the epochs: as many backward passes as SADDLe takes",
        tuple(_as_many_passes()),
    ),
    "dpsgd": Experiment("appendix: D-PSGD and D-SADDLe, with the IID rows", _DPSGD),
    "top-k": Experiment(
        "appendix: QGM and Q-SADDLe with top-30 % sparsification",
        tuple(_entries(printed.TOP_K, _CIFAR10, printed.TOP_K_DROPS, gamma=0.4)),
        base="1",
    ),
    "2-bit": Experiment("appendix: NGM and N-SADDLe with 2-bit quantization", _TWO_BIT, base="3"),
}

# The paper's numbers of the tables that have other names here.
NUMBERED = {"6": "efficient", "7": "dpsgd", "8": "top-k", "9": "2-bit"}


def all_entries() -> tuple[Entry, ...]:
    """Lists the entries of all experiments, each once, in their order."""
    return tuple(dict.fromkeys(entry for table in EXPERIMENTS.values() for entry in table.entries))


def named_table(name: str | None) -> str:
    """Returns a table by its name or by the paper's number of it; others are an ArgumentError."""
    found = NUMBERED.get(name or "", name)
    if found in EXPERIMENTS:
        return found
    given = "nothing" if name is None else repr(name)
    elsewhere = "; `saddle cost` has tables 10 to 14" if name in ("10", "11", "12", "13", "14") else ""
    listed = ", ".join([*EXPERIMENTS, *NUMBERED])
    raise ArgumentError(f"table must be one of {listed}, got {given}{elsewhere}")


def choose_entries(table: str | None, parts: Sequence[str]) -> list[Entry]:
    """Returns the rows of a table whose names hold one of these parts (* and ? match), or all rows."""
    table = named_table(table)
    entries = EXPERIMENTS[table].entries
    if not all(parts):
        raise ArgumentError(f"rows must be parts of names, got an empty one in {','.join(parts)!r}")
    chosen = [e for e in entries if not parts or any(fnmatch.fnmatch(e.name, f"*{part}*") for part in parts)]
    if not chosen:
        raise ArgumentError(
            f"rows must match a row of table {table}, such as {entries[0].name}, got {','.join(parts)}"
        )
    return chosen
