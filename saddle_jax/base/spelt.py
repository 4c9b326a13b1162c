"""What settings take: a name of a table, or a thing that is brought, with or without options.

Nothing is known of what is not ours before it is imported, and to read a setting imports nothing. So its
options are checked when it is made, and not before.
"""

from collections.abc import Callable, Collection
from types import UnionType
from typing import Any, TypeVar

from saddle_jax.base import brought, calls, checks
from saddle_jax.base.tables import Table

_T = TypeVar("_T", bound=Callable[..., Any])


def parse(what: str, text: str, table: Table[Any], also: Collection[str] = ()) -> tuple[str, dict[str, Any]]:
    """Returns the name and the options of a spelt thing: in a table, one of `also`, or brought."""
    if brought.is_brought(text):
        spelt = brought.parse(what, text)
        return spelt.head, spelt.options
    name, options = calls.parse(what, text)
    checks.known(what, name, [*also, *table])
    return name, options


def is_ours(name: str, table: Table[Any]) -> bool:
    """Tells whether a thing is of this package, so that its options are known without importing more."""
    return name in table.ours


def factory(what: str, name: str, table: Table[_T]) -> _T:
    """Returns the factory of a name, as `parse` gives it; what is not ours is imported."""
    if not brought.is_brought(name):
        return table[name]
    found: Any = brought.factory(what, name)
    thing: _T = found
    return thing


def make(
    what: str,
    text: str,
    table: Table[Any],
    kind: type | tuple[type, ...] | UnionType,
    *arguments: Any,
    **offered: Any,
) -> Any:
    """Makes a spelt thing that is not ours, and checks that it is of a kind; see `brought.make`."""
    if brought.is_brought(text):
        return brought.make(what, text, kind, *arguments, **offered)
    name, options = parse(what, text, table)
    return brought.call(what, name, table[name], options, kind, *arguments, **offered)
