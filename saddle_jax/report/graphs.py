"""Drawings of graphs: inline SVG for pages, and image files.

The graphs of a time-varying topology are drawn side by side, one per step. Unless the reader prefers reduced
motion, the page's script animates them.
"""

import math
import os
import re
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import RunError
from saddle_jax.core.topology import Graphs, Topology
from saddle_jax.graphs import GRAPHS, files
from saddle_jax.report.plots import new_figure, save
from saddle_jax.runs.table import Run
from saddle_jax.settings.settings import build_topology

# Limits for drawing; for larger graphs the page has a sentence instead.
_MOST_AGENTS, _MOST_EDGES, _MOST_LABELS, _MOST_TURNS = 200, 2000, 24, 32

Places = list[tuple[float, float]]


def edges(graphs: Graphs) -> list[tuple[int, int, float] | tuple[int, int, float, int]]:
    """Lists the edges (i, j, w_ij), with the step's index for time-varying graphs; empty if too many.

    An undirected edge is listed once, i < j.
    """
    if sum(len(graph.links.weight) for graph in graphs.graphs) > 2 * _MOST_EDGES + graphs.size:
        return []
    if graphs.period == 1:
        return list(links_of(graphs.graphs[0]))
    return [(*link, turn) for turn, graph in enumerate(graphs.graphs) for link in links_of(graph)]


def links_of(topology: Topology) -> list[tuple[int, int, float]]:
    """Lists the edges (i, j, w_ij) of one graph; an undirected edge once, i < j."""
    return [
        (i, j, w)
        for i, j, w in zip(*(part.tolist() for part in topology.links), strict=True)
        if i != j and (topology.is_directed or i < j)
    ]


def own_weights(topology: Topology) -> list[float]:
    """Returns the self-weights w_ii."""
    own: list[float] = topology.weights[:, 0].tolist()
    return own


def graph(graphs: Graphs) -> str:
    """Draws the agents on a circle, or on a grid for a torus; an edge's width is its weight."""
    links = [links_of(one) for one in graphs.graphs]
    many = max(map(len, links)) > _MOST_EDGES or graphs.size > _MOST_AGENTS
    if many or not any(links):
        return f"<p>{graphs.size:,} agents: nothing is drawn, as there are no links or too many.</p>"
    where = places(graphs)
    largest = max(weight for some in links for _, _, weight in some)
    if graphs.period == 1:
        return _drawing(graphs.graphs[0], where, largest, str(graphs))
    frames = []
    for turn, one in enumerate(graphs.graphs[:_MOST_TURNS]):
        text = f"step {turn} of {graphs.period}"
        drawing = _drawing(one, where, largest, f"{text}: {len(links[turn])} links")
        frames.append(f"<div><p>{text}</p>{drawing}</div>")
    rest = graphs.period - len(frames)
    said = f"<p>{rest:,} more steps are not drawn.</p>" if rest else ""
    return f'<div class="turns">{"".join(frames)}</div>{said}'


def _drawing(topology: Topology, where: tuple[Places, float, float], largest: float, label: str) -> str:
    """Draws one graph as SVG, with widths relative to the largest weight of all graphs."""
    (points, width, height), directed = where, topology.is_directed
    arrow = ' marker-end="url(#arrow)"' if directed else ""
    parts = [
        f'<svg class="graph" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'width="{width:.0f}" aria-label="{escape(label)}">',
    ]
    labels = []
    for i, j, weight in links_of(topology):
        (x1, y1), (x2, y2) = points[j], points[i]  # i receives from j: the arrow points to i
        length = math.hypot(x2 - x1, y2 - y1)
        bend = bend_of(points, i, j, directed)
        cx, cy = (x1 + x2) / 2 - bend * (y2 - y1), (y1 + y2) / 2 + bend * (x2 - x1)
        gap = 14 / max(length, 1.0)
        x2, y2 = x2 - gap * (x2 - x1), y2 - gap * (y2 - y1)
        title = f"{j} &#8594; {i}: {weight:.6g}" if directed else f"{i} &#8211; {j}: {weight:.6g}"
        parts.append(
            f'<path class="link" d="M{x1:.1f} {y1:.1f}Q{cx:.1f} {cy:.1f} {x2:.1f} {y2:.1f}"{arrow} '
            f'stroke-width="{0.8 + 2.2 * weight / largest:.2f}"><title>{title}</title></path>'
        )
        x, y = 0.25 * x1 + 0.5 * cx + 0.25 * x2, 0.25 * y1 + 0.5 * cy + 0.25 * y2
        labels.append(f'<text class="weight" x="{x:.1f}" y="{y:.1f}" dy="3">{weight:.3g}</text>')
    parts += labels if len(labels) <= _MOST_LABELS else []
    for agent, ((x, y), own) in enumerate(zip(points, own_weights(topology), strict=True)):
        parts.append(
            f'<g class="agent" data-agent="{agent}"><title>agent {agent}: own weight {own:.6g}</title>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="12"/>'
            f'<text x="{x:.1f}" y="{y:.1f}" dy="4">{agent}</text></g>'
        )
    return "".join([*parts, "</svg>"])


def places(graphs: Graphs) -> tuple[Places, float, float]:
    """Returns the agents' positions, and the drawing's width and height."""
    if match := re.fullmatch(r"torus\((\d+), (\d+)\)", graphs.name):
        rows, columns = int(match[1]), int(match[2])
        grid = [(60.0 + 70 * (n % columns), 60.0 + 70 * (n // columns)) for n in range(rows * columns)]
        return grid, 70.0 * columns + 50, 70.0 * rows + 50
    radius = max(110.0, 5.0 * graphs.size)
    middle = radius + 24
    angles = [2 * math.pi * n / graphs.size - math.pi / 2 for n in range(graphs.size)]
    circle = [(middle + radius * math.cos(a), middle + radius * math.sin(a)) for a in angles]
    return circle, 2 * middle, 2 * middle


def bend_of(points: Sequence[tuple[float, float]], i: int, j: int, directed: bool) -> float:
    """Returns the curvature of an edge: arrows come in pairs, and other edges may pass over agents."""
    return 0.3 if _passes_over(points, i, j) else 0.15 if directed else 0.0


def _passes_over(points: Sequence[tuple[float, float]], i: int, j: int) -> bool:
    """Returns whether the straight line between two agents passes over a third."""
    (x1, y1), (x2, y2) = points[i], points[j]
    length = math.hypot(x2 - x1, y2 - y1)
    for agent, (x, y) in enumerate(points):
        along = ((x - x1) * (x2 - x1) + (y - y1) * (y2 - y1)) / length**2
        aside = abs((x - x1) * (y2 - y1) - (y - y1) * (x2 - x1)) / length
        if agent not in (i, j) and 0 < along < 1 and aside < 10:
            return True
    return False


# The graph of a run, read from its folder without importing user code.


def topology_of(run: Run) -> Graphs | None:
    """Returns the graph of a run; for user code the recorded graph, or None if it was too large to record."""
    if GRAPHS.is_ours(run.config.topology):
        return build_topology(run.config)
    links = run.fact("topology", "graphs")
    if links is None:
        return None
    name = str(run.fact("topology", "name"))
    try:
        return files.from_record(name, run.config.agents, links)
    except ArgumentError as error:
        raise RunError(f"{run.name}: topology of config.json cannot be read: {error}") from error


# Image files of graphs with their weights, one panel per step of a time-varying topology.


# Limits for a legible picture.
_PICTURE_AGENTS, _PICTURE_EDGES, _PICTURE_LABELS, _PICTURE_TURNS, _IN_A_ROW = 500, 10_000, 40, 64, 8


def plot_graph(graphs: Graphs, path: str | os.PathLike[str]) -> None:
    """Draws the edges of a graph: a line's width is its weight, and arrows point to the receiving agent.

    Each agent has its self-weight beside it. Weights of edges are labelled if there are few.
    """
    most = max(int(graph.degree.sum()) for graph in graphs.graphs)
    too_large = graphs.size > _PICTURE_AGENTS or most > 2 * _PICTURE_EDGES
    if too_large or graphs.period > _PICTURE_TURNS:
        raise ArgumentError(
            f"a picture must have at most {_PICTURE_AGENTS} agents, {2 * _PICTURE_EDGES:,} directed links "
            f"and {_PICTURE_TURNS} steps, got {graphs.size:,}, {most:,} and {graphs.period}"
        )
    columns = min(graphs.period, _IN_A_ROW)
    rows = math.ceil(graphs.period / columns)
    where, wide, high = places(graphs)
    side = max(3.0, 0.09 * graphs.size) * (1.6 if graphs.period == 1 else 1.0)
    scale = side / max(wide, high)
    figure, grid = new_figure(columns * wide * scale, rows * (high * scale + 0.3) + 0.5, rows, columns)
    panels = np.ravel(grid)
    largest = max((w for graph in graphs.graphs for _, _, w in links_of(graph)), default=1.0)
    for turn, panel in enumerate(panels):
        panel.set_axis_off()
        if turn < graphs.period:
            panel.set(xlim=(0, wide), ylim=(high, 0), aspect="equal")
            _draw(panel, graphs.graphs[turn], where, largest)
            if graphs.period > 1:
                panel.set_title(f"step {turn}", fontsize=8)
    figure.suptitle(str(graphs), fontsize=8, wrap=True)
    save(figure, path)


def _draw(panel: Any, topology: Topology, where: Places, largest: float) -> None:
    from matplotlib.patches import FancyArrowPatch

    links, directed = links_of(topology), topology.is_directed
    for i, j, weight in links:
        bend = bend_of(where, i, j, directed)
        arrow = FancyArrowPatch(
            where[j],
            where[i],  # i receives from j
            arrowstyle="-|>" if directed else "-",
            connectionstyle=f"arc3,rad={bend:g}",
            mutation_scale=9,
            shrinkA=6,
            shrinkB=6,
            linewidth=0.4 + 1.8 * weight / largest,
            color="#777777",
            zorder=1,
        )
        panel.add_patch(arrow)
        if len(links) <= _PICTURE_LABELS:
            (x1, y1), (x2, y2) = where[j], where[i]
            middle = (x1 + x2) / 2 - bend / 2 * (y2 - y1), (y1 + y2) / 2 + bend / 2 * (x2 - x1)
            _write(panel, middle, f"{weight:.3g}", "#333333")
    points = np.array(where)
    panel.scatter(*points.T, s=110, color="#4063d8", zorder=3)
    away = points - points.mean(axis=0)  # outwards on a circle, diagonally on a grid
    far = np.hypot(*away.T)[:, None]
    away = np.where(far < 0.99 * far.max(), np.sqrt(0.5), away / np.maximum(far, 1e-9))
    for agent, own in enumerate(own_weights(topology)):
        panel.text(*points[agent], str(agent), fontsize=6, color="white", ha="center", va="center", zorder=4)
        if topology.size <= _PICTURE_LABELS:
            _write(panel, points[agent] + 21 * away[agent], f"{own:.3g}", "#4063d8")


def _write(panel: Any, place: Any, text: str, colour: str) -> None:
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
    panel.text(*place, text, fontsize=5, ha="center", va="center", color=colour, bbox=box, zorder=2)
