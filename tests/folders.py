"""Run folders written by hand: what pages and figures read, without training."""

import dataclasses
import json

import numpy as np

from saddle_jax.cli import __main__ as cli
from saddle_jax.runs.table import Cell
from saddle_jax.settings.settings import Settings
from saddle_jax.version import RUN_FORMAT

SMALL = Settings(agents=3, model="mlp", method="qgm", epochs=2)
COMPRESSED = dataclasses.replace(SMALL, method="qgm(compressor=quantize(8))", diagnostics=True)

# What config.json says of classification.
OBJECTIVE = {
    "name": "classification",
    "metrics": [
        {"name": "accuracy", "better": "higher", "title": "accuracy", "percent": True},
        {"name": "loss", "better": "lower", "title": "loss", "percent": False},
    ],
}


def write_run(folder, config=SMALL, *, status="finished", lines=None, about=None, result=None, **files):
    """config.json, metrics.jsonl, result.json (not if status is None) and further JSON files."""
    folder.mkdir(parents=True)
    record = {
        "versions": {"jax": "1.2.3"},
        "devices": ["cpu:cpu"],
        "dataset": {"source": "here", "train": 12, "class_names": ["cat", "dog"]},
        "partition": {"name": "iid", "fingerprint": "f00d", "class_counts": [[4, 0], [0, 4], [2, 2]]},
        "topology": {"name": "ring(3)", "gap": 1.0},
        "parameters": 100,
        "steps": 8,
    }
    record |= about or {}
    (folder / "config.json").write_text(
        json.dumps({"format": RUN_FORMAT, "config": dataclasses.asdict(config), **record})
    )
    lines = metrics() if lines is None else lines
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if status:
        end = {
            "status": status,
            "steps": 8,
            "seconds": 1.5,
            "test_accuracy": 0.625,
            "test_loss": 0.5,
            "consensus_distance": 0.25,
            "agent_accuracy_each": [0.5, 0.625, 0.75],
            "agent_accuracy_mean": 0.625,
            "agent_accuracy_std": 0.1,
            "bytes_sent_per_agent": 8000,
            "paper_bytes_sent_per_agent": 6400,
        }
        (folder / "result.json").write_text(json.dumps(end | (result or {})))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def metrics(factor=1.0, count=8, **more):
    """A line per step, and an evaluation after every fourth; values that are all different."""
    lines = []
    for step in range(1, count + 1):
        epoch = step / 4
        line = {"step": step, "epoch": epoch, "train_loss": factor * 2.5 / (step + 0.1)}
        line |= {name: value(step) for name, value in more.items()}
        lines.append({**line, "bytes_sent_per_agent": 1000 * step})
        if step % 4 == 0:
            score = {"test_accuracy": 0.1 + factor * step / 37, "test_loss": factor / step}
            lines.append({"step": step, "epoch": epoch, **score, "consensus_distance": 0.3 / step})
    return lines


def with_compressor(method, compressor):
    """The text of a method with a compressor."""
    return method if compressor == "none" else f"{method}(compressor={compressor})"


def cell(percents, diverged=0, seeds=()):
    """A cell of these accuracies."""
    return Cell(tuple(percent / 100 for percent in percents), diverged, seeds=seeds)


def make_page(tmp_path, *workdirs):
    """Writes the page of runs with the command, and returns where it is."""
    output = tmp_path / "page.html"
    assert cli.main(["saddle", "report", *map(str, workdirs), f"--output={output}"]) == 0
    return output


def lines_of(axes):
    """The heights of the lines that a picture of folders shows, by their labels."""
    return {line.get_label(): np.asarray(line.get_ydata(), float) for line in axes.lines}
