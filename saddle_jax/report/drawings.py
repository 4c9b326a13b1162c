"""Drawings that stand in a page as they are: SVG text, readable without a script.

Everything that comes from a run's folder goes through `html.escape`.
"""

import math
import re
from collections.abc import Sequence
from html import escape

import numpy as np

from saddle_jax.core.topology import Topology

# What is still worth drawing; for larger ones the page says so in words.
_MOST_AGENTS, _MOST_EDGES, _MOST_LABELS, _MOST_BUBBLES = 200, 2000, 24, 40_000


def edges(topology: Topology) -> list[tuple[int, int, float]]:
    """Lists who hears whom, (i, j, w_ij); an undirected link once, i < j; nothing if they are too many."""
    if np.count_nonzero(topology.mixing) > 2 * _MOST_EDGES + topology.size:
        return []
    rows, columns = np.nonzero(topology.mixing)
    return [
        (i, j, float(topology.mixing[i, j]))
        for i, j in zip(rows.tolist(), columns.tolist(), strict=True)
        if i != j and (topology.is_directed or i < j)
    ]


def graph(topology: Topology) -> str:
    """Draws the agents on a circle, those of a torus on a grid; a link's width is its weight."""
    links = edges(topology)
    if topology.size > _MOST_AGENTS or not links:
        return f"<p>{topology.size:,} agents: nothing is drawn, as there are no links or too many.</p>"
    places, width, height = _places(topology)
    largest = max((weight for _, _, weight in links), default=1.0)
    arrow = ' marker-end="url(#arrow)"' if topology.is_directed else ""
    parts = [
        f'<svg class="graph" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'style="width:{width:.0f}px" aria-label="{escape(str(topology))}">',
    ]
    labels = []
    for i, j, weight in links:
        (x1, y1), (x2, y2) = places[j], places[i]  # i hears j: the arrow points to i
        length = math.hypot(x2 - x1, y2 - y1)
        # Links that pass over other agents (around a torus) and pairs of arrows are bent.
        bend = 0.3 if _passes_over(places, i, j) else 0.15 if topology.is_directed else 0.0
        cx, cy = (x1 + x2) / 2 - bend * (y2 - y1), (y1 + y2) / 2 + bend * (x2 - x1)
        gap = 14 / max(length, 1.0)
        x2, y2 = x2 - gap * (x2 - x1), y2 - gap * (y2 - y1)
        label = f"{j} &#8594; {i}: {weight:.6g}" if topology.is_directed else f"{i} &#8211; {j}: {weight:.6g}"
        parts.append(
            f'<path class="link" d="M{x1:.1f} {y1:.1f}Q{cx:.1f} {cy:.1f} {x2:.1f} {y2:.1f}"{arrow} '
            f'stroke-width="{0.8 + 2.2 * weight / largest:.2f}"><title>{label}</title></path>'
        )
        x, y = 0.25 * x1 + 0.5 * cx + 0.25 * x2, 0.25 * y1 + 0.5 * cy + 0.25 * y2
        labels.append(f'<text class="weight" x="{x:.1f}" y="{y:.1f}" dy="3">{weight:.3g}</text>')
    parts += labels if len(labels) <= _MOST_LABELS else []
    for agent, (x, y) in enumerate(places):
        own = f"agent {agent}: own weight {topology.mixing[agent, agent]:.6g}"
        parts.append(
            f'<g class="agent"><title>{own}</title><circle cx="{x:.1f}" cy="{y:.1f}" r="12"/>'
            f'<text x="{x:.1f}" y="{y:.1f}" dy="4">{agent}</text></g>'
        )
    return "".join([*parts, "</svg>"])


def _places(topology: Topology) -> tuple[list[tuple[float, float]], float, float]:
    """Returns where the agents stand, and the drawing's width and height."""
    if match := re.fullmatch(r"torus\((\d+), (\d+)\)", topology.name):
        rows, columns = int(match[1]), int(match[2])
        grid = [(60.0 + 70 * (n % columns), 60.0 + 70 * (n // columns)) for n in range(rows * columns)]
        return grid, 70.0 * columns + 50, 70.0 * rows + 50
    radius = max(110.0, 5.0 * topology.size)
    middle = radius + 24
    angles = [2 * math.pi * n / topology.size - math.pi / 2 for n in range(topology.size)]
    circle = [(middle + radius * math.cos(a), middle + radius * math.sin(a)) for a in angles]
    return circle, 2 * middle, 2 * middle


def _passes_over(places: Sequence[tuple[float, float]], i: int, j: int) -> bool:
    """Tells whether the straight line between two agents goes over a third."""
    (x1, y1), (x2, y2) = places[i], places[j]
    length = math.hypot(x2 - x1, y2 - y1)
    for agent, (x, y) in enumerate(places):
        along = ((x - x1) * (x2 - x1) + (y - y1) * (y2 - y1)) / length**2
        aside = abs((x - x1) * (y2 - y1) - (y - y1) * (x2 - x1)) / length
        if agent not in (i, j) and 0 < along < 1 and aside < 10:
            return True
    return False


def bubbles(counts: np.ndarray, names: Sequence[str]) -> str:
    """Draws the class allocation [A, C]: agents against classes, a bubble's area the number of samples."""
    agents, classes = counts.shape
    places = np.argwhere(counts > 0)
    if len(places) > _MOST_BUBBLES:
        return f"<p>{agents:,} agents and {classes:,} classes are too many to draw.</p>"
    labels = classes <= 60
    step = 24.0 if labels else 6.0
    left = 16.0 + 6.2 * min(18, max(map(len, names), default=0)) if labels else 40.0
    width, height = left + 26.0 * agents + 20, step * classes + 50
    parts = [
        f'<svg class="bubbles" viewBox="0 0 {width:.0f} {height:.0f}" style="width:{width:.0f}px" '
        f'role="img" aria-label="class allocation: {agents} agents, {classes} classes">'
    ]
    most = counts.max()
    for agent, label in places.tolist():
        count = counts[agent, label]
        radius = max(0.48 * min(step, 26.0) * math.sqrt(count / most), 0.8)
        x, y = left + 26.0 * (agent + 0.5), height - 42 - step * (label + 0.5)
        title = f"agent {agent}, {escape(names[label])}: {count:,}"
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.2f}"><title>{title}</title></circle>')
    for label in range(classes) if labels else []:
        y = height - 42 - step * (label + 0.5)
        parts.append(f'<text class="end" x="{left - 8:.0f}" y="{y:.1f}" dy="4">{_short(names[label])}</text>')
    every = math.ceil(agents / 50)
    parts += [
        f'<text x="{left + 26.0 * (agent + 0.5):.1f}" y="{height - 24:.0f}">{agent}</text>'
        for agent in range(0, agents, every)
    ]
    parts.append(f'<text x="{left + 13.0 * agents:.0f}" y="{height - 6:.0f}">agent</text></svg>')
    return "".join(parts)


def agent_bars(accuracies: Sequence[float], consensus: float | None, run: int) -> str:
    """Draws each agent's accuracy as a bar, the consensus model's as a line; `run` numbers its colour."""
    step = 22.0 if len(accuracies) <= 40 else 8.0
    left, height = 44.0, 150.0
    width = left + step * len(accuracies) + 12

    def level(value: float) -> float:
        return 12 + (height - 42) * (1 - min(max(value, 0.0), 1.0))

    parts = [
        f'<svg class="bars" viewBox="0 0 {width:.0f} {height:.0f}" style="width:{width:.0f}px;'
        f'--run:var(--run-{run % 10})" role="img" aria-label="test accuracy of each agent\'s own model">'
    ]
    for value in (0.0, 0.5, 1.0):
        y = level(value)
        parts.append(f'<path class="grid" d="M{left - 4:.0f} {y:.1f}H{width - 8:.0f}"/>')
        parts.append(f'<text class="end" x="{left - 8:.0f}" y="{y:.1f}" dy="4">{100 * value:.0f} %</text>')
    for agent, value in enumerate(accuracies):
        x, y = left + step * agent, level(value)
        parts.append(
            f'<rect x="{x + 2:.1f}" y="{y:.1f}" width="{step - 4:.1f}" height="{level(0) - y:.1f}">'
            f"<title>agent {agent}: {100 * value:.2f} %</title></rect>"
        )
        if step > 10:
            parts.append(f'<text x="{x + step / 2:.1f}" y="{height - 16:.0f}">{agent}</text>')
    if consensus is not None:
        y = level(consensus)
        title = f"consensus model: {100 * consensus:.2f} %"
        parts.append(
            f'<path class="mean" d="M{left:.0f} {y:.1f}H{width - 8:.0f}"><title>{title}</title></path>'
        )
    return "".join([*parts, "</svg>"])


def _short(name: str) -> str:
    return escape(name if len(name) <= 18 else name[:17] + "…")
