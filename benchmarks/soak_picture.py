"""How a long run goes: time of a step, memory and compilations, against the steps taken."""

import os
from collections.abc import Mapping, Sequence

import numpy as np

from saddle_jax.report.plots import new_figure, save


def plot_soak(samples: Mapping[str, Sequence[float]], path: str | os.PathLike) -> None:
    """Draws three curves against steps: milliseconds of a step, resident megabytes, programs compiled."""
    steps = np.array(samples["step"])
    figure, grid = new_figure(width=10.0, height=2.8, columns=3)
    times, memory, programs = grid[0]
    for name, label, colour in (
        ("seconds", "by the clock", "#4063d8"),
        ("cpu_seconds", "of the processor", "0.6"),
    ):
        times.plot(steps[1:], 1e3 * np.diff(samples[name]) / np.diff(steps), color=colour, label=label)
    times.set_ylabel("ms of a step")
    times.legend(frameon=False, fontsize=7)
    memory.plot(steps, np.array(samples["bytes"]) / 1e6, color="#4063d8")
    memory.set_ylabel("resident MB")
    programs.step(steps, samples["compilations"], where="post", color="#4063d8")
    programs.set_ylabel("programs compiled")
    for axes in (times, memory, programs):
        axes.set_xlabel("steps")
        axes.set_ylim(0, 1.1 * max(max(line.get_ydata()) for line in axes.lines))
        axes.spines[["top", "right"]].set_visible(False)
    save(figure, path)
