"""Sparsification: the k largest entries of a tensor, or k random ones."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base import checks
from saddle_jax.base.types import Array
from saddle_jax.compression import packing
from saddle_jax.compression.base import Compressor
from saddle_jax.compression.selection import largest

_SEED_BYTES = 8  # two uint32: what the receiver needs to draw random_k's positions again
_PAPER_BITS_PER_ENTRY = 32 + 16  # the paper's tables count a float32 and a 16-bit index


@dataclasses.dataclass(frozen=True)
class _Sparsifier(Compressor):
    fraction: float

    def _count(self, size: int) -> int:
        """Returns k = max(1, floor(fraction * size)), the product in float64: 0.29 of 100 is 28."""
        return max(1, math.floor(self.fraction * size))

    def contraction(self, shape: Sequence[int]) -> float:
        size = math.prod(shape)
        return self._count(size) / size if size else 1.0

    def paper_bits_of(self, size: int) -> int:
        return self._count(size) * _PAPER_BITS_PER_ENTRY


@dataclasses.dataclass(frozen=True)
class TopK(_Sparsifier):
    """Q(x) keeps the k entries of largest magnitude and sets the rest to zero.

    Exactly k: of equal magnitudes the first ones are kept. The positions are sent as a bitmap or as a
    list of indices, whichever is shorter for the tensor's size and k.
    """

    def __repr__(self) -> str:
        return f"top_k({self.fraction})"

    def _mask(self, x: Array) -> Array:
        # Non-negative floats have the order of their bits as unsigned integers.
        unsigned = jnp.dtype(f"uint{8 * x.dtype.itemsize}")
        magnitude = jax.lax.bitcast_convert_type(jnp.abs(jax.lax.stop_gradient(x)), unsigned)
        return largest(magnitude, self._count(x.size))

    def _index_width(self, size: int) -> int:
        return (size - 1).bit_length()

    def _sends_bitmap(self, size: int) -> bool:
        return size <= self._count(size) * self._index_width(size)

    def compress_vector(self, x: Array, key: Any) -> Array:
        del key
        return jnp.where(self._mask(x), x, 0)

    def encode_vector(self, x: Array, key: Any) -> list[Array]:
        del key
        mask = self._mask(x)
        (indices,) = jnp.nonzero(mask, size=self._count(x.size))
        if self._sends_bitmap(x.size):
            positions = packing.pack_integers(mask, 1)
        else:
            positions = packing.pack_integers(indices, self._index_width(x.size))
        return [positions, packing.pack_floats(x[indices])]

    def decode_vector(self, data: Array, size: int, dtype: np.dtype) -> Array:
        k = self._count(size)
        split = self._position_bytes(size)
        if self._sends_bitmap(size):
            mask = packing.unpack_integers(data[:split], size, 1)
            (indices,) = jnp.nonzero(mask, size=k)
        else:
            indices = packing.unpack_integers(data[:split], k, self._index_width(size))
        values = packing.unpack_floats(data[split:], k, dtype)
        return jnp.zeros(size, dtype).at[indices].set(values)

    def _position_bytes(self, size: int) -> int:
        if self._sends_bitmap(size):
            return packing.packed_length(size, 1)
        return packing.packed_length(self._count(size), self._index_width(size))

    def payload_bytes(self, size: int, itemsize: int) -> int:
        return self._position_bytes(size) + self._count(size) * itemsize


@dataclasses.dataclass(frozen=True)
class RandomK(_Sparsifier):
    """Q(x) keeps k random entries, without scaling them up, and sets the rest to zero.

    Sender and receiver draw the same positions from a seed of eight bytes, so no index is sent.
    """

    def __repr__(self) -> str:
        return f"random_k({self.fraction})"

    @property
    def stochastic(self) -> bool:
        return True

    def _mask(self, seed: Array, size: int) -> Array:
        key = jax.random.wrap_key_data(seed, impl="threefry2x32")
        return largest(jax.random.bits(key, (size,), jnp.uint32), self._count(size))

    def compress_vector(self, x: Array, key: Any) -> Array:
        return jnp.where(self._mask(_draw_seed(key), x.size), x, 0)

    def encode_vector(self, x: Array, key: Any) -> list[Array]:
        seed = _draw_seed(key)
        (indices,) = jnp.nonzero(self._mask(seed, x.size), size=self._count(x.size))
        return [packing.pack_floats(seed), packing.pack_floats(x[indices])]

    def decode_vector(self, data: Array, size: int, dtype: np.dtype) -> Array:
        seed = packing.unpack_floats(data[:_SEED_BYTES], 2, np.dtype(np.uint32))
        k = self._count(size)
        (indices,) = jnp.nonzero(self._mask(seed, size), size=k)
        values = packing.unpack_floats(data[_SEED_BYTES:], k, dtype)
        return jnp.zeros(size, dtype).at[indices].set(values)

    def payload_bytes(self, size: int, itemsize: int) -> int:
        return _SEED_BYTES + self._count(size) * itemsize


def top_k(fraction: float) -> Compressor:
    """Keeps the max(1, floor(fraction * size)) entries of largest magnitude of each tensor.

    >>> sj.top_k(0.5).compress(jnp.array([1.0, -4.0, 2.0, 3.0]))
    Array([ 0., -4.,  0.,  3.], dtype=float32)
    """
    return TopK(_check_fraction(fraction))


def random_k(fraction: float) -> Compressor:
    """Keeps max(1, floor(fraction * size)) random entries of each tensor, drawn anew at every call.

    The entries are not scaled up by size / k, which would make Q unbiased but no longer a contraction. So it
    suits compressed gossip (CHOCO) and error feedback, with a smaller gamma for a smaller fraction. Positions
    are not sent: the receiver draws them from the seed.

    >>> jnp.count_nonzero(sj.random_k(0.25).compress(jnp.ones(100), jax.random.key(0)))
    Array(25, dtype=int32)
    """
    return RandomK(_check_fraction(fraction))


def _check_fraction(fraction: float) -> float:
    return float(checks.real("fraction", fraction, above=0.0, at_most=1.0))


def _draw_seed(key: Any) -> Array:
    return jax.random.bits(key, (2,), jnp.uint32)
