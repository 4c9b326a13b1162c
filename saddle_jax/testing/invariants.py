"""What a law says of a thing: that it holds, that it fails, or that it does not apply, and what was seen."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import short_line

Status = Literal["holds", "fails", "does not apply"]


class Verdict(NamedTuple):
    """A verdict is what one law says of one thing, with one line that says what was seen."""

    law: str  # a sentence, such as "two runs with one key are the same"
    status: Status
    seen: str  # what was seen, or why the law does not apply


class LawError(Exception):
    """A law does not hold; the message says in one line what was seen."""


class InapplicableError(Exception):
    """A law says nothing of a thing; the message says in one line why."""


# A law returns what it saw, and raises LawError or InapplicableError. Its name is the law, word by word.
Law = Callable[[Any], str]


def name_of(law: Law) -> str:
    """Returns a law as a sentence, the words of its function's name."""
    return law.__name__.replace("_", " ")


def judge(
    laws: Iterable[Law], thing: Any, tell: Callable[[str], None] | None = None, gates: int = 0
) -> list[Verdict]:
    """Returns the verdict of each law on a thing.

    Args:
      laws: are tried in this order.
      thing: what every law is given.
      tell: is called with each law before it is tried.
      gates: how many of the first laws the others build upon: if one of them fails, the others do not apply.
    """
    verdicts: list[Verdict] = []
    for law in laws:
        broken = [each.law for each in verdicts[:gates] if each.status == "fails"]
        if broken:
            verdicts.append(Verdict(name_of(law), "does not apply", f"{broken[0]}: that must hold first"))
            continue
        if tell is not None:
            tell(name_of(law))
        verdicts.append(_verdict(law, thing))
    return verdicts


def failures(verdicts: Sequence[Verdict]) -> list[str]:
    """Returns one line for each law that fails, so that a test can assert that there is none."""
    return [f"{each.law}: {each.seen}" for each in verdicts if each.status == "fails"]


def _verdict(law: Law, thing: Any) -> Verdict:
    try:
        return Verdict(name_of(law), "holds", law(thing))
    except LawError as error:
        return Verdict(name_of(law), "fails", str(error))
    except InapplicableError as error:
        return Verdict(name_of(law), "does not apply", str(error))
    except ArgumentError as error:
        return Verdict(name_of(law), "fails", short_line(error))
    except Exception as error:  # whatever a brought thing raises is what was seen of it
        return Verdict(name_of(law), "fails", f"{type(error).__name__}: {short_line(error)}")
