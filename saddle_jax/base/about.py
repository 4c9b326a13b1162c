"""What cannot be measured about a method or gradient estimator: the constant ABOUT in its file."""

import inspect
import sys
from collections.abc import Callable
from typing import Any, NamedTuple


class About(NamedTuple):
    """The citation of a method or gradient estimator, and the assumptions of its convergence theorem."""

    citation: str  # such as "Lian et al., NeurIPS 2017"
    exact: bool = False  # whether a constant learning rate reaches the optimum on heterogeneous data
    requires: str = ""  # conditions on the graph beyond `Rule.requires`; other graphs are refused
    theory: str = ""  # further assumptions of the theorem; other graphs run, without a guarantee


def about(factory: Callable[..., Any]) -> About:
    """Returns the ABOUT of the file that defines a factory; an empty one if a user's file has none.

    A factory that wraps another one, as the SADDLe versions do, has its own citation; the rest is taken from
    the wrapped method.
    """
    own = getattr(sys.modules.get(getattr(factory, "__module__", "")), "ABOUT", None)
    if not isinstance(own, About):
        return About("")
    base = inspect.unwrap(factory)
    return own if base is factory else about(base)._replace(citation=own.citation)
