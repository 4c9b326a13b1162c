"""The samples of each batch: a pure function of (seed, epoch, step, agent), without state."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array, Key, Tree
from saddle_jax.core.trees import agent_keys
from saddle_jax.data.partition import Partition

# Each use of random numbers has a stream of its own.
_ORDER, _AUGMENTATION = 0, 1


@dataclasses.dataclass(frozen=True, eq=False)
class Batches:
    """The batches of a run, epoch by epoch and step by step.

    In an epoch every agent sees M samples, M the largest share, in steps of B. An agent with fewer samples
    repeats its own in a new order. The last batch may be partial: it keeps its shape, and a mask marks the
    valid entries.

    With batch size 0 each step uses all samples of an agent, for exact gradients: an epoch is one step, B is
    the largest share, and smaller shares are padded with the sample number -1, which is masked out.

    Attributes:
      partition: the samples of each agent.
      batch_size: the samples per agent and step; 0: all samples of the agent.
      seed: the seed of the order and of the augmentation.
      partial: whether the last batch may be partial; otherwise an epoch ends with the last full batch.
    """

    partition: Partition
    batch_size: int
    seed: int
    partial: bool = True

    def __post_init__(self) -> None:
        checks.whole("batch_size", self.batch_size, at_least=0)
        checks.whole("seed", self.seed, at_least=0, at_most=2**32 - 1)
        share = self.partition.samples.shape[1]
        if self.batch_size > share:
            raise ArgumentError(
                f"batch_size must be at most an agent's share, {share}, got {self.batch_size}"
            )
        if self.batch_size == 0 and not self.partial and np.ptp(self.partition.sizes):
            raise ArgumentError(
                "batch_size must be at least 1 for agents with different numbers of samples and a loss that "
                "reads no mask, got 0"
            )

    @property
    def size(self) -> int:
        """B, the padded size of one agent's batch."""
        return self.batch_size or self.partition.samples.shape[1]

    @property
    def steps_per_epoch(self) -> int:
        """The number of steps in an epoch, ceil(M / B), or without a partial batch floor(M / B)."""
        whole, rest = divmod(self.partition.samples.shape[1], self.size)
        result: int = whole + (rest > 0 and self.partial)
        return result

    def epoch(self, epoch: int) -> tuple[Array, Array]:
        """Returns an epoch's sample numbers int32 [steps, A, B] and its mask float32 [steps, B]."""
        if not checks.is_array(epoch):
            epoch = checks.whole("epoch", epoch, at_least=0, at_most=2**31 - 1)
        result: tuple[Array, Array] = _epoch(
            np.asarray(self.partition.samples, np.int32),
            np.asarray(self.partition.sizes, np.int32),
            jax.random.key(self.seed),
            epoch,
            self.batch_size,
            self.steps_per_epoch,
        )
        return result

    def step(self, epoch: int, step: int) -> tuple[Array, Array]:
        """Returns one step's sample numbers int32 [A, B] and its mask float32 [A, B]."""
        if not checks.is_array(step):
            step = checks.whole("step", step, at_least=0, at_most=self.steps_per_epoch - 1)
        samples, mask = self.epoch(epoch)
        return samples[step], counting(samples[step], mask[step])

    def augmentation_key(self, epoch: Any, step: Any) -> Key:
        """Returns the key for augmenting a step's images."""
        return augmentation_key(jax.random.key(self.seed), epoch, step)


def augmentation_key(root: Key, epoch: Any, step: Any) -> Key:
    """Returns `Batches.augmentation_key` for batches with the seed of the key `root`."""
    return jax.random.fold_in(_epoch_key(root, _AUGMENTATION, epoch), step)


def _epoch_key(root: Key, purpose: int, epoch: Any) -> Key:
    return jax.random.fold_in(jax.random.fold_in(root, purpose), epoch)


@functools.partial(jax.jit, static_argnums=(4, 5))
def _epoch(
    samples: Array, sizes: Array, root: Key, epoch: Any, batch_size: int, steps: int
) -> tuple[Array, Array]:
    agents, share = samples.shape
    if batch_size == 0:
        own = jnp.arange(share)[None] < sizes[:, None]
        return jnp.where(own, samples, -1)[None], jnp.ones((1, share), jnp.float32)
    position, key = jnp.arange(share, dtype=jnp.int32), _epoch_key(root, _ORDER, epoch)

    def order(row: Array, size: Array, key: Key) -> Array:
        # Each pass covers the agent's own samples once. Sorting by (pass, random) shuffles every pass
        # separately; with equal shares there is one pass.
        number = jax.random.bits(key, (share,), jnp.uint32)
        _, _, chosen = jax.lax.sort((position // size, number, position % size), num_keys=2)
        return row[chosen]

    shuffled = jax.vmap(order)(samples, sizes, agent_keys(key, agents))
    filling = max(0, steps * batch_size - share)
    # The padding repeats the first samples, with mask zero.
    padded = jnp.concatenate([shuffled, shuffled[:, :filling]], axis=1)[:, : steps * batch_size]
    mask = (jnp.arange(steps * batch_size) < share).astype(jnp.float32)
    by_step = padded.reshape(agents, steps, batch_size).swapaxes(0, 1)
    return by_step, mask.reshape(steps, batch_size)


def counting(samples: Array, mask: Array) -> Array:
    """Returns the mask float32 [A, B] of a step with these sample numbers [A, B] and this mask [B]."""
    return mask[None] * (samples >= 0)


def take(data: Tree, samples: Array) -> Tree:
    """Gathers samples [N, ...], an array or a tree of arrays, by sample numbers [...], on the device."""
    return jax.tree.map(lambda leaf: jnp.take(leaf, samples, axis=0, mode="clip"), data)
