"""TernGrad: Wen et al., "TernGrad: ternary gradients to reduce communication", NeurIPS 2017.

    Q(x) = s sign(x) b,    s = max |x|,    b_k ~ Bernoulli(|x_k| / s)

The paper clips gradients before compression, which is left to the caller.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base.types import Array
from saddle_jax.compression import packing
from saddle_jax.compression.base import Compressor

_TRITS = 5  # per byte: 3^5 = 243 of its 256 values
_POWERS = 3 ** np.arange(_TRITS, dtype=np.uint32)[None]


@dataclasses.dataclass(frozen=True)
class Ternary(Compressor):
    """Q(x) is the tensor's largest magnitude, times 1, 0 or -1 for each number.

    The scale is sent in the tensor's dtype, and five numbers in a byte. Q is unbiased up to the resolution of
    the random numbers: 2^-23 of the scale in float32 and bfloat16, 2^-52 in float64.
    """

    def __repr__(self) -> str:
        return "ternary()"

    @property
    def stochastic(self) -> bool:
        return True

    def contraction(self, shape: Sequence[int]) -> float | None:
        # E||Q(x) - x||^2 = s ||x||_1 - ||x||^2, and s ||x||_1 <= (1 + sqrt(d)) / 2 ||x||^2, with equality if
        # one entry is s and the others s / (1 + sqrt(d)). So it is a contraction for d < 9 only.
        zeta = (3 - math.sqrt(max(1, math.prod(shape)))) / 2
        return zeta if zeta > 0 else None

    def compress_vector(self, x: Array, key: Any) -> Array:
        return _number(*_ternarize(x, key))

    def encode_vector(self, x: Array, key: Any) -> list[Array]:
        scale, trits = _ternarize(x, key)
        digits = jnp.pad((trits + 1).astype(jnp.uint32), (0, -x.size % _TRITS)).reshape(-1, _TRITS)
        sent = jnp.sum(digits * _POWERS, axis=1, dtype=jnp.uint32).astype(jnp.uint8)
        return [packing.pack_floats(scale[None]), sent]

    def decode_vector(self, data: Array, size: int, dtype: np.dtype) -> Array:
        scale = packing.unpack_floats(data[: dtype.itemsize], 1, dtype)[0]
        digits = data[dtype.itemsize :].astype(jnp.uint32)[:, None] // _POWERS % 3
        return _number(scale, digits.reshape(-1)[:size].astype(jnp.int32) - 1)

    def payload_bytes(self, size: int, itemsize: int) -> int:
        return itemsize + -(-size // _TRITS)

    def paper_bits_of(self, size: int) -> int:
        return 2 * size


def _ternarize(x: Array, key: Any) -> tuple[Array, Array]:
    """Returns the scale of x [size], a scalar, and its trits [size], int32 of -1, 0 and 1."""
    scale = jnp.max(jnp.abs(x))
    exact = jax.lax.stop_gradient(x).astype(jnp.promote_types(x.dtype, jnp.float32))
    chance = jnp.abs(exact) / jnp.where(scale == 0, 1, scale).astype(exact.dtype)
    kept = jax.random.uniform(key, x.shape, exact.dtype) < chance
    return scale, jnp.where(kept, jnp.where(x < 0, -1, 1), 0).astype(jnp.int32)


def _number(scale: Array, trits: Array) -> Array:
    # A product instead of a select, so that a scale that is not finite makes every number so.
    return scale * trits.astype(scale.dtype)


def ternary() -> Compressor:
    """Sends 1, 0 or -1 per number, 1.6 bits each, and the largest magnitude as their scale: unbiased.

    Its variance grows with the root of the tensor's size d, so it suits averages of compressed gradients
    without error feedback, whose error grows to about 0.35 sqrt(d) gradients. Compressed gossip (CHOCO)
    diverges unless gamma is very small: on 16 x 16 tensors and a ring of eight at 0.1, where `sj.natural`
    converges at 1.

    >>> sj.ternary().bits((1000,))
    1632
    >>> sj.ternary().compress(jnp.array([-2.0, 0.0, 2.0]), jax.random.key(0))
    Array([-2.,  0.,  2.], dtype=float32)
    """
    return Ternary()
