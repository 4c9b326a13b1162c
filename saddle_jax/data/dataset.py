"""A dataset: training and test samples, their preprocessing, and a default task and model."""

import dataclasses
import hashlib
from typing import Any

import jax
import numpy as np

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Batch, Key, Tree
from saddle_jax.data.recipes import Recipe, prepared

_LOOKED_AT = 64  # samples of a streamed source that are hashed


class DataError(ArgumentError):
    """A dataset is missing, unknown or damaged; the message says what to do."""


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test samples: in memory, memory-mapped, or streamed.

    A tree of samples has arrays [N, ...] as leaves. Most trees are {"inputs": ..., "targets": ...}, which the
    package's objectives read; your own objective may read any other tree. A leaf may also be any object with
    a `shape` and a `dtype` that can be indexed by an array of sample numbers, such as
    `saddle_jax.data.prepared.StreamedImages` for images that do not fit into memory.

    Attributes:
      name: such as "cifar10".
      train: training samples [N, ...]; for images, inputs uint8 [N, H, W, C] and targets int32 [N].
      test: test samples [n, ...] with the same structure.
      source: where the samples came from, for the record.
      class_names: the name of each class of `labels`; empty if there are no classes.
      recipe: the preprocessing of stored images; None leaves the inputs as they are.
      partition_labels: int [N], the classes by which samples are partitioned, if not the targets.
      agent_samples: the sample numbers of each agent, for data that is partitioned already.
      outputs: the size of a model's output for one sample; 0: the number of classes.
      objective: the name of the default objective.
      model: the name of the default model.
    """

    name: str
    train: Tree
    test: Tree
    source: str
    class_names: tuple[str, ...] = ()
    recipe: Recipe | None = None
    partition_labels: np.ndarray | None = None
    agent_samples: tuple[np.ndarray, ...] | None = None
    outputs: int = 0
    objective: str = "classification"
    model: str = "cnn"

    @property
    def size(self) -> int:
        """The number of training samples, N."""
        return int(jax.tree.leaves(self.train)[0].shape[0])

    @property
    def test_size(self) -> int:
        """The number of test samples."""
        return int(jax.tree.leaves(self.test)[0].shape[0])

    @property
    def num_outputs(self) -> int:
        """The size of a model's output for a sample, or for each position of a text."""
        return self.outputs or len(self.class_names)

    @property
    def labels(self) -> np.ndarray | None:
        """The classes int [N] by which samples are partitioned; None if there are none."""
        if self.partition_labels is not None:
            return self.partition_labels
        targets = self.train.get("targets") if isinstance(self.train, dict) else None
        is_class = targets is not None and targets.ndim == 1 and np.issubdtype(targets.dtype, np.integer)
        return np.asarray(targets) if is_class and self.class_names else None

    @property
    def is_streamed(self) -> bool:
        """Whether some samples are fetched batch by batch instead of being in memory."""
        return any(not isinstance(leaf, np.ndarray | jax.Array) for leaf in jax.tree.leaves(self.train))

    @property
    def inputs_of_one(self) -> Any:
        """The shape and dtype of the inputs [1, ...] of one sample, as a model sees them."""
        one = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape[1:]), x.dtype), self.train)
        seen = jax.eval_shape(self.prepared, one)
        return seen["inputs"] if isinstance(seen, dict) and "inputs" in seen else seen

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input as a model sees it; of images, height, width and channels."""
        return tuple(self.inputs_of_one.shape[1:])

    @property
    def fingerprint(self) -> str:
        """A hash of 16 hex digits of all samples; of 64 samples if they are streamed."""
        digest = hashlib.sha256()
        for path, leaf in jax.tree.leaves_with_path((self.train, self.test)):
            digest.update(f"{jax.tree_util.keystr(path)} {tuple(leaf.shape)} {leaf.dtype}".encode())
            if isinstance(leaf, np.ndarray | jax.Array):
                digest.update(np.ascontiguousarray(leaf).tobytes())
            else:
                some = np.linspace(0, leaf.shape[0] - 1, num=min(_LOOKED_AT, leaf.shape[0])).astype(int)
                digest.update(np.ascontiguousarray(leaf[some]).tobytes())
        return digest.hexdigest()[:16]

    def prepared(self, batch: Batch) -> Batch:
        """Preprocesses a stored batch [B, ...] for a model, without augmentation."""
        return prepared(self.recipe, batch)

    def augmented(self, key: Key, batch: Batch) -> Batch:
        """Preprocesses and augments the batches [A, B, ...] of all agents, each with its own key."""
        if self.recipe is None:
            return batch
        return {**batch, "inputs": self.recipe.for_agents(key, batch["inputs"])}

    def subset(self, samples: int, seed: int) -> "Dataset":
        """Returns the dataset with a random subset of its training samples, not balanced by class."""
        if self.agent_samples is not None:
            raise ArgumentError(f"subset must be 0 for {self.name}, which is divided already, got {samples}")
        if not 1 <= samples <= self.size:
            raise ArgumentError(f"subset must be 1 to {self.size} samples, got {samples}")
        chosen = np.sort(np.random.RandomState(seed).permutation(self.size)[:samples])

        def pick(leaf: Any) -> Any:
            return leaf.subset(chosen) if hasattr(leaf, "subset") else leaf[chosen]

        partition_labels = None if self.partition_labels is None else self.partition_labels[chosen]
        return dataclasses.replace(
            self, train=jax.tree.map(pick, self.train), partition_labels=partition_labels
        )
