"""Natural compression: Horvath et al., "Natural compression for distributed deep learning", MSML 2022.

    C_nat(t) = sign(t) 2^floor(log2 |t|)  or  sign(t) 2^ceil(log2 |t|), at random such that E C_nat(t) = t

A number is reduced to its sign and exponent: 9 bits of a float32. E||C_nat(x) - x||^2 <= 1/8 ||x||^2.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base.types import Array
from saddle_jax.compression import packing
from saddle_jax.compression.base import Compressor


@dataclasses.dataclass(frozen=True)
class Natural(Compressor):
    """Q(x) rounds each number at random to one of the two nearest powers of two.

    A float is (-1)^sign 2^exponent (1 + mantissa / 2^n): rounding up with probability mantissa / 2^n adds one
    to the exponent's bits, and the mantissa is dropped. n random bits a number decide it, so Q is unbiased
    exactly. Below the smallest normal number the neighbours are zero and that number, and Q stays unbiased.

    Beyond the paper: numbers above the largest power of two, 2^127, are rounded down to it, so that Q is
    biased there. Infinities and NaN are preserved; NaN is encoded as minus zero, which is not used otherwise.
    """

    def __repr__(self) -> str:
        return "natural()"

    @property
    def stochastic(self) -> bool:
        return True

    def contraction(self, shape: Sequence[int]) -> float:
        del shape
        return 7 / 8  # of normal numbers up to the largest power of two

    def compress_vector(self, x: Array, key: Any) -> Array:
        return _number(_code(x, key), np.dtype(x.dtype))

    def encode_vector(self, x: Array, key: Any) -> list[Array]:
        return [packing.pack_integers(_code(x, key), _width(x.dtype.itemsize))]

    def decode_vector(self, data: Array, size: int, dtype: np.dtype) -> Array:
        return _number(packing.unpack_integers(data, size, _width(dtype.itemsize)), dtype)

    def payload_bytes(self, size: int, itemsize: int) -> int:
        return packing.packed_length(size, _width(itemsize))

    def paper_bits_of(self, size: int) -> int:
        return 9 * size


def _width(itemsize: int) -> int:
    """Returns the bits of a code: a sign, and 11 bits of exponent for float64 or 8 for narrower dtypes."""
    return 12 if itemsize == 8 else 9


def _code(x: Array, key: Any) -> Array:
    """Rounds numbers [size] at random and returns exponent + 2^(width - 1) sign, unsigned [size]."""
    form = packing.layout(x.dtype)
    unsigned = jnp.dtype(f"uint{form.bits}")
    words = jax.lax.bitcast_convert_type(x, unsigned)
    mantissa = words & (2**form.mantissa - 1)
    exponent = (words >> form.mantissa) & (2**form.exponent - 1)
    draws = jax.random.bits(key, x.shape, unsigned) >> (form.bits - form.mantissa)
    largest = 2**form.exponent - 2  # the exponent above it means infinity or NaN
    finite = exponent <= largest
    rounded = jnp.where(finite, jnp.minimum(exponent + (draws < mantissa), largest), exponent)
    sign_bit = 1 << (_width(x.dtype.itemsize) - 1)
    code = rounded + jnp.where((words >> (form.bits - 1) == 1) & (rounded > 0), sign_bit, 0)
    return jnp.where(~finite & (mantissa > 0), sign_bit, code).astype(unsigned)


def _number(code: Array, dtype: np.dtype) -> Array:
    """Returns the numbers [size] of a dtype that codes [size] encode."""
    form = packing.layout(dtype)
    unsigned = jnp.dtype(f"uint{form.bits}")
    sign_at = _width(dtype.itemsize) - 1
    code = code.astype(unsigned)
    negative, exponent = code >> sign_at, code & (2**sign_at - 1)
    words = (negative << (form.bits - 1)) | (exponent << form.mantissa)
    numbers = jax.lax.bitcast_convert_type(words, dtype)
    return jnp.where(code == 1 << sign_at, jnp.asarray(jnp.nan, dtype), numbers)


def natural() -> Compressor:
    """Rounds each number at random to a power of two: unbiased, 9 bits a float32, 12 bits a float64.

    It contracts whatever the tensor's size (zeta = 7/8), so it suits compressed gossip (CHOCO) at gamma = 1
    as well as methods that ask for unbiased operators.

    >>> sj.natural().bits((1000,))
    9000
    >>> sj.natural().compress(jnp.array([4.0, -0.5, 0.0]), jax.random.key(0))  # powers of two stay
    Array([ 4. , -0.5,  0. ], dtype=float32)
    """
    return Natural()
