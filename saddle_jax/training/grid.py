"""What a comparison varies: lists of methods, graphs and so on, every one with every other."""

import dataclasses
import itertools
import re
from collections.abc import Sequence
from typing import Any

from saddle_jax.base import brought, calls
from saddle_jax.base.checks import ArgumentError, spells_whole
from saddle_jax.compression.spelling import check_compressor
from saddle_jax.graphs import GRAPHS, files
from saddle_jax.graphs.spelling import check_topology
from saddle_jax.methods.spelling import parse_method
from saddle_jax.sam.spelling import parse_ascent


@dataclasses.dataclass(frozen=True)
class Grid:
    """A grid holds lists of settings; an empty list leaves the setting to what all runs share."""

    methods: Sequence[str]
    compressors: Sequence[str]
    seeds: Sequence[str]
    ascents: Sequence[str] = ()
    topologies: Sequence[str] = ()
    drops: Sequence[float] = ()

    @property
    def axes(self) -> tuple[str, ...]:
        """The settings that tell cells apart, in the order of the folders' names."""
        return tuple(self._lists)

    def without_drops(self) -> list[dict[str, Any]]:
        """Lists the settings of all combinations, apart from seeds and shares of lost messages."""
        return self._product({name: values for name, values in self._lists.items() if name != "drop"})

    def rows(self) -> list[dict[str, Any]]:
        """Lists what the rows of a table stand for: methods, on every graph."""
        return self._product({k: v for k, v in self._lists.items() if k in ("method", "topology")})

    def columns(self) -> list[dict[str, Any]]:
        """Lists what the columns of a table stand for: all the rest."""
        return self._product({k: v for k, v in self._lists.items() if k not in ("method", "topology")})

    @property
    def _lists(self) -> dict[str, Sequence[Any]]:
        lists: dict[str, Sequence[Any]] = {
            "method": self.methods,
            "compressor": self.compressors,
            "ascent": self.ascents,
            "topology": self.topologies,
            "drop": self.drops,
        }
        return {name: values for name, values in lists.items() if values}

    @staticmethod
    def _product(lists: dict[str, Sequence[Any]]) -> list[dict[str, Any]]:
        return [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]


def parse_grid(
    methods: str, compressors: str, seeds: str, ascents: str = "", topologies: str = "", drops: str = ""
) -> Grid:
    """Reads the lists of a grid, whose elements have commas between them; each is checked and kept once."""
    grid = Grid(
        methods=_once(calls.split(methods)),
        compressors=_once(calls.split(compressors)),
        seeds=_seeds(calls.split(seeds)),
        ascents=_once(calls.split(ascents)),
        topologies=_once(split_graphs(topologies)),
        drops=_drops(calls.split(drops)),
    )
    for name in ("methods", "compressors", "seeds"):
        if not getattr(grid, name):
            raise ArgumentError(f"{name} must list at least one, got nothing")
    for method in grid.methods:
        parse_method(method)
    for compressor in grid.compressors:
        check_compressor(compressor)
    for ascent in grid.ascents:
        parse_ascent(ascent)
    for topology in grid.topologies:
        check_topology(topology)
    return grid


def number(value: float) -> str:
    """Writes a share of lost messages as folders are named: 0.1, 0."""
    return f"{value:.12g}"


def split_graphs(text: str) -> list[str]:
    """Splits a list of graphs, some of which have commas in their own settings: ring,circulant:1,5."""
    graphs: list[str] = []
    for part in calls.split(text):
        name = re.split(r"[+:(]", part)[0]
        begins = name in GRAPHS or brought.is_brought(part) or files.is_file(part)
        if graphs and ":" in graphs[-1] and not begins:
            graphs[-1] += f",{part}"
        else:
            graphs.append(part)
    return graphs


def _once(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def _seeds(texts: Sequence[str]) -> tuple[str, ...]:
    if not all(spells_whole(text) for text in texts):
        raise ArgumentError(f"seeds must be whole numbers, got {','.join(texts)}")
    return _once([str(int(text)) for text in texts])


def _drops(texts: Sequence[str]) -> tuple[float, ...]:
    try:
        drops = [float(text) for text in texts]
    except ValueError:
        drops = [-1.0]
    if not all(0 <= drop < 1 for drop in drops):
        raise ArgumentError(f"drops must be numbers >= 0 and < 1, got {','.join(texts)}")
    return tuple(dict.fromkeys(drops))
