"""Draws docs/point.png, the picture of README, from the runs of a comparison over seeds.

.venv/bin/python docs/pictures/point.py runs/point, after the command in docs/first_comparison.md.
"""

import json
import pathlib
import sys

import matplotlib.pyplot as plt
import numpy as np

FILE = pathlib.Path(__file__).resolve().parents[1] / "point.png"
COLOURS = {"QGM": "#7a869a", "Q-SADDLe": "#d9480f"}
FOLDERS = {"QGM": "qgm-none-*", "Q-SADDLe": "q_saddle-none-*"}


def accuracies(folder: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
    """Reads the epochs [T] and the test accuracy of each seed [T, seeds], in percent."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows = [line for line in lines if "test_accuracy_by_trial" in line]
    epochs = np.array([row["epoch"] for row in rows])
    return epochs, 100 * np.array([row["test_accuracy_by_trial"] for row in rows])


def draw(workdir: pathlib.Path) -> None:
    """Draws mean and range over the seeds, and beside it where each seed ends."""
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, (curves, ends) = plt.subplots(1, 2, figsize=(8, 3.2), width_ratios=[2, 1], layout="constrained")
    last = {}
    for name, pattern in FOLDERS.items():
        (folder,) = workdir.glob(pattern)
        epochs, found = accuracies(folder)
        curves.plot(epochs, found.mean(axis=1), color=COLOURS[name], linewidth=2, label=name)
        curves.fill_between(
            epochs, found.min(axis=1), found.max(axis=1), color=COLOURS[name], alpha=0.15, linewidth=0
        )
        last[name] = found[-1]
    curves.set(xlabel="epoch", title="test accuracy of the average model, %", xlim=(1, None), ylim=(40, 100))
    curves.legend(frameon=False, loc="lower right", title="mean and range of 5 seeds")
    for values in zip(*last.values(), strict=True):
        ends.plot([0, 1], values, color="#adb5bd", linewidth=1, zorder=1)
    for place, (name, values) in enumerate(last.items()):
        ends.scatter(np.full(len(values), place), values, color=COLOURS[name], zorder=2)
    ends.set(title="each seed at the end, %", xlim=(-0.4, 1.4), xticks=[0, 1], xticklabels=list(last))
    for axes in (curves, ends):
        axes.grid(axis="y", color="#e9ecef")
        axes.set_axisbelow(True)
    figure.savefig(FILE, dpi=130)


if __name__ == "__main__":
    draw(pathlib.Path(sys.argv[1]))
