"""Packing of numbers into bytes and back: the only place that knows the bits of a payload."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base.types import Array


def packed_length(count: int, width: int) -> int:
    """Returns the number of bytes that `count` integers of `width` bits take, the last byte padded."""
    return -(-count * width // 8)


def pack_integers(values: Array, width: int) -> Array:
    """Packs unsigned integers [count] of `width` bits each, one after the other, into uint8 [length]."""
    shifts = jnp.arange(width, dtype=jnp.uint32)
    bits = (values.astype(jnp.uint32)[:, None] >> shifts[None]) & 1
    return jnp.packbits(bits.astype(jnp.uint8).reshape(-1), bitorder="little")


def unpack_integers(data: Array, count: int, width: int) -> Array:
    """Returns the uint32 [count] that `pack_integers` packed."""
    bits = jnp.unpackbits(data, count=count * width, bitorder="little").reshape(count, width)
    shifts = jnp.arange(width, dtype=jnp.uint32)
    return jnp.sum(bits.astype(jnp.uint32) << shifts[None], axis=1, dtype=jnp.uint32)


def pack_floats(values: Array) -> Array:
    """Returns the raw bytes of floating-point or 32-bit integer numbers [count], uint8 [length]."""
    return jax.lax.bitcast_convert_type(values, jnp.uint8).reshape(-1)


def unpack_floats(data: Array, count: int, dtype: np.dtype) -> Array:
    """Returns the numbers [count] of a dtype that `pack_floats` packed."""
    return jax.lax.bitcast_convert_type(data.reshape(count, dtype.itemsize), dtype)


def largest(dtype: Any) -> float:
    """Returns the largest finite number of a floating-point dtype."""
    return float(jnp.finfo(dtype).max)  # type: ignore[no-untyped-call]  # untyped in JAX


class Layout(NamedTuple):
    """The numbers of bits of a floating-point number after its sign: exponent, then mantissa."""

    bits: int
    exponent: int
    mantissa: int


def layout(dtype: Any) -> Layout:
    """Returns the numbers of bits of a floating-point dtype."""
    form: Any = jnp.finfo(dtype)  # type: ignore[no-untyped-call]  # untyped in JAX
    return Layout(form.bits, form.nexp, form.nmant)
