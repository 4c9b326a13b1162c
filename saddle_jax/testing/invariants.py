"""Invariants: each holds, fails, or does not apply to an object under test.

An invariant is a function of a trial whose name states the invariant. It returns its observation in one line,
or raises an InvariantError or an InapplicableError.
"""

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import short_line

Invariant = Callable[[Any], str]


class Result(NamedTuple):
    """The result of one invariant."""

    invariant: str  # a sentence, such as "a seed gives one model"
    status: Literal["holds", "fails", "does not apply"]
    seen: str  # the observation, or why the invariant does not apply, in one line


class InvariantError(AssertionError):
    """One or several invariants fail, with one line for each.

    Attributes:
      results: the results of all invariants of a check.
    """

    def __init__(self, message: str, results: Iterable[Result] = ()):
        super().__init__(message)
        self.results = list(results)


class InapplicableError(Exception):
    """An invariant does not apply; the message says why in one line."""


def name_of(invariant: Invariant) -> str:
    """Returns an invariant as a sentence, from its function's name."""
    return invariant.__name__.replace("_", " ")


def results_of(
    invariants: Iterable[Invariant], thing: Any, tell: Callable[[str], None] | None = None, gates: int = 0
) -> list[Result]:
    """Checks invariants one after another.

    Args:
      invariants: the invariants in order.
      thing: the argument of every invariant.
      tell: called with the name of each invariant before it is checked.
      gates: the number of first invariants that are prerequisites: if one fails, the others do not apply.
    """
    results: list[Result] = []
    for invariant in invariants:
        name = name_of(invariant)
        broken = [each.invariant for each in results[:gates] if each.status == "fails"]
        if broken:
            results.append(Result(name, "does not apply", f"{broken[0]}: that must hold first"))
            continue
        if tell is not None:
            tell(name)
        try:
            results.append(Result(name, "holds", invariant(thing)))
        except InapplicableError as error:
            results.append(Result(name, "does not apply", str(error)))
        except InvariantError as error:
            results.append(Result(name, "fails", str(error)))
        except ArgumentError as error:
            results.append(Result(name, "fails", short_line(error)))
        except Exception as error:  # any error of the user's code is a failure
            results.append(Result(name, "fails", f"{type(error).__name__}: {short_line(error)}"))
    return results


def verify(results: list[Result]) -> list[Result]:
    """Returns the results if no invariant fails, or raises an InvariantError with all of them."""
    failing = [f"{each.invariant}: {each.seen}" for each in results if each.status == "fails"]
    if failing:
        raise InvariantError("\n".join(failing), results)
    return results
