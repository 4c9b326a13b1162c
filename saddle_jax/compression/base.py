"""The interface of compressors, and the identity."""

import abc
import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array, Key
from saddle_jax.compression import packing


@functools.partial(jax.tree_util.register_dataclass, data_fields=["data"], meta_fields=["shape", "dtype"])
@dataclasses.dataclass(frozen=True)
class Payload:
    """One encoded tensor. Sender and receiver know its shape and dtype, which are the model's.

    Attributes:
      data: the bytes that would be sent, uint8 [length].
      shape: the tensor's shape.
      dtype: the tensor's dtype.

    >>> payload = sj.quantize(8).encode(jnp.ones(100), jax.random.key(0))
    >>> payload.data.nbytes, payload.shape
    (117, (100,))
    """

    data: Array
    shape: tuple[int, ...]
    dtype: np.dtype


@dataclasses.dataclass(frozen=True)
class Compressor(abc.ABC):
    """A compression operator Q on one tensor, pure in (x, key).

    Q acts on each parameter tensor separately. A new operator is a frozen dataclass that defines
    `compress_vector`, and `stochastic` if it draws random numbers. For its encoding it also needs
    `encode_vector` and `decode_vector`, and for its cost `payload_bytes` and `paper_bits_of`. Tensors are
    checked here and passed on as non-empty vectors.

    An operator that depends on the tensor's shape, such as `sj.low_rank`, defines `compress_tensor`,
    `encode_tensor`, `decode_tensor`, `tensor_bytes` and `tensor_paper_bits` instead. By default these
    flatten the tensor to a vector.

    >>> sj.sign().compress(jnp.array([1.0, -3.0]))  # the signs, times the mean size
    Array([ 2., -2.], dtype=float32)
    >>> sj.sign().bits((1000,)), sj.sign().paper_bits((1000,))
    (1032, 1000)
    """

    @property
    def stochastic(self) -> bool:
        """Whether Q draws random numbers, and so needs a key."""
        return False

    @final
    def compress(self, x: Array, key: Key | None = None) -> Array:
        """Returns Q(x), of x's shape and dtype. The key is consumed; deterministic operators take None."""
        x = self._checked(x, key)
        return x if x.size == 0 else self.compress_tensor(x, key)

    @final
    def encode(self, x: Array, key: Key | None = None) -> Payload:
        """Packs Q(x) into bytes, such that `decode(encode(x, key)) == compress(x, key)`."""
        x = self._checked(x, key)
        sections = [] if x.size == 0 else self.encode_tensor(x, key)
        data = jnp.concatenate([jnp.zeros(0, jnp.uint8), *sections])
        return Payload(data, x.shape, np.dtype(x.dtype))

    @final
    def decode(self, payload: Payload) -> Array:
        """Returns the tensor that a payload of this operator encodes."""
        if math.prod(payload.shape) == 0:
            return jnp.zeros(payload.shape, payload.dtype)
        return self.decode_tensor(payload.data, payload.shape, payload.dtype)

    @final
    def bits(self, shape: Sequence[int], dtype: Any = np.float32) -> int:
        """Returns the exact length of a payload in bits, 8 per byte sent; it depends on the shape alone."""
        return 8 * self.tensor_bytes(tuple(shape), np.dtype(dtype).itemsize) if math.prod(shape) else 0

    @final
    def paper_bits(self, shape: Sequence[int]) -> int:
        """Returns the bits as the paper's tables count them: no norms, scales or signs, 16-bit indices."""
        return self.tensor_paper_bits(tuple(shape)) if math.prod(shape) else 0

    def contraction(self, shape: Sequence[int]) -> float | None:
        """Returns a zeta > 0 with E||Q(x) - x||^2 <= (1 - zeta) ||x||^2 for all x, or None."""
        del shape
        return None

    @abc.abstractmethod
    def compress_vector(self, x: Array, key: Any) -> Array:
        """Returns Q of a vector [size], size >= 1; `key` is None unless the operator is `stochastic`."""

    def encode_vector(self, x: Array, key: Any) -> list[Array]:
        """Returns the payload of a vector [size] as uint8 vectors, in the order of sending; see `packing`."""
        raise NotImplementedError(f"{self} has no encoding: define encode_vector and decode_vector")

    def decode_vector(self, data: Array, size: int, dtype: np.dtype) -> Array:
        """Returns the vector [size] that `encode_vector` encoded as these bytes."""
        raise NotImplementedError(f"{self} has no encoding: define encode_vector and decode_vector")

    def payload_bytes(self, size: int, itemsize: int) -> int:
        """Returns the number of bytes of `encode_vector` for `size` numbers of `itemsize` bytes."""
        raise NotImplementedError(f"{self} does not tell its cost: define payload_bytes")

    def paper_bits_of(self, size: int) -> int:
        """Returns the bits for `size` numbers as the paper counts them."""
        raise NotImplementedError(f"{self} does not tell its cost: define paper_bits_of")

    def compress_tensor(self, x: Array, key: Any) -> Array:
        """Returns Q of a non-empty tensor [...]; by default Q of its entries as one vector."""
        return self.compress_vector(x.reshape(-1), key).reshape(x.shape)

    def encode_tensor(self, x: Array, key: Any) -> list[Array]:
        """Returns the payload of a tensor [...] as uint8 vectors, in the order of sending."""
        return self.encode_vector(x.reshape(-1), key)

    def decode_tensor(self, data: Array, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        """Returns the tensor that `encode_tensor` encoded as these bytes."""
        return self.decode_vector(data, math.prod(shape), dtype).reshape(shape)

    def tensor_bytes(self, shape: tuple[int, ...], itemsize: int) -> int:
        """Returns the number of bytes of `encode_tensor` for a tensor of numbers of `itemsize` bytes."""
        return self.payload_bytes(math.prod(shape), itemsize)

    def tensor_paper_bits(self, shape: tuple[int, ...]) -> int:
        """Returns the bits for a tensor of this shape as the paper counts them."""
        return self.paper_bits_of(math.prod(shape))

    def _checked(self, x: Array, key: Key | None) -> Array:
        x = jnp.asarray(x)
        if not jnp.issubdtype(x.dtype, jnp.floating):
            raise ArgumentError(f"x must be a real floating-point tensor to be compressed, got {x.dtype}")
        if x.dtype.itemsize < 2:
            raise ArgumentError(f"x must have at least 16 bits per number to be compressed, got {x.dtype}")
        if self.stochastic and key is None:
            raise ArgumentError(f"key must be given to {self}, which draws random numbers, got None")
        return x


@dataclasses.dataclass(frozen=True)
class Identity(Compressor):
    """The identity, Q(x) = x."""

    def __repr__(self) -> str:
        return "identity()"

    def contraction(self, shape: Sequence[int]) -> float:
        del shape
        return 1.0

    def compress_vector(self, x: Array, key: Any) -> Array:
        del key
        return x

    def encode_vector(self, x: Array, key: Any) -> list[Array]:
        del key
        return [packing.pack_floats(x)]

    def decode_vector(self, data: Array, size: int, dtype: np.dtype) -> Array:
        return packing.unpack_floats(data, size, dtype)

    def payload_bytes(self, size: int, itemsize: int) -> int:
        return size * itemsize

    def paper_bits_of(self, size: int) -> int:
        return 32 * size


def identity() -> Compressor:
    """The identity: every number is sent as it is.

    >>> sj.identity().bits((1000,))
    32000
    """
    return Identity()
