"""Pictures of graphs with their weights, as image files: of graphs that take turns, one panel per step."""

import math
import os
from typing import Any

import numpy as np

from saddle_jax.base.checks import ArgumentError
from saddle_jax.core.mixing import Graphs
from saddle_jax.core.topology import Topology
from saddle_jax.report import graph_drawings
from saddle_jax.report.plots import new_figure, save

# What can still be told apart on a page.
_MOST_AGENTS, _MOST_EDGES, _MOST_LABELS, _MOST_TURNS, _IN_A_ROW = 500, 10_000, 40, 64, 8


def plot_graph(graphs: Graphs, path: str | os.PathLike) -> None:
    """Draws who hears whom: a line's width is its weight, arrows point to the agent that hears.

    Beside each agent is its weight for itself. A few links have their weights written on them.
    """
    most = max(int(graph.degree.sum()) for graph in graphs.graphs)
    if graphs.size > _MOST_AGENTS or most > 2 * _MOST_EDGES or graphs.period > _MOST_TURNS:
        raise ArgumentError(
            f"a picture must have at most {_MOST_AGENTS} agents, {2 * _MOST_EDGES:,} directed links and "
            f"{_MOST_TURNS} steps, got {graphs.size:,}, {most:,} and {graphs.period}"
        )
    columns = min(graphs.period, _IN_A_ROW)
    rows = math.ceil(graphs.period / columns)
    where, wide, high = graph_drawings.places(graphs)
    side = max(3.0, 0.09 * graphs.size) * (1.6 if graphs.period == 1 else 1.0)
    scale = side / max(wide, high)
    figure, grid = new_figure(columns * wide * scale, rows * (high * scale + 0.3) + 0.5, rows, columns)
    panels = np.ravel(grid)
    largest = max((w for graph in graphs.graphs for _, _, w in graph_drawings.links_of(graph)), default=1.0)
    for turn, panel in enumerate(panels):
        panel.set_axis_off()
        if turn < graphs.period:
            panel.set(xlim=(0, wide), ylim=(high, 0), aspect="equal")
            _draw(panel, graphs.graphs[turn], where, largest)
            if graphs.period > 1:
                panel.set_title(f"step {turn}", fontsize=8)
    figure.suptitle(str(graphs), fontsize=8, wrap=True)
    save(figure, path)


def _draw(panel: Any, topology: Topology, where: graph_drawings.Places, largest: float) -> None:
    from matplotlib.patches import FancyArrowPatch

    links, directed = graph_drawings.links_of(topology), topology.is_directed
    for i, j, weight in links:
        bend = graph_drawings.bend_of(where, i, j, directed)
        arrow = FancyArrowPatch(
            where[j],
            where[i],  # i hears j
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
        if len(links) <= _MOST_LABELS:
            (x1, y1), (x2, y2) = where[j], where[i]
            middle = (x1 + x2) / 2 - bend / 2 * (y2 - y1), (y1 + y2) / 2 + bend / 2 * (x2 - x1)
            _write(panel, middle, f"{weight:.3g}", "#333333")
    points = np.array(where)
    panel.scatter(*points.T, s=110, color="#4063d8", zorder=3)
    away = points - points.mean(axis=0)  # outwards there is room on a circle, aslant on a grid
    far = np.hypot(*away.T)[:, None]
    away = np.where(far < 0.99 * far.max(), np.sqrt(0.5), away / np.maximum(far, 1e-9))
    for agent, own in enumerate(graph_drawings.own_weights(topology)):
        panel.text(*points[agent], str(agent), fontsize=6, color="white", ha="center", va="center", zorder=4)
        if topology.size <= _MOST_LABELS:
            _write(panel, points[agent] + 21 * away[agent], f"{own:.3g}", "#4063d8")


def _write(panel: Any, place: Any, text: str, colour: str) -> None:
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
    panel.text(*place, text, fontsize=5, ha="center", va="center", color=colour, bbox=box, zorder=2)
