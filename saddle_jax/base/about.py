"""What is said of a method or an estimator that no program can measure; it stands in the thing's own file."""

import inspect
import sys
from collections.abc import Callable
from typing import Any, NamedTuple


class About(NamedTuple):
    """The constant ABOUT of a file says whom to cite and what is known of the thing in it."""

    citation: str  # such as "Lian et al., NeurIPS 2017"
    exact: bool = False  # whether a constant learning rate reaches the optimum on heterogeneous data
    requires: str = ""  # what a graph must be, or it is refused, beside what `Rule.requires` says of W
    theory: str = ""  # what the theorem asks of a graph besides; others run, and nothing is proved of them


def about(factory: Callable[..., Any]) -> About:
    """Returns ABOUT of the file that a factory stands in; a user's own file need not have one.

    What wraps another factory, as the SADDLe versions do, has a citation of its own; the rest is that of the
    method within.
    """
    own = getattr(sys.modules.get(getattr(factory, "__module__", "")), "ABOUT", None)
    if not isinstance(own, About):
        return About("")
    base = inspect.unwrap(factory)
    return own if base is factory else about(base)._replace(citation=own.citation)
