"""Datasets and partitions in words: counts, shapes, and who holds what."""

from collections.abc import Sequence

import numpy as np

from saddle_jax.data.dataset import Dataset
from saddle_jax.data.skew import Partition


def describe_dataset(dataset: Dataset) -> str:
    """Describes a dataset in four lines: classes, both splits, and what a model sees."""
    lines = [f"{dataset.name}: {dataset.num_classes} classes, from {dataset.source}"]
    for split, images, labels in (
        ("train", dataset.train_images, dataset.train_labels),
        ("test", dataset.test_images, dataset.test_labels),
    ):
        counts = np.bincount(labels, minlength=dataset.num_classes)
        shape = "x".join(map(str, images.shape[1:]))
        lines.append(
            f"  {split:<5} {len(labels):>9,} images {shape}, {counts.min():,} to {counts.max():,} per class"
        )
    lines.append(f"  a model sees {'x'.join(map(str, dataset.image_shape))}, {dataset.recipe}")
    return "\n".join(lines)


def describe_partition(dataset: str, partition: Partition, class_names: Sequence[str]) -> str:
    """Describes a partition: its skew, then a line for each agent with its largest classes."""
    lines = [
        f"{dataset}, {partition.name}, fingerprint {partition.fingerprint}",
        f"{partition.skew}",
        "agent   samples   its largest classes",
    ]
    for agent, counts in enumerate(partition.class_counts):
        largest = [label for label in np.argsort(-counts, kind="stable")[:4] if counts[label]]
        classes = ", ".join(f"{class_names[label]} {counts[label]:,}" for label in largest)
        lines.append(f"{agent:>5} {counts.sum():>9,}   {classes}")
    return "\n".join(lines)
