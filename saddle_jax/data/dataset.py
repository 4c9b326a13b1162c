"""The dataset that every source loads: samples, how they are prepared, and what may be learned from them."""

import dataclasses
import hashlib
from typing import Any

import jax
import numpy as np

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Batch, Key, Tree
from saddle_jax.data.recipes import Recipe, prepared

_LOOKED_AT = 64  # samples of a source that are hashed


class DataError(ArgumentError):
    """An error about data that is missing, unknown or damaged; the message says what to do about it."""


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Samples to train and to test with: in memory, mapped from a file, or streamed.

    A tree of samples has arrays [N, ...] as leaves. Most trees are {"inputs": ..., "targets": ...}, which the
    objectives of the package read; an objective of your own may read any other. A leaf may also be anything
    that has a `shape` and a `dtype` and takes an array of sample numbers as an index, such as
    `saddle_jax.data.prepared.StreamedImages` for images that do not fit into memory.

    Attributes:
      name: such as "cifar10".
      train: samples [N, ...] to train with; of images, inputs uint8 [N, H, W, C] and targets int32 [N].
      test: samples [n, ...] of the same kind.
      source: where they came from, for the record.
      class_names: one name for each class of `labels`; none where there are no classes.
      recipe: how stored images become the inputs that a model sees; None leaves the inputs as they are.
      dealt_by: int [N], the classes by which partitions deal the samples out, if these are not the targets.
      shares: the sample numbers of each agent, for data that is divided already.
      outputs: how many numbers a model gives for a sample; 0: one for each class.
      objective: what is learned, by its name, unless the settings say otherwise.
      model: which network learns it, by its name, unless the settings say otherwise.
    """

    name: str
    train: Tree
    test: Tree
    source: str
    class_names: tuple[str, ...] = ()
    recipe: Recipe | None = None
    dealt_by: np.ndarray | None = None
    shares: tuple[np.ndarray, ...] | None = None
    outputs: int = 0
    objective: str = "classification"
    model: str = "cnn"

    @property
    def size(self) -> int:
        """The number of samples to train with, N."""
        return int(jax.tree.leaves(self.train)[0].shape[0])

    @property
    def test_size(self) -> int:
        """The number of samples to test with."""
        return int(jax.tree.leaves(self.test)[0].shape[0])

    @property
    def num_outputs(self) -> int:
        """How many numbers a model gives for a sample, or for each place of a text."""
        return self.outputs or len(self.class_names)

    @property
    def labels(self) -> np.ndarray | None:
        """The classes int [N] by which partitions deal samples out; None where there are none."""
        if self.dealt_by is not None:
            return self.dealt_by
        targets = self.train.get("targets") if isinstance(self.train, dict) else None
        is_class = targets is not None and targets.ndim == 1 and np.issubdtype(targets.dtype, np.integer)
        return np.asarray(targets) if is_class and self.class_names else None

    @property
    def is_streamed(self) -> bool:
        """Whether some samples are fetched batch by batch, because they are no arrays in memory."""
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
        """Sixteen hex digits that differ if a sample does; of a source, if one of 64 of its samples does."""
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
        """Prepares a batch [B, ...] of samples as they are stored for a model, without augmentation."""
        return prepared(self.recipe, batch)

    def augmented(self, key: Key, batch: Batch) -> Batch:
        """Prepares the batches [A, B, ...] of all agents for training, each with a key of its own."""
        if self.recipe is None:
            return batch
        return {**batch, "inputs": self.recipe.for_agents(key, batch["inputs"])}

    def subset(self, samples: int, seed: int) -> "Dataset":
        """Returns this dataset with a random subset of its training samples, not balanced by class."""
        if self.shares is not None:
            raise ArgumentError(f"subset must be 0 for {self.name}, which is divided already, got {samples}")
        if not 1 <= samples <= self.size:
            raise ArgumentError(f"subset must be 1 to {self.size} samples, got {samples}")
        chosen = np.sort(np.random.RandomState(seed).permutation(self.size)[:samples])

        def pick(leaf: Any) -> Any:
            return leaf.subset(chosen) if hasattr(leaf, "subset") else leaf[chosen]

        dealt_by = None if self.dealt_by is None else self.dealt_by[chosen]
        return dataclasses.replace(self, train=jax.tree.map(pick, self.train), dealt_by=dealt_by)
