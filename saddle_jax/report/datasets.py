"""Descriptions of datasets and partitions: counts, shapes, and classes per agent."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from saddle_jax.data.dataset import Dataset
from saddle_jax.data.partition import Partition


def describe_dataset(dataset: Dataset) -> str:
    """Describes a dataset in four lines: classes, both splits, and a model's input."""
    classes = f"{len(dataset.class_names)} classes" if dataset.class_names else "no classes"
    lines = [f"{dataset.name}: {classes}, for {dataset.objective}, from {dataset.source}"]
    what = "samples" if dataset.recipe is None else "images"
    for split, samples in (("train", dataset.train), ("test", dataset.test)):
        leaf = jax.tree.leaves(samples)[0]
        shape = "x".join(map(str, leaf.shape[1:])) or "of one number"
        counts = _per_class(samples, dataset)
        lines.append(f"  {split:<5} {leaf.shape[0]:>9,} {what} {shape}{counts}")
    seen = "x".join(map(str, dataset.input_shape)) or "one number"
    lines.append(f"  a model sees {seen}" + (f", {dataset.recipe}" if dataset.recipe else ""))
    return "\n".join(lines)


def _per_class(samples: Any, dataset: Dataset) -> str:
    targets = samples.get("targets") if isinstance(samples, dict) else None
    if dataset.partition_labels is not None or dataset.labels is None or targets is None:
        return ""
    counts = np.bincount(np.asarray(targets), minlength=len(dataset.class_names))
    return f", {counts.min():,} to {counts.max():,} per class"


def dataset_record(dataset: Dataset) -> dict[str, Any]:
    """Returns the description of a dataset as a JSON object."""
    splits = {"train": dataset.train, "test": dataset.test}
    return {
        "name": dataset.name,
        "source": dataset.source,
        "objective": str(dataset.objective),
        "class_names": list(dataset.class_names),
        "input_shape": list(dataset.input_shape),
        "samples": {split: jax.tree.leaves(samples)[0].shape[0] for split, samples in splits.items()},
    }


def partition_rows(partition: Partition, class_names: Sequence[str]) -> list[list[str]]:
    """Returns the table of a partition: each agent's number of samples and largest classes."""
    rows = [["agent", "samples", "its largest classes"]]
    for agent, counts in enumerate(partition.class_counts):
        largest = [label for label in np.argsort(-counts, kind="stable")[:4] if counts[label]]
        classes = ", ".join(f"{class_names[label]} {counts[label]:,}" for label in largest)
        rows.append([f"{agent:>5}", f"{counts.sum():>7,}", classes])
    return rows


def partition_record(partition: Partition, class_names: Sequence[str]) -> dict[str, Any]:
    """Returns a partition as a JSON object: its fingerprint, skew, and class counts per agent."""
    return {
        "name": partition.name,
        "fingerprint": partition.fingerprint,
        "skew": dataclasses.asdict(partition.skew),
        "agents": [
            {str(class_names[label]): int(count) for label, count in enumerate(counts)}
            for counts in partition.class_counts
        ],
    }
