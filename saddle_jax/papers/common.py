"""Published values beside ours, and when they agree: the interface that all papers of this room share.

A paper is a module with a `REPRODUCTION`, of which `saddle reproduce --paper=NAME` makes a table, a JSON
value and a picture:

    def results():
        return [to_digits(f"{n} agents", printed, error_of(n)) for n, printed in PRINTED.items()]

    REPRODUCTION = Reproduction("the error by number of agents", "Somebody et al., Figure 1", results)

SADDLe's tables of training runs, which take hours, are in `tables` and `saddle/`.
"""

import importlib
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from saddle_jax.base.types import Array, Key, LossFn, Params
from saddle_jax.core.method import Method
from saddle_jax.report.plots import new_figure, save

AGREES, DIFFERS = "agrees", "differs"
_STANDARD_ERRORS = 3.0  # by which ours may be off where it is an estimate


class Compared(NamedTuple):
    """One published value or statement beside ours.

    Attributes:
      what: the quantity, and of which method, graph or size.
      published: the number as printed, or a statement in words.
      ours: our number, or what was found in words.
      agrees: whether ours is what is published; None where nothing is.
      error: the standard error of our number; 0 if there is no randomness.
    """

    what: str
    published: str
    ours: float | str
    agrees: bool | None
    error: float = 0.0

    @property
    def verdict(self) -> str:
        """Returns "agrees" or "differs", or "-" where nothing is published."""
        return "-" if self.agrees is None else AGREES if self.agrees else DIFFERS


class Reproduction(NamedTuple):
    """A figure or table of a paper, computed from scratch: no data is downloaded.

    Attributes:
      title: what is compared.
      source: the paper and its figure or table, and the authors' program if the numbers are its output.
      results: computes our values and compares them.
      notes: what to know about the comparison.
    """

    title: str
    source: str
    results: Callable[[], Sequence[Compared]]
    notes: str = ""


def units_off(printed: str, value: float) -> float:
    """Returns |value - printed| in units of the last printed digit.

    >>> from saddle_jax.papers.common import units_off
    >>> round(units_off("7.8e-3", 0.00773), 6)
    0.7
    """
    digits, _, exponent = printed.lower().partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
    return abs(value - float(printed)) / unit


def to_digits(what: str, printed: str, ours: float) -> Compared:
    """Compares a number that must round to the printed one; integers must be equal."""
    return Compared(what, printed, ours, units_off(printed, ours) <= 0.5 + 1e-6)


def within_noise(what: str, printed: str, ours: float, error: float) -> Compared:
    """Compares an estimate, which may be off by three of its standard errors."""
    return Compared(what, printed, ours, abs(ours - float(printed)) <= _STANDARD_ERRORS * error, error)


def trajectory(
    method: Method,
    loss_fn: LossFn,
    params: Params,
    steps: int,
    batch: Callable[[Array, Key], Any],
    measure: Callable[[Params], Any],
    key: Key | None = None,
) -> Any:
    """Runs a method, and returns measure(models [A, ...]) after every step, stacked [T, ...].

    batch(t, key) makes all agents' batches of step t, leaves [A, ...].
    """
    key = jax.random.key(0) if key is None else key

    def step(carry: tuple[Params, Any], t: Array) -> Any:
        draw, own = jax.random.split(jax.random.fold_in(key, t))
        params, state, _ = method.step(loss_fn, carry[0], carry[1], batch(t, draw), own)
        return (params, state), measure(params)

    return jax.lax.scan(step, (params, method.init(params)), jnp.arange(steps))[1]


def paper_of(name: str) -> Reproduction:
    """Returns the reproduction of one of PAPERS."""
    found: Reproduction = importlib.import_module(f"saddle_jax.papers.{name}").REPRODUCTION
    return found


def compared_rows(results: Sequence[Compared]) -> list[list[str]]:
    """Returns the table "published | ours | verdict"."""
    rows = [["what", "published", "ours", "verdict"]]
    return [*rows, *([one.what, one.published, _text(one), one.verdict] for one in results)]


def _text(one: Compared) -> str:
    if isinstance(one.ours, str | int):
        return str(one.ours)
    return f"{one.ours:.4g}" + (f" +- {one.error:.1g}" if one.error else "")


def plot_compared(results: Sequence[Compared], title: str, path: pathlib.Path) -> None:
    """Draws published numbers as bars and ours as dots with three standard errors; statements are written."""
    figure, axes = new_figure(width=8, height=1.2 + 0.24 * len(results))
    values = []
    for row, one in enumerate(reversed(results)):
        colour = {True: "#4063d8", False: "#cb3c33", None: "#808080"}[one.agrees]
        if isinstance(one.ours, str):
            text, place = f"{one.published} | {one.ours}", axes.get_yaxis_transform()
            axes.text(0.01, row, text, color=colour, fontsize=7, va="center", transform=place)
            continue
        values.append(abs(one.ours))
        axes.plot(float(one.published), row, "|", color="#202020", markersize=14)
        axes.errorbar(one.ours, row, xerr=_STANDARD_ERRORS * one.error, fmt="o", color=colour, markersize=4)
    if values and max(values) > 20 * min(values) > 0:
        axes.set_xscale("log")
    axes.set_yticks(range(len(results)), [one.what for one in reversed(results)], fontsize=7)
    axes.set_ylim(-0.7, len(results) - 0.3)
    axes.tick_params(axis="x", which="both", labelsize=7, bottom=bool(values), labelbottom=bool(values))
    axes.set_xlabel("black bar: published, dot: ours; in words: published | ours", fontsize=8)
    axes.set_title(title, fontsize=8, wrap=True)
    axes.spines[["top", "right"]].set_visible(False)
    save(figure, path)
