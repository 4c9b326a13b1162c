"""Which samples make up which batch: a pure function of (seed, epoch, step, agent), no state to replay."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array, Key
from saddle_jax.core.trees import agent_keys
from saddle_jax.data.skew import Partition

# What the random numbers of a run are for. Each purpose has a stream of its own.
_ORDER, _AUGMENTATION = 0, 1


@dataclasses.dataclass(frozen=True, eq=False)
class Batches:
    """The batches of a run.

    An epoch shows every agent M samples, M the largest share, in steps of B. An agent with fewer
    goes through its own again, shuffled anew. The last batch may be partial: it keeps its shape,
    and a mask tells which entries count.

    Attributes:
      partition: who holds which samples.
      batch_size: B, per agent.
      seed: of the order and of the augmentation.
    """

    partition: Partition
    batch_size: int
    seed: int

    def __post_init__(self):
        checks.whole("batch_size", self.batch_size, at_least=1)
        checks.whole("seed", self.seed, at_least=0, at_most=2**32 - 1)
        share = self.partition.samples.shape[1]
        if self.batch_size > share:
            raise ArgumentError(
                f"batch_size must be at most an agent's share, {share}, got {self.batch_size}"
            )

    @property
    def steps_per_epoch(self) -> int:
        """ceil(M / B)."""
        return -(-self.partition.samples.shape[1] // self.batch_size)

    def epoch(self, epoch: int) -> tuple[Array, Array]:
        """An epoch's sample numbers int32 [steps, A, B] and mask float32 [steps, B]."""
        return _epoch(
            jnp.asarray(self.partition.samples, jnp.int32),
            jnp.asarray(self.partition.sizes, jnp.int32),
            _of_epoch(jax.random.key(self.seed), _ORDER, epoch),
            self.batch_size,
        )

    def step(self, epoch: int, step: int) -> tuple[Array, Array]:
        """One step's sample numbers int32 [A, B] and mask float32 [A, B]."""
        samples, mask = self.epoch(epoch)
        return samples[step], jnp.broadcast_to(mask[step], samples[step].shape)

    def augmentation_key(self, epoch: Any, step: Any) -> Key:
        """The key that a step's images are augmented with."""
        return augmentation_key(jax.random.key(self.seed), epoch, step)


def augmentation_key(root: Key, epoch: Any, step: Any) -> Key:
    """`Batches.augmentation_key` of batches whose seed is that of the key `root`."""
    return jax.random.fold_in(_of_epoch(root, _AUGMENTATION, epoch), step)


def _of_epoch(root: Key, purpose: int, epoch: Any) -> Key:
    return jax.random.fold_in(jax.random.fold_in(root, purpose), epoch)


@functools.partial(jax.jit, static_argnums=3)
def _epoch(samples: Array, sizes: Array, key: Key, batch_size: int) -> tuple[Array, Array]:
    agents, share = samples.shape
    position = jnp.arange(share, dtype=jnp.int32)

    def order(row: Array, size: Array, key: Key) -> Array:
        # Round r goes once through the agent's own samples. Sorting by (round, random) shuffles
        # each round by itself; with equal shares there is one round.
        number = jax.random.bits(key, (share,), jnp.uint32)
        _, _, chosen = jax.lax.sort((position // size, number, position % size), num_keys=2)
        return row[chosen]

    shuffled = jax.vmap(order)(samples, sizes, agent_keys(key, agents))
    steps = -(-share // batch_size)
    filling = steps * batch_size - share
    # The filling repeats the first samples, at weight zero.
    padded = jnp.concatenate([shuffled, shuffled[:, :filling]], axis=1)
    mask = (jnp.arange(steps * batch_size) < share).astype(jnp.float32)
    by_step = padded.reshape(agents, steps, batch_size).swapaxes(0, 1)
    return by_step, mask.reshape(steps, batch_size)


def take(images: Any, samples: Array) -> Array:
    """Images [N, ...] by sample numbers of any shape [...]: one gather on the device."""
    return jnp.take(images, samples, axis=0, mode="clip")
