"""Drawings that stand in a page as they are: SVG text, readable without a script.

Everything that comes from a run's folder goes through `html.escape`.
"""

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from saddle_jax.report.measures import Measure

# What is still worth drawing; for larger ones the page says so in words.
_MOST_BUBBLES = 40_000
_MOST_BARS = 10_000


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
        f'<svg class="bubbles" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
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


def agent_bars(scores: Sequence[float], consensus: float | None, measure: Measure) -> str:
    """Draws each agent's result as a bar, the consensus model's as a line."""
    if len(scores) > _MOST_BARS:
        return f"<p>{len(scores):,} agents are too many to draw.</p>"
    step = 22.0 if len(scores) <= 40 else 8.0
    left, height = 44.0 if measure.percent else 64.0, 150.0
    width = left + step * len(scores) + 12
    top = 1.0 if measure.percent else max(*scores, consensus or 0.0, 1e-300)

    def level(value: float) -> float:
        return 12 + (height - 42) * (1 - min(max(value / top, 0.0), 1.0))

    def label(value: float) -> str:
        return f"{100 * value:.0f} %" if measure.percent else f"{value:.3g}"

    meaning = f"test {escape(measure.title)} of each agent's own model"
    parts = [
        f'<svg class="bars" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'role="img" aria-label="{meaning}">'
    ]
    for value in (0.0, 0.5 * top, top):
        y = level(value)
        parts.append(f'<path class="grid" d="M{left - 4:.0f} {y:.1f}H{width - 8:.0f}"/>')
        parts.append(f'<text class="end" x="{left - 8:.0f}" y="{y:.1f}" dy="4">{label(value)}</text>')
    for agent, value in enumerate(scores):
        x, y = left + step * agent, level(value)
        parts.append(
            f'<rect x="{x + 2:.1f}" y="{y:.1f}" width="{step - 4:.1f}" height="{level(0) - y:.1f}">'
            f"<title>agent {agent}: {measure.text(value)}</title></rect>"
        )
        if step > 10:
            parts.append(f'<text x="{x + step / 2:.1f}" y="{height - 16:.0f}">{agent}</text>')
    if consensus is not None:
        y = level(consensus)
        title = f"consensus model: {measure.text(consensus)}"
        parts.append(
            f'<path class="mean" d="M{left:.0f} {y:.1f}H{width - 8:.0f}"><title>{title}</title></path>'
        )
    return "".join([*parts, "</svg>"])


def _short(name: str) -> str:
    return escape(name if len(name) <= 18 else name[:17] + "…")


def sparkline(values: Sequence[float], meaning: str) -> str:
    """Draws a line without axes, as small as a word: how a number went; nothing if there are no two."""
    if len(values) < 2:
        return ""
    wide, high = 96.0, 22.0
    is_log = min(values) > 0 and max(values) > 10 * min(values)
    heights = [math.log(value) if is_log else value for value in values]
    low, span = min(heights), max(heights) - min(heights) or 1.0
    points = " ".join(
        f"{2 + (wide - 4) * number / (len(heights) - 1):.1f},{2 + (high - 4) * (1 - (y - low) / span):.1f}"
        for number, y in enumerate(heights)
    )
    label = f"{escape(meaning)} from {values[0]:.3g} to {values[-1]:.3g}"
    return (
        f'<svg class="spark" viewBox="0 0 {wide:.0f} {high:.0f}" width="{wide:.0f}" height="{high:.0f}" '
        f'role="img" aria-label="{label}"><polyline points="{points}"/></svg>'
    )
