"""Colours and lines that pair a method with its SADDLe version: the same hue, another shade, another dash."""

import colorsys
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from saddle_jax.report.gathered import Run
from saddle_jax.report.plots import load_matplotlib
from saddle_jax.settings.config import IRRELEVANT

# Methods that are another one with SAM's gradients.
PLAIN = {"d_saddle": "dpsgd", "q_saddle": "qgm", "n_saddle": "ngm", "dfedsam": "dfedavgm"}
# The settings of an ascent: what differs in these alone is a pair.
_OF_ASCENT = ("method", "ascent", "rho", "ascent_every", "ascent_reuse")
DASHES = ("-", "--", ":", "-.")
# How much of a hue there is in each shade; the rest is white. The page's script has the same.
_SHADES = (1.0, 0.58, 0.78, 0.4)


class Look(NamedTuple):
    """How the line of a group of runs looks: shade 0 is a full colour and a solid line."""

    hue: int
    shade: int = 0


def looks(groups: Sequence[Sequence[Run]]) -> list[Look]:
    """Returns the look of each group; groups that differ in the ascent alone share the hue."""
    families = [_family(group[0]) for group in groups]
    hues = list(dict.fromkeys(families))
    if any(families.count(family) > len(DASHES) for family in hues):
        return [Look(number) for number in range(len(groups))]
    ranked = sorted(range(len(groups)), key=lambda number: not _is_sharp(groups[number][0]))
    shades: dict[int, int] = {}
    for number in ranked:
        shades[number] = sum(families[other] == families[number] for other in shades)
    return [Look(hues.index(family), shades[number]) for number, family in enumerate(families)]


def in_matplotlib(groups: Sequence[Sequence[Run]]) -> list[tuple[Any, str]]:
    """Returns colour and line style of each group, as matplotlib has them."""
    found = looks(groups)
    count = 1 + max((look.hue for look in found), default=0)
    return [(shaded(colour_of(look.hue, count), look.shade), DASHES[look.shade]) for look in found]


def shaded(colour: Any, shade: int) -> Any:
    """Returns a colour with as much white as its shade has."""
    if not shade:
        return colour
    load_matplotlib()
    from matplotlib.colors import to_rgb

    return tuple(1 - _SHADES[shade] * (1 - part) for part in to_rgb(colour))


def colour_of(number: int, count: int) -> Any:
    """Returns the colour of a line: one of matplotlib's ten, or, of more lines, a hue of its own.

    Neighbours on the circle of hues differ in lightness, too.
    """
    if count <= 10:
        return f"C{number}"
    return colorsys.hls_to_rgb(number / count, (0.35, 0.55, 0.7)[number % 3], 0.75)


def settings_without(run: Run, *names: str) -> str:
    """Returns a run's settings as text, without some and without those that cannot change a number."""
    left_out = {"seed", *IRRELEVANT, *names}
    settings = {name: value for name, value in run.config.to_json().items() if name not in left_out}
    # What settings do not tell of a run that is made of objects, its name and its fingerprint do.
    return json.dumps([run.family, str(run.fact("computes")), settings])


def _family(run: Run) -> tuple[str, str]:
    name, bracket, options = run.config.method.partition("(")
    return PLAIN.get(name, name) + bracket + options, settings_without(run, *_OF_ASCENT)


def _is_sharp(run: Run) -> bool:
    """Tells whether a run takes sharpness-aware gradients, by its method or by its ascent."""
    if run.config.ascent == "auto":
        return run.config.method.partition("(")[0] in PLAIN
    return run.config.ascent != "none"
