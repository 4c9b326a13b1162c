"""The invariants of datasets: consistent trees of samples that can be partitioned among agents."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base.types import Tree
from saddle_jax.data.dataset import Dataset
from saddle_jax.data.partition import make_partition
from saddle_jax.data.sources import dataset_of
from saddle_jax.testing.invariants import InapplicableError, InvariantError, Result, results_of, verify

_AGENTS = 5
_CHUNK = 4096  # samples per check


class DatasetTrial:
    """The dataset under test, or the function that loads it."""

    def __init__(self, source: Any, options: dict[str, Any]):
        self._source, self._options = source, options

    def load(self) -> Dataset:
        """Loads the dataset again, if it comes from a function."""
        source = self._source
        name = str(getattr(source, "__name__", getattr(source, "name", "data")))
        loads = callable(source) and not isinstance(source, Dataset)
        return dataset_of(source(**self._options) if loads else source, name)

    @functools.cached_property
    def dataset(self) -> Dataset:
        """The dataset under test."""
        return self.load()

    @property
    def trees(self) -> tuple[tuple[str, Tree], ...]:
        """The training and test samples, by name."""
        return ("train", self.dataset.train), ("test", self.dataset.test)


def all_arrays_have_as_many_samples(trial: DatasetTrial) -> str:
    """Checks that there are samples, and that all arrays of a tree have the same length."""
    for name, tree in trial.trees:
        leaves = jax.tree.leaves_with_path(tree)
        if not leaves:
            raise InvariantError(f"{name} has no arrays")
        lengths = {f"{name}{jax.tree_util.keystr(path)}": int(leaf.shape[0]) for path, leaf in leaves}
        if len(set(lengths.values())) > 1 or not min(lengths.values()):
            raise InvariantError(
                ", ".join(f"{path} has {length}" for path, length in lengths.items()) + " samples"
            )
    return f"{trial.dataset.size} to train with, {trial.dataset.test_size} to test with"


def train_and_test_are_of_one_kind(trial: DatasetTrial) -> str:
    """Checks that training and test samples have the same tree, shapes and dtypes."""
    (_, train), (_, test) = trial.trees
    kind: Any = jax.tree.structure(train)
    other_kind: Any = jax.tree.structure(test)
    if kind != other_kind:
        raise InvariantError(f"train is {kind}, and test {other_kind}")
    for (path, one), other in zip(jax.tree.leaves_with_path(train), jax.tree.leaves(test), strict=True):
        if (one.shape[1:], one.dtype) != (other.shape[1:], other.dtype):
            kinds = f"{one.dtype}{['N', *one.shape[1:]]}, and in test {other.dtype}{['N', *other.shape[1:]]}"
            raise InvariantError(f"train{jax.tree_util.keystr(path)} is {kinds}".replace("'N'", "N"))
    return f"{len(jax.tree.leaves(train))} arrays in each"


def every_number_is_finite(trial: DatasetTrial) -> str:
    """Checks floats for NaN and infinity; of streamed samples only a part."""
    for name, tree in trial.trees:
        for path, leaf in jax.tree.leaves_with_path(tree):
            if not np.issubdtype(leaf.dtype, np.inexact):
                continue
            for begin in range(0, int(leaf.shape[0]), _CHUNK):
                finite = np.isfinite(np.asarray(leaf[np.arange(begin, min(begin + _CHUNK, leaf.shape[0]))]))
                if not finite.all():
                    first = begin + int(np.argwhere(~finite)[0][0])
                    raise InvariantError(
                        f"{name}{jax.tree_util.keystr(path)}[{first}] has a number that is not finite"
                    )
    return "real numbers are, and whole ones always are"


def classes_are_numbers_from_zero_on(trial: DatasetTrial) -> str:
    """Checks that every label has a class name, and that no class is empty."""
    dataset = trial.dataset
    labels, names = dataset.labels, dataset.class_names
    if labels is None:
        raise InapplicableError("its samples have no classes")
    if len(labels) != dataset.size or not np.issubdtype(labels.dtype, np.integer):
        raise InvariantError(f"classes must be whole numbers [N], got {labels.dtype}{list(labels.shape)}")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= len(names):
        raise InvariantError(f"classes must be 0 to {len(names) - 1}, got {low} to {high}")
    if empty := sorted(set(range(len(names))) - set(np.unique(labels).tolist())):
        raise InvariantError(f"class {empty[0]}, {names[empty[0]]!r}, has no sample to train with")
    targets = dataset.test.get("targets") if isinstance(dataset.test, dict) else None
    if dataset.partition_labels is None and targets is not None:
        low, high = int(np.min(targets)), int(np.max(targets))
        if low < 0 or high >= len(names):
            raise InvariantError(f"classes to test with must be 0 to {len(names) - 1}, got {low} to {high}")
    return f"{len(names)} classes"


def samples_can_be_gathered_and_prepared(trial: DatasetTrial) -> str:
    """Checks that samples can be indexed by an array, and that preprocessed inputs are finite."""
    dataset = trial.dataset
    numbers = np.array([dataset.size - 1, 0, 0])
    batch = jax.tree.map(lambda leaf: jnp.asarray(leaf[numbers]), dataset.train)
    for path, leaf in jax.tree.leaves_with_path(batch):
        if leaf.shape[0] != len(numbers) or not np.array_equal(leaf[1], leaf[2]):
            raise InvariantError(
                f"train{jax.tree_util.keystr(path)} gives {list(leaf.shape)} for three sample numbers"
            )
    agents = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), batch)
    augmented = dataset.augmented(jax.random.key(0), agents)
    for what, seen in (("prepared", dataset.prepared(batch)), ("augmented", augmented)):
        for path, leaf in jax.tree.leaves_with_path(seen):
            if not np.isfinite(np.asarray(leaf, np.float64)).all():
                raise InvariantError(f"{what}, train{jax.tree_util.keystr(path)} is not finite")
    return f"a model sees {list(dataset.input_shape)}"


def samples_can_be_partitioned(trial: DatasetTrial) -> str:
    """Checks that samples can be partitioned among five agents, by class if there are classes."""
    dataset = trial.dataset
    if dataset.agent_samples is not None:
        if not all(len(share) for share in dataset.agent_samples):
            raise InvariantError("an agent has no samples")
        return f"divided already, for {len(dataset.agent_samples)} agents"
    labels = dataset.labels
    kind = "iid" if labels is None else "dirichlet"
    labels = np.zeros(dataset.size, np.int32) if labels is None else labels
    partition = make_partition(kind, labels, _AGENTS, seed=0)
    return f"{kind}, {partition.skew.classes_per_agent:.1f} classes per agent" if kind != "iid" else kind


def loaded_again_it_is_the_same(trial: DatasetTrial) -> str:
    """Checks that loading is deterministic, so that a resumed run has the same samples."""
    again = trial.load()
    for (name, tree), other in zip(trial.trees, (again.train, again.test), strict=True):
        for (path, one), two in zip(jax.tree.leaves_with_path(tree), jax.tree.leaves(other), strict=True):
            few = np.unique(np.linspace(0, int(one.shape[0]) - 1, _CHUNK).astype(int))
            if one.shape != two.shape or not np.array_equal(one[few], two[few], equal_nan=_is_real(one)):
                raise InvariantError(
                    f"{name}{jax.tree_util.keystr(path)} is another one: draw from a fixed seed"
                )
    return "the same samples"


def _is_real(leaf: Any) -> bool:
    return bool(np.issubdtype(leaf.dtype, np.inexact))


INVARIANTS = (
    all_arrays_have_as_many_samples,
    train_and_test_are_of_one_kind,
    every_number_is_finite,
    classes_are_numbers_from_zero_on,
    samples_can_be_gathered_and_prepared,
    samples_can_be_partitioned,
    loaded_again_it_is_the_same,
)


def check_dataset(
    dataset: Any, options: dict[str, Any] | None = None, *, tell: Callable[[str], None] | None = None
) -> list[Result]:
    """Checks every invariant of a dataset, or of one loaded by a function with these options.

    It may be anything that `data.sources.dataset_of` accepts: a Dataset, or training and test samples.
    """
    return verify(results_of(INVARIANTS, DatasetTrial(dataset, options or {}), tell, gates=1))
