"""Tables of names have one line for each thing, which says in which file it is.

    METHODS = load({"qgm": "saddle_jax.methods.qgm:qgm", ...}).and_installed("saddle_jax.methods")

So whoever adds a thing writes its file and one line. The places are written as packages write their entry
points, "module:name". Packages that are installed add names of their own by entry points of such a group:

    [project.entry-points."saddle_jax.methods"]
    theirs = "their_package.methods:theirs"

They are listed as ours are, and imported when they are used.
"""

import functools
import importlib
import importlib.metadata
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, TypeVar

from saddle_jax.base import brought

_T = TypeVar("_T", bound=Callable[..., Any])


class Table(MutableMapping[str, _T]):
    """A table maps names to what they stand for: ours, and what installed packages add, once it is used."""

    def __init__(self, ours: Mapping[str, _T], group: str | None = None):
        self._ours = dict(ours)
        self._group = group

    @property
    def ours(self) -> tuple[str, ...]:
        """The names without those of installed packages."""
        return tuple(self._ours)

    @property
    def installed(self) -> tuple[str, ...]:
        """The names that installed packages add."""
        return tuple(self._installed)

    def and_installed(self, group: str) -> "Table[_T]":
        """Returns the table with the names that installed packages register in a group of entry points."""
        return Table(self._ours, group)

    def package_of(self, name: str) -> str:
        """Names the package that registers a name, with its version."""
        found = self._installed[name].dist
        return f"{found.name} {found.version}" if found else "an unknown package"

    def __getitem__(self, name: str) -> _T:
        if name in self._ours:
            return self._ours[name]
        entry = self._installed[name]
        with brought.failing_as(f"{name} of {self.package_of(name)} cannot be imported"):
            thing: _T = entry.load()
        return thing

    def __contains__(self, name: object) -> bool:
        return name in self._ours or name in self._installed

    def __iter__(self) -> Iterator[str]:
        yield from self._ours
        yield from self._installed

    def __len__(self) -> int:
        return len(self._ours) + len(self._installed)

    def __setitem__(self, name: str, thing: _T) -> None:
        self._ours[name] = thing

    def __delitem__(self, name: str) -> None:
        del self._ours[name]

    @functools.cached_property
    def _installed(self) -> dict[str, importlib.metadata.EntryPoint]:
        """The entry points of the group, without those that ours or an earlier one goes before."""
        found: dict[str, importlib.metadata.EntryPoint] = {}
        for entry in importlib.metadata.entry_points(group=self._group) if self._group else ():
            reason = "is no name" if not entry.name.isidentifier() else ""
            if entry.name in (*self._ours, *found):
                reason = "is taken"
            if reason:
                package = entry.dist.name if entry.dist else entry.value
                warnings.warn(
                    f"{self._group}: {entry.name!r} of the package {package} is ignored: it {reason}",
                    stacklevel=2,
                )
            else:
                found[entry.name] = entry
        return found


def load(places: Mapping[str, str]) -> Table[Any]:
    """Imports what stands at the places "module:name" of a table, and returns it under the table's names."""
    return Table({name: _find(place) for name, place in places.items()})


def options(factory: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Returns the parameters of a factory by name, in their order."""
    return brought.options_of(factory)


def _find(place: str) -> Callable[..., Any]:
    module, _, name = place.partition(":")
    thing: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return thing
