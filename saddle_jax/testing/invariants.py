"""Invariants: whether each holds for a thing, fails, or does not apply, and what was seen.

An invariant is a function of a trial, and its name is the invariant, word by word. It returns what it saw in
one line, and raises an InvariantError or an InapplicableError.
"""

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import short_line

Invariant = Callable[[Any], str]


class Result(NamedTuple):
    """What one invariant says of one thing."""

    invariant: str  # a sentence, such as "a seed gives one model"
    status: Literal["holds", "fails", "does not apply"]
    seen: str  # in one line; why, if it does not apply


class InvariantError(AssertionError):
    """An invariant does not hold: one line says what was seen; of a whole check a line for each that fails.

    Attributes:
      results: of a whole check, what every invariant says.
    """

    def __init__(self, message: str, results: Iterable[Result] = ()):
        super().__init__(message)
        self.results = list(results)


class InapplicableError(Exception):
    """An invariant says nothing of a thing; the message says in one line why."""


def name_of(invariant: Invariant) -> str:
    """Returns an invariant as a sentence, the words of its function's name."""
    return invariant.__name__.replace("_", " ")


def results_of(
    invariants: Iterable[Invariant], thing: Any, tell: Callable[[str], None] | None = None, gates: int = 0
) -> list[Result]:
    """Tries one invariant after another on a thing.

    Args:
      invariants: are tried in this order.
      thing: what every invariant is given.
      tell: is called with the name of each invariant before it is tried.
      gates: how many of the first ones the others build upon: if one of them fails, the others do not apply.
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
        except Exception as error:  # whatever a user's code raises is what was seen of it
            results.append(Result(name, "fails", f"{type(error).__name__}: {short_line(error)}"))
    return results


def verify(results: list[Result]) -> list[Result]:
    """Returns the results if no invariant fails, and raises an InvariantError with all of them otherwise."""
    failing = [f"{each.invariant}: {each.seen}" for each in results if each.status == "fails"]
    if failing:
        raise InvariantError("\n".join(failing), results)
    return results
