"""Stochastic quantization (QSGD): Alistarh et al., "QSGD", 2017, as CHOCO-SGD scales it."""

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

# A float32 has 24 bits of mantissa: above 16 bits a level, rounding at random has too few left.
_MAX_BITS = 16

# Random bits per number. In float32 a level near 255 has no finer fraction: its last bit is worth 2^-16.
_RANDOM_BITS = 16


@dataclasses.dataclass(frozen=True)
class Quantize(Compressor):
    """Q(x) is ||x||_2 sign(x) level / s [/ tau], level = s |x| / ||x||_2 rounded at random to an integer.

    s = 2^bits - 1 levels, tau = 1 + min(d / s^2, sqrt(d) / s) where d is the tensor's size.
    The norm is that of the tensor. A number is sent as `bits` bits of level and one of sign.

    The probability of rounding up is a multiple of 2^-16: without tau, Q is unbiased to 2^-17 of a level,
    that is ||x||_2 / s / 2^17, apart from rounding to float32. Random numbers are most of the work: two
    numbers share one 32-bit word.
    """

    bits_per_number: int
    biased: bool

    def __repr__(self) -> str:
        return f"quantize(bits={self.bits_per_number}, biased={self.biased})"

    @property
    def stochastic(self) -> bool:
        return True

    @property
    def _levels(self) -> int:
        return (1 << self.bits_per_number) - 1

    def _tau(self, size: int) -> float:
        return 1.0 + min(size / self._levels**2, math.sqrt(size) / self._levels)

    def contraction(self, shape: Sequence[int]) -> float | None:
        tau = self._tau(math.prod(shape))
        if self.biased:
            return 1.0 / tau
        return 2.0 - tau if tau < 2.0 else None  # E||Q(x) - x||^2 <= (tau - 1) ||x||^2

    def _quantize(self, x: Array, key: Any) -> tuple[Array, Array]:
        """Returns the norm of x [size], a scalar, and its integer levels [size] as floats."""
        working, largest = _working_dtype(x.dtype), packing.largest(x.dtype)
        x = x.astype(working)
        # Scaled by the largest entry, so that squares neither overflow nor underflow; a zero tensor
        # gets norm 0 and levels 0, with finite derivatives.
        peak = jnp.max(jnp.abs(x))
        is_zero = peak == 0
        # XLA may replace the division by a multiplication with 1 / peak, which must not underflow.
        factor = jnp.where(peak > 2.0**100, 2.0**-60, 1.0).astype(working)
        scaled = x * factor / jnp.where(is_zero, 1, peak * factor)
        relative_norm = jnp.sqrt(jnp.where(is_zero, 1, jnp.sum(scaled * scaled)))
        exact = jnp.abs(scaled) / relative_norm * self._levels
        # A norm beyond the largest float32 is replaced by that.
        norm = jnp.minimum(peak * relative_norm, packing.largest(working))
        # `exact` may exceed s by a rounding error when a single entry holds the whole norm, and a level near
        # the largest number of the dtype may overflow: both are rounded down.
        highest = jnp.floor(largest * (1 - 2**-20) / jnp.where(is_zero, 1, self._step(x.size, norm)))
        levels = jnp.minimum(_round_at_random(exact, key), jnp.minimum(highest, self._levels))
        return norm, levels

    def _step(self, size: int, norm: Array) -> Array:
        """Returns the value of one level in a tensor of this size and norm."""
        return norm / (self._levels * (self._tau(size) if self.biased else 1.0))

    def _dequantize(self, norm: Array, signed_levels: Array, dtype: np.dtype) -> Array:
        return (self._step(signed_levels.size, norm) * signed_levels).astype(dtype)

    def compress_vector(self, x: Array, key: Any) -> Array:
        norm, levels = self._quantize(x, key)
        return self._dequantize(norm, jnp.where(x < 0, -levels, levels), x.dtype)

    def encode_vector(self, x: Array, key: Any) -> list[Array]:
        norm, levels = self._quantize(x, key)
        words = levels.astype(jnp.uint32) * 2 + (x < 0)
        return [
            packing.pack_floats(norm[None]),
            packing.pack_integers(words, self.bits_per_number + 1),
        ]

    def decode_vector(self, data: Array, size: int, dtype: np.dtype) -> Array:
        working = _working_dtype(dtype)
        norm = packing.unpack_floats(data[: working.itemsize], 1, working)[0]
        words = packing.unpack_integers(data[working.itemsize :], size, self.bits_per_number + 1)
        levels = (words >> 1).astype(working)
        return self._dequantize(norm, jnp.where(words & 1 == 1, -levels, levels), dtype)

    def payload_bytes(self, size: int, itemsize: int) -> int:
        return max(itemsize, 4) + packing.packed_length(size, self.bits_per_number + 1)

    def paper_bits_of(self, size: int) -> int:
        return self.bits_per_number * size


def _round_at_random(exact: Array, key: Any) -> Array:
    """Rounds each number of [size] down, or up with the probability of its fraction."""
    # The first half of the tensor takes the lower bits of the words and the second half the upper ones, which
    # needs no shuffle, unlike interleaving. A tensor of odd size takes a word per number.
    halves = 2 - exact.size % 2
    words = jax.random.bits(key, (1, exact.size // halves), jnp.uint32)
    shifts = _RANDOM_BITS * np.arange(halves, dtype=np.uint32)[:, None]
    pieces = (words >> shifts) & (2**_RANDOM_BITS - 1)
    exact = exact.reshape(halves, -1)
    floor = jnp.floor(exact)
    # The half makes the probability the nearest multiple of 2^-16.
    up: Array = pieces.astype(exact.dtype) + 0.5 < (exact - floor) * 2**_RANDOM_BITS
    return (floor + up).reshape(-1)


def _working_dtype(dtype: Any) -> np.dtype:
    """Returns float32 or wider: levels need more bits than the mantissa of a bfloat16 has."""
    return np.dtype(jnp.promote_types(dtype, jnp.float32))


def quantize(bits: int, biased: bool = False) -> Compressor:
    """Quantizes each tensor at random to `bits` bits per number.

    Args:
      bits: 1 to 16. The paper uses 8 for ResNet-20, 10 for MobileNet-V2, 2 for one NGM table.
      biased: divide by tau, so that Q is a contraction for any number of bits. The unbiased operator is
        none once d > s^2; with error feedback, or with few bits, use the biased one.

    >>> sj.quantize(bits=8).bits((1000,))  # a norm of 32 bits, and 8 bits and a sign per number
    9032
    >>> sj.quantize(bits=1).compress(jnp.array([3.0, 0.0]), jax.random.key(0))
    Array([3., 0.], dtype=float32)
    """
    return Quantize(checks.whole("bits", bits, at_least=1, at_most=_MAX_BITS), bool(biased))
