"""A method's way to a known optimum as a small drawing; docs/pictures/convex_curves.py has measured it."""

import json
import math
import pathlib
from collections.abc import Sequence
from typing import Any

_FILE = pathlib.Path(__file__).parents[1] / "pictures" / "convex.json"
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 560, 240, 56, 34, 12
_LOWEST, _HIGHEST = -7, 1  # powers of ten


def measured() -> dict[str, Any]:
    """Returns what was measured: `every` so many steps, and the settings and distances of each method."""
    return json.loads(_FILE.read_text())


def draw(found: dict[str, Any], name: str, beside: str) -> str:
    """Draws the distances of a method in colour and those of another in grey, as SVG in one line."""
    steps = found["every"] * (len(found["methods"][name]["distances"]) - 1)
    parts = [_grid(steps)]
    for each in dict.fromkeys((beside, name)):
        points = _line(found["methods"][each]["distances"])
        parts.append(f'<polyline class="{"own" if each == name else "other"}" points="{points}"/>')
    final = found["methods"][name]["distances"][-1]
    title = f"Distance of {name} from the optimum: {final:.1e} after {steps} steps"
    return (
        f'<svg class="convex" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{title}">'
        f"<title>{title}</title>{''.join(parts)}</svg>"
    )


def _grid(steps: int) -> str:
    lines = []
    for power in range(_LOWEST, _HIGHEST + 1, 2):
        y = _y(10.0**power)
        lines.append(f'<line x1="{_LEFT}" x2="{_WIDTH - 8}" y1="{y}" y2="{y}"/>')
        lines.append(f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">1e{power}</text>')
    for share in range(4):
        x = _LEFT + share / 3 * (_WIDTH - 8 - _LEFT)
        anchor = "end" if share == 3 else "middle"
        y = _HEIGHT - _BOTTOM + 16
        lines.append(f'<text x="{x:.0f}" y="{y}" text-anchor="{anchor}">{steps * share // 3}</text>')
    lines.append(f'<text x="{(_LEFT + _WIDTH) // 2}" y="{_HEIGHT - 3}" text-anchor="middle">steps</text>')
    return "".join(lines)


def _line(distances: Sequence[float]) -> str:
    wide = (_WIDTH - 8 - _LEFT) / (len(distances) - 1)
    return " ".join(f"{_LEFT + place * wide:.1f},{_y(value)}" for place, value in enumerate(distances))


def _y(distance: float) -> float:
    power = min(max(math.log10(max(distance, 1e-30)), _LOWEST), _HIGHEST)
    share = (power - _LOWEST) / (_HIGHEST - _LOWEST)
    return round(_TOP + (1 - share) * (_HEIGHT - _BOTTOM - _TOP), 1)
