"""Papers whose results are tables of training runs: printed accuracies, the settings behind them, and claims.

The tables are text, which is parsed into entries with settings. With made-up results:

    _SETTINGS = {"cifar10": Hyperparameters(0.1, 0.0, 200, 32, "resnet20", 50_000)}
    _PATH = '''
    16  dpsgd      none  66.5±1.2  75.1±0.4      (agents, method, compressor, then one figure per column)
    16  relay_sgd  none  86.5±0.5  89.1±0.3
    '''
    _COLUMNS = (("cifar10", 0.01), ("cifar10", 0.1))
    _ENTRIES = tuple(entries_of(_PATH, _COLUMNS, _SETTINGS, topology="path"))
    PAPER = Paper({"1": Experiment("a path of 16 agents", _ENTRIES)}, bases={"relay_sgd": "dpsgd"})
    CLAIMS = (Claim("Table 1", "13 points better", ("13",), PAPER.gains("relay_sgd", "dpsgd", "1"), mean),)

`runs` plans the runs of such entries at a scale, and `evidence` compares their results with the paper.
"""

import dataclasses
import fnmatch
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.registry import Spec, parse, split
from saddle_jax.compression import COMPRESSORS
from saddle_jax.methods import METHODS
from saddle_jax.papers.common import units_off
from saddle_jax.runs.run_name import safe
from saddle_jax.settings.settings import Settings
from saddle_jax.settings.sweep import in_settings

# ---- printed results ----


class Printed(NamedTuple):
    """One accuracy that a paper prints, in percent."""

    mean: float
    std: float | None = None  # None: not printed
    star: bool = False  # one of its runs diverged

    def __str__(self) -> str:
        spread = "" if self.std is None else f" +- {self.std:.2f}"
        return f"{self.mean:.2f}{spread}{'*' if self.star else ''}"


def lines_of(text: str) -> dict[tuple[int, str, str], list[Printed]]:
    """Parses a table: agents, method and compressor, then results such as 88.44±0.39, 49.30 or 52.23*."""

    def figure(text: str) -> Printed:
        mean, _, std = text.rstrip("*").partition("±")
        return Printed(float(mean), float(std) if std else None, text.endswith("*"))

    rows = (split(line, " ") for line in text.strip().splitlines())
    return {(int(row[0]), row[1], row[2]): [figure(cell) for cell in row[3:]] for row in rows}


@dataclasses.dataclass(frozen=True)
class Hyperparameters:
    """A paper's hyper-parameters on one dataset."""

    learning_rate: float
    rho: float  # SAM's radius
    epochs: int
    batch_size: int  # per agent
    model: str
    samples: int  # for training
    schedule: str = "step"

    def steps(self, agents: int) -> int:
        """Returns T: epochs times the batches per agent, including a partial last one."""
        return self.epochs * -(-(self.samples // agents) // self.batch_size)


# ---- experiments ----


@dataclasses.dataclass(frozen=True)
class Entry:
    """One result of a table, from runs that differ only in the seed."""

    agents: int
    dataset: str
    alpha: float | None  # of the Dirichlet partition; None: IID
    method: str
    compressor: str
    gamma: float
    setting: Hyperparameters = dataclasses.field(repr=False)
    printed: Printed | None  # None: only drawn, without a number
    # The Drop column in percentage points; the same entry may be in another table without one.
    drop: float | None = dataclasses.field(default=None, compare=False)
    topology: str = "ring"
    ascent_every: int = 1
    schedule: str = "step"
    rho: float | None = None  # None: that of the dataset
    times: int = 1  # multiple of the usual epochs, with the schedule stretched

    @property
    def problem(self) -> tuple[str, str, str]:
        """Dataset, alpha and graph as tables name them; methods are compared on the same problem."""
        alpha = "iid" if self.alpha is None else f"{self.alpha:g}"
        return self.dataset, alpha, f"{self.topology} {self.agents}"

    @property
    def variant(self) -> str:
        """The method as tables name it, such as "q_saddle every 5" or "q_saddle rho 0.2"."""
        return " ".join([self.method, *self._differences("every {}", "rho {:g}", "{} times as long")])

    @property
    def name(self) -> str:
        """The unique name, also of its folder: cifar10-ring10-alpha0.01-q_saddle-quantize8."""
        share = "iid" if self.alpha is None else f"alpha{self.alpha:g}"
        parts = [self.dataset, f"{self.topology}{self.agents}", share, self.method, short(self.compressor)]
        return "-".join([*parts, *self._differences("every{}", "rho{:g}", "times{}")])

    def _differences(self, every: str, rho: str, times: str) -> list[str]:
        """Lists how the entry differs from others of its method and compressor."""
        parts = [every.format(self.ascent_every)] if self.ascent_every > 1 else []
        parts += [self.schedule] if self.schedule != self.setting.schedule else []
        parts += [] if self.rho is None else [rho.format(self.rho)]
        return [*parts, *([times.format(self.times)] if self.times > 1 else [])]

    def config(self, seed: int = 0) -> Settings:
        """Returns the settings of a run at the paper's scale."""
        setting = self.setting
        options: dict[str, Any] = {"rho": setting.rho if self.rho is None else self.rho}
        options |= {"ascent_every": self.ascent_every} if self.ascent_every > 1 else {}
        options |= {"gamma": self.gamma} if self.gamma != 1 else {}
        options |= {"compressor": self.compressor} if self.compressor != "none" else {}
        return Settings(
            method=with_options(self.method, options),
            topology=self.topology,
            agents=self.agents,
            model=setting.model,
            dataset=self.dataset,
            partition="iid" if self.alpha is None else f"dirichlet({self.alpha})",
            batch_size=setting.batch_size,
            epochs=self.times * setting.epochs,
            learning_rate=setting.learning_rate,
            schedule=self.schedule,
            seed=seed,
            keep_every_epochs=setting.epochs // 4,  # stages for measuring sharpness
            diagnostics=True,
        )


def with_options(method: str, options: Mapping[str, Any]) -> str:
    """Returns the text of a method with those of the options that it has."""
    has = METHODS.options(method)
    named = {f"method.{name}": value for name, value in options.items() if name in has}
    return str(in_settings({"method": method}, named).get("method", method))


def compressor_of(config: Settings) -> str:
    """Returns the compressor of a run's method, whether the method or its gossip names it."""
    given = METHODS.given(config.method)
    gossip = given.get("gossip")
    return str(gossip.args[0] if isinstance(gossip, Spec) else given.get("compressor") or "none")


def short(compressor: str) -> str:
    """Formats a compressor for folder names: its argument follows its name without brackets."""
    spec = parse("compressor", compressor)
    switches = [f"_{name}" if value is True else f"_{name}{value}" for name, value in spec.kwargs]
    return "".join([spec.name, *map(str, spec.args), *switches])


Columns = tuple[tuple[str, float | None], ...]  # dataset and alpha


def entries_of(
    text: str,
    columns: Columns,
    settings: Mapping[str, Hyperparameters],
    gamma: float | Callable[[str, str, str, float | None], float] = 1.0,
    drops: str = "",
    **common: Any,
) -> Iterator[Entry]:
    """Yields the entries of a printed table.

    Args:
      text: the table, see `lines_of`.
      columns: dataset and alpha of each result of a line.
      settings: by dataset.
      gamma: the averaging rate, or a function of method, compressor, dataset and alpha.
      drops: the Drop columns of the table, as separate lines.
      common: further fields of all entries.
    """
    drops_of = lines_of(drops)
    for (agents, method, compressor), figures in lines_of(text).items():
        dropped = drops_of.get((agents, method, compressor), [])
        for place, ((dataset, alpha), figure) in enumerate(zip(columns, figures, strict=True)):
            setting = settings[dataset]
            yield Entry(
                agents,
                dataset,
                alpha,
                method,
                compressor,
                gamma(method, compressor, dataset, alpha) if callable(gamma) else gamma,
                setting,
                figure,
                drop=dropped[place].mean if dropped else None,
                schedule=setting.schedule,
                **common,
            )


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A table of a paper, or a figure with runs of its own.

    Attributes:
      title: what is run.
      entries: its results.
      base: the table with the uncompressed runs, or those of the plain method, if it is another one.
    """

    title: str
    entries: tuple[Entry, ...]
    base: str | None = None


class Contrast(NamedTuple):
    """A difference between entries on one problem.

    Attributes:
      one: the entry that it is about.
      other: the entry to subtract; None for `one` itself.
      bases: for a difference of differences, the baselines of `one` and `other`.
    """

    one: Entry
    other: Entry | None = None
    bases: tuple[Entry, ...] = ()

    @property
    def entries(self) -> list[Entry]:
        """Returns both entries, then the bases."""
        return [self.one, *([self.other] if self.other else []), *self.bases]

    def of(self, values: Mapping[Entry, float]) -> float | None:
        """Returns the difference of the entries' values; None if an entry has none."""
        if not all(entry in values for entry in self.entries):
            return None
        signs = zip((1, -1, -1, 1), self.entries, strict=False)
        return math.fsum(sign * values[entry] for sign, entry in signs)


@dataclasses.dataclass(frozen=True, eq=False)
class Paper:
    """A paper's experiments by name, and comparisons between entries.

    Attributes:
      tables: the experiments.
      numbers: names of tables by their number in the paper, if these differ.
      bases: for each proposed method the one that it extends.
      elsewhere: hints for tables that are not experiments, by number.
    """

    tables: Mapping[str, Experiment]
    bases: Mapping[str, str]
    numbers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    elsewhere: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def entries(self) -> tuple[Entry, ...]:
        """Lists the entries of all experiments in order, without duplicates."""
        return tuple(dict.fromkeys(entry for table in self.tables.values() for entry in table.entries))

    def table_name(self, name: str | None) -> str:
        """Returns the name of a table from its name or its number in the paper."""
        table = self.numbers.get(name or "", name or "")
        if table in self.tables:
            return table
        got = "nothing" if name is None else repr(name)
        hint = f"; {self.elsewhere[table]}" if table in self.elsewhere else ""
        listed = ", ".join([*self.tables, *self.numbers])
        raise ArgumentError(f"table must be one of {listed}, got {got}{hint}")

    def choose(self, table: str | None, parts: Sequence[str]) -> list[Entry]:
        """Returns the rows of a table whose names contain one of these patterns (* and ? match), or all."""
        table = self.table_name(table)
        entries = self.tables[table].entries
        if not all(parts):
            raise ArgumentError(f"rows must be parts of names, got an empty one in {','.join(parts)!r}")
        chosen = [e for e in entries if not parts or any(fnmatch.fnmatch(e.name, f"*{p}*") for p in parts)]
        if not chosen:
            raise ArgumentError(
                f"rows must match a row of table {table}, such as {entries[0].name}, got {','.join(parts)}"
            )
        return chosen

    def compared_with(self, table: str, entries: Sequence[Entry]) -> list[Entry]:
        """Returns the entries of a table's base on the same problems as these entries."""
        base, problems = self.tables[table].base, {entry.problem for entry in entries}
        return [entry for entry in self.tables[base].entries if entry.problem in problems] if base else []

    def variant(self, variant: str, default: str) -> Settings:
        """Returns the settings of one run by its name in configs/: [SCALE/][ROW].

        Args:
          variant: "", a scale, a row's name, or scale and row: "cpu/ROW".
          default: the row if the variant names none.
        """
        scale, _, row = variant.partition("/")
        if scale not in SCALES:
            scale, row = "full", variant
        entries = {entry.name: entry for entry in self.entries()}
        if (row or default) not in entries:
            hint = checks.suggestion(row, [*SCALES, *entries])
            raise ArgumentError(
                f"{hint}variant must be [SCALE/][ROW], a scale of {', '.join(SCALES)} and a row that "
                f"`saddle reproduce --table=TABLE --list` names, got {variant!r}"
            )
        entry = entries[row or default]
        return SCALES[scale].apply(entry.config(), entry.times)

    # ---- pairs of entries; names of several tables are separated by spaces ----

    def rows(self, tables: str, method: str, dataset: str = "*") -> list[Entry]:
        """Lists a method's entries in tables, for one dataset or all."""
        every = (entry for table in tables.split() for entry in self.tables[table].entries)
        return [entry for entry in every if entry.method == method and dataset in ("*", entry.dataset)]

    def gains(
        self,
        one: str,
        other: str,
        tables: str,
        dataset: str = "*",
        *,
        compressed: bool = False,
        base: str | None = None,
    ) -> tuple[Contrast, ...]:
        """Compares a method's entries with another's, from table `base` if given, compressed or not."""
        return tuple(
            Contrast(entry, plain)
            for entry in self.rows(tables, one, dataset)
            if (entry.compressor != "none") == compressed
            for plain in self.rows(base or tables, other, dataset)
            if (plain.problem, plain.compressor) == (entry.problem, entry.compressor)
        )

    def drops(self, method: str, tables: str, dataset: str = "*") -> tuple[Contrast, ...]:
        """Subtracts from uncompressed entries, of the table or its base, the compressed ones."""
        return tuple(
            Contrast(full, entry)
            for table in tables.split()
            for entry in self.rows(table, method, dataset)
            if entry.compressor != "none"
            for full in self.rows(self.tables[table].base or table, method, dataset)
            if full.compressor == "none" and full.problem == entry.problem
        )


# ---- claims and statements ----

Numbers = tuple[float, ...]


class Claim(NamedTuple):
    """A claim of the text about a number or a range.

    Attributes:
      place: the table or section that it is about.
      text: a summary.
      stated: the number as printed, or both ends of a range.
      contrasts: the differences that it summarises.
      reduce: computes the number from the differences.
      least: a lower bound of the number: a negative drop is printed as 0.
    """

    place: str
    text: str
    stated: tuple[str, ...]
    contrasts: Sequence[Contrast]
    reduce: Callable[[Sequence[float]], Numbers]
    least: float = -math.inf

    def value(self, means: Mapping[Entry, float]) -> tuple[Numbers | None, int]:
        """Computes the number from the means of entries, over the contrasts whose entries have one.

        Returns the number, or None without such contrasts, and the number of contrasts.
        """
        values = [value for contrast in self.contrasts if (value := contrast.of(means)) is not None]
        return (self.reduce(values) if values else None), len(values)

    def printed(self) -> Numbers:
        """Computes the number from the printed tables."""
        value, _ = self.value(printed_means(entry for each in self.contrasts for entry in each.entries))
        assert value is not None
        return tuple(max(self.least, number) for number in value)

    def verdict(self) -> str:
        """Returns whether the tables round to the stated number: yes, nearly (within one unit), or no."""
        worst = max(map(units_off, self.stated, self.printed()))
        if worst <= 0.5 + 1e-6:
            return "yes"
        return "nearly" if worst <= 1.0 else "no"

    def written(self, value: Numbers | None) -> str:
        """Formats a number with one digit more than the text, at least two; a range as "a to b"."""
        if value is None:
            return "-"
        digits = max(2, *(1 + len(stated.partition(".")[2]) for stated in self.stated))
        return " to ".join(f"{one:.{digits}f}" for one in value)


def printed_means(entries: Iterable[Entry]) -> dict[Entry, float]:
    """Returns the printed means of those entries that have one."""
    return {entry: entry.printed.mean for entry in entries if entry.printed}


def mean(values: Sequence[float]) -> Numbers:
    """Returns the mean of all values, as a single number."""
    return (statistics.fmean(values),)


def ends(values: Sequence[float]) -> Numbers:
    """Returns the smallest and the largest value."""
    return min(values), max(values)


# A quantity of a run: the final accuracy in percent, or that of its best evaluation; the largest eigenvalue
# of the Hessian at the end; the number of backward passes; or the mean of a diagnostic over the logged steps.
Quantity = Literal[
    "accuracy",
    "best_accuracy",
    "lambda_max",
    "passes",
    "compression_error",
    "compression_input",
    "gradient_compression_error",
    "gradient_norm",
]


class Statement(NamedTuple):
    """A statement about which of two quantities is larger.

    Attributes:
      name: a short name for tables and pictures.
      text: a summary; in brackets if it is not from the paper.
      quantity: the quantity that is compared seed by seed.
      sign: 1 if `one` is stated to be above `other`, -1 if below.
      contrasts: the comparisons that can test it.
    """

    name: str
    text: str
    quantity: Quantity
    sign: Literal[1, -1]
    contrasts: tuple[Contrast, ...]

    @property
    def is_relative(self) -> bool:
        """Whether differences are relative, in percent; those of accuracies are in percentage points."""
        return self.quantity not in ("accuracy", "best_accuracy")


# ---- other interpretations of what a paper leaves open ----

# An interpretation that does not apply leaves a run as it is, such as an order of compressed gossip without
# compression. Such a run equals the default one and is not repeated.


def interpreted_as(config: Settings, interpretations: Mapping[str, Any]) -> Settings:
    """Returns a run's settings with the interpretations that apply to it.

    Args:
      config: the settings of an entry.
      interpretations: values by name of INTERPRETATIONS.
    """
    changes = {name: value for name, value in interpretations.items() if _has(config, name)}
    norm = changes.pop("norm", config.norm)
    method, compressor = METHODS.parse(config.method), compressor_of(config)
    if (biased := changes.pop("biased", None)) is not None:
        plain = COMPRESSORS.parse(compressor)._replace(kwargs=())
        compressor = str(plain.with_option("biased", True) if biased else plain)
        changes["compressor"] = compressor
    if changes.pop("order", "choco") == "paper":
        gamma = dict(method.kwargs).get("gamma", 1.0)
        rest = tuple(pair for pair in method.kwargs if pair[0] not in ("gamma", "compressor"))
        method = method._replace(kwargs=rest)
        changes["gossip"] = f"choco({compressor}, gamma={gamma!r}, order=paper)"
        changes.pop("compressor", None)
    return dataclasses.replace(config, norm=norm, method=with_options(str(method), changes))


def _has(config: Settings, name: str) -> bool:
    compressor = compressor_of(config)
    if name == "biased":
        return compressor.startswith("quantize")
    if name == "order":
        return compressor != "none" and "gossip" in METHODS.options(config.method)
    if name == "ascent_reuse":
        return "ascent_every" in METHODS.given(config.method)
    return name == "norm" or name in METHODS.options(config.method)


def interpretation_suffix(config: Settings, default: Settings) -> str:
    """Returns the suffix of a run's name for its interpretation: "-order=paper"; "" for the default."""
    read, usual = _read(config), _read(default)
    changed = {name: value for name, value in read.items() if value != usual[name]}
    return "".join(f"-{safe(text)}" for text in written(changed))


def _read(config: Settings) -> dict[str, Any]:
    """Returns how a run interprets the paper; None where that has no meaning."""
    given = METHODS.given(config.method)
    options = {name: given.get(name) for name in ("nesterov", "self_gradient", "ascent_reuse")}
    order = "paper" if "gossip" in given else None
    return {"compressor": short(compressor_of(config)), "order": order, **options, "norm": config.norm}


def written(interpretations: Mapping[str, Any]) -> list[str]:
    """Formats interpretations for people and folder names: order=paper, nesterov=false."""
    return [
        f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in interpretations.items()
    ]


# ---- scales ----


@dataclasses.dataclass(frozen=True)
class Scale:
    """A scale of the paper's experiments: the same method, graph, alpha and hyper-parameters, with less work.

    Attributes:
      name: the value of --scale.
      meaning: what is smaller than in the paper; every output of `saddle reproduce` states it.
      changes: the settings that differ from the paper's.
      cross_gradient_changes: further changes for methods with cross-gradients (NGM, N-SADDLe).
      batches_per_agent: number of batches per agent in the training subset; 0 leaves the subset alone.
      images: number of images for measuring sharpness and landscapes.
      is_comparable: whether accuracies are comparable with the paper's.
    """

    name: str
    meaning: str
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    cross_gradient_changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    batches_per_agent: int = 0
    images: int = 1024
    is_comparable: bool = True

    def apply(self, config: Settings, times: int = 1) -> Settings:
        """Returns the settings of a run at this scale, for `times` as many epochs."""
        changes = dict(self.changes)
        if "self_gradient" in METHODS.options(config.method):
            changes |= self.cross_gradient_changes
        if self.batches_per_agent:
            batch_size = changes.get("batch_size", config.batch_size)
            changes["subset"] = self.batches_per_agent * batch_size * config.agents
        if "epochs" in changes:
            changes["epochs"] *= times
        return dataclasses.replace(config, **changes)


_CPU_IMAGES, _CPU_EPOCHS = 5_000, 10
# Half as many with cross-gradients, since on a ring each step computes three times the gradients.
_CPU_CROSS_EPOCHS = 5

_LONG_EPOCHS = 40
_STUDY_IMAGES, _STUDY_EPOCHS = 5_000, 200

SCALES = {
    "full": Scale("full", "as the paper has it"),
    # The paper's model on all images, for as many epochs as two cores can run in an hour (QGM, Q-SADDLe).
    "long": Scale(
        "long",
        f"as the paper has it, but {_LONG_EPOCHS} epochs, with the drops of the learning rate at the same "
        "shares of them",
        changes={"epochs": _LONG_EPOCHS, "eval_every_epochs": 1},
    ),
    "cpu": Scale(
        "cpu",
        f"resnet8 instead of the paper's model, a random subset of {_CPU_IMAGES:,} training images, "
        f"{_CPU_EPOCHS} epochs ({_CPU_CROSS_EPOCHS} for NGM and N-SADDLe); method, graph, alpha and "
        "hyper-parameters as the paper has them. Accuracies are far below the paper's; compare methods.",
        changes={
            "model": "resnet8",
            "subset": _CPU_IMAGES,
            "epochs": _CPU_EPOCHS,
            "keep_every_epochs": _CPU_EPOCHS // 4,
            "eval_every_epochs": 2,
            "eval_agents": "never",
        },
        cross_gradient_changes={"epochs": _CPU_CROSS_EPOCHS, "keep_every_epochs": _CPU_CROSS_EPOCHS // 4},
        images=256,
    ),
    # Small enough for three seeds of some thirty cells in a few hours on two cores, and long enough: a step
    # of ten agents takes 1/30 of ResNet-20's time, so that all 200 epochs can be run, with 1,600 steps before
    # the schedule's first drop and 800 after each of the two.
    "study": Scale(
        "study",
        f"strided_cnn, a network of three convolutions, instead of the paper's model, and a random subset of "
        f"{_STUDY_IMAGES:,} training images; {_STUDY_EPOCHS} epochs, method, graph, alpha and "
        "hyper-parameters as the paper has them. Accuracies are below the paper's; compare methods.",
        changes={
            "model": "strided_cnn",
            "subset": _STUDY_IMAGES,
            "epochs": _STUDY_EPOCHS,
            "keep_every_epochs": _STUDY_EPOCHS // 4,
            "eval_every_epochs": 10,
            "eval_agents": "never",
        },
        images=1024,
    ),
    "smoke": Scale(
        "smoke",
        "two steps of logistic regression on made-up clusters: shows that it runs, and nothing else",
        changes={
            "dataset": "synthetic",
            "model": "logistic",
            "batch_size": 8,
            "epochs": 1,
            "keep_every_epochs": 0,
            "eval_every_epochs": 1,
            "eval_agents": "never",
        },
        batches_per_agent=2,  # with fewer the Dirichlet partition may never succeed
        images=64,
        is_comparable=False,
    ),
}
