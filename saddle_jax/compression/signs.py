"""One bit per number: the scaled sign of Comp NGM (Karimireddy et al., 2019)."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from saddle_jax.base.types import Array
from saddle_jax.compression import packing
from saddle_jax.compression.base import Compressor


@dataclasses.dataclass(frozen=True)
class Sign(Compressor):
    """Q(x) is mean|x| sign(x), where the sign of zero is 1: one bit has no zero."""

    def __repr__(self) -> str:
        return "sign()"

    def contraction(self, shape: Sequence[int]) -> float:
        # zeta = ||x||_1^2 / (d ||x||_2^2), which is smallest if a single entry is not zero.
        return 1.0 / max(1, math.prod(shape))

    def compress_vector(self, x: Array, key: Any) -> Array:
        del key
        scale = _mean_size(x)
        return jnp.where(x < 0, -scale, scale)

    def encode_vector(self, x: Array, key: Any) -> list[Array]:
        del key
        return [packing.pack_floats(_mean_size(x)[None]), packing.pack_integers(x < 0, 1)]

    def decode_vector(self, data: Array, size: int, dtype: np.dtype) -> Array:
        scale = packing.unpack_floats(data[: dtype.itemsize], 1, dtype)[0]
        negative = packing.unpack_integers(data[dtype.itemsize :], size, 1) == 1
        return jnp.where(negative, -scale, scale)

    def payload_bytes(self, size: int, itemsize: int) -> int:
        return itemsize + packing.packed_length(size, 1)

    def paper_bits_of(self, size: int) -> int:
        return size


def _mean_size(x: Array) -> Array:
    """Returns mean|x| of a vector [size], a scalar, even if the sum overflows."""
    sizes = jnp.abs(x)
    plain = jnp.mean(sizes)
    # Scaled by a power of two, so that the sum does not overflow; then by a little less than its inverse, so
    # that the mean is not rounded up.
    factor = 2.0 ** -math.ceil(math.log2(max(2, x.size)))
    safe = jnp.mean(sizes * factor) * ((1 - 2**-20) / factor)
    return jnp.where(jnp.isfinite(plain) | ~jnp.isfinite(safe), plain, safe)


def sign() -> Compressor:
    """Sends one sign per number and one scale per tensor; for error feedback (NGM).

    >>> sj.sign().compress(jnp.array([3.0, -1.0]))
    Array([ 2., -2.], dtype=float32)
    """
    return Sign()
