"""Low rank, as PowerSGD: Vogels et al., "PowerSGD: practical low-rank gradient compression", NeurIPS 2019.

    P = orthogonalize(M Q_0),    Q = M^T P,    Q(M) = P Q^T = P P^T M

One step of power iteration on a tensor reshaped to a matrix M [n, m]. PowerSGD starts it from the Q of the
step before, which all workers share. An operator has no state, so Q_0 is Gaussian here (the paper's "cold
start") and differs between agents: both factors are sent.
"""

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
from saddle_jax.compression.base import Compressor, Identity


@dataclasses.dataclass(frozen=True)
class LowRank(Identity):
    """Q(x) projects a matrix [n, m] on the range of its product with `rank` random vectors.

    A tensor [..., m] is reshaped to a matrix [n, m]: the kernel of a convolution [h, w, in, out] has one
    column per output. The factors P [n, rank] and Q [m, rank] are sent in the tensor's dtype. If they are
    not smaller than the matrix, it is sent whole, as `sj.identity` does; so are vectors and scalars.
    """

    rank: int

    def __repr__(self) -> str:
        return f"low_rank({self.rank})"

    @property
    def stochastic(self) -> bool:
        return True

    def _sends_factors(self, shape: Sequence[int]) -> bool:
        n, m = _matrix_shape(shape)
        return self.rank * (n + m) < n * m

    def _sent_size(self, shape: Sequence[int]) -> int:
        return self.rank * sum(_matrix_shape(shape)) if self._sends_factors(shape) else math.prod(shape)

    def contraction(self, shape: Sequence[int]) -> float:
        # With M = U S V^T, G an orthonormal basis of the range of V^T Q_0, and A = S^2:
        # ||P^T M||^2 = tr((G^T A G)^-1 G^T A^2 G) >= tr(G^T A G), whose mean is rank / min(n, m) tr A,
        # and tr A = ||M||^2. Equal singular values attain it.
        return self.rank / min(_matrix_shape(shape)) if self._sends_factors(shape) else 1.0

    def compress_tensor(self, x: Array, key: Any) -> Array:
        if not self._sends_factors(x.shape):
            return super().compress_tensor(x, key)
        return _product(*self._factors(x, key)).reshape(x.shape)

    def encode_tensor(self, x: Array, key: Any) -> list[Array]:
        if not self._sends_factors(x.shape):
            return super().encode_tensor(x, key)
        return [packing.pack_floats(factor.reshape(-1)) for factor in self._factors(x, key)]

    def decode_tensor(self, data: Array, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        if not self._sends_factors(shape):
            return super().decode_tensor(data, shape, dtype)
        n, _ = _matrix_shape(shape)
        factors = packing.unpack_floats(data, self._sent_size(shape), dtype).reshape(-1, self.rank)
        return _product(factors[:n], factors[n:]).reshape(shape)

    def tensor_bytes(self, shape: tuple[int, ...], itemsize: int) -> int:
        return self.payload_bytes(self._sent_size(shape), itemsize)

    def tensor_paper_bits(self, shape: tuple[int, ...]) -> int:
        return self.paper_bits_of(self._sent_size(shape))

    def _factors(self, x: Array, key: Any) -> tuple[Array, Array]:
        """Returns P [n, rank] and Q [m, rank] of a tensor, in its dtype."""
        matrix = x.reshape(_matrix_shape(x.shape)).astype(_working_dtype(x.dtype))
        start = jax.random.normal(key, (matrix.shape[1], self.rank), matrix.dtype)
        # An orthogonalization has no derivative at zero: P is treated as a constant.
        # Only the range of P matters, so that matrices near the largest float may be scaled down.
        factor = jnp.where(jnp.max(jnp.abs(matrix)) > 2.0**100, 2.0**-60, 1.0).astype(matrix.dtype)
        reached = jax.lax.stop_gradient(jnp.matmul(matrix * factor, start, precision="highest"))
        basis = _rounded(jnp.linalg.qr(reached)[0], x.dtype)
        # Q is computed from P as it is sent, after rounding.
        weights = jnp.matmul(matrix.T, basis.astype(matrix.dtype), precision="highest")
        return basis, _rounded(_within(weights, x.dtype), x.dtype)


def _matrix_shape(shape: Sequence[int]) -> tuple[int, int]:
    """Returns [n, m] of a tensor [..., m], all axes but the last as rows; a vector is one row."""
    *rows, columns = (1, *shape)
    return math.prod(rows), columns


def _working_dtype(dtype: Any) -> np.dtype:
    """Returns float32 or wider: there is no orthogonalization in bfloat16."""
    return np.dtype(jnp.promote_types(dtype, jnp.float32))


def _rounded(x: Array, dtype: Any) -> Array:
    """Returns x rounded to a narrower dtype; XLA may remove a cast and its inverse, but not this rounding."""
    form = packing.layout(dtype)
    return jax.lax.reduce_precision(x, form.exponent, form.mantissa).astype(dtype)


def _product(basis: Array, weights: Array) -> Array:
    """Returns P Q^T [n, m], which sender and receiver compute alike: in float32 or wider, rounded once."""
    working = _working_dtype(basis.dtype)
    # The barrier makes the product equal to that of `decode`: fused with other operations it may differ.
    p, q = jax.lax.optimization_barrier((basis.astype(working), weights.astype(working)))
    return _within(jnp.matmul(p, q.T, precision="highest"), basis.dtype).astype(basis.dtype)


def _within(x: Array, dtype: Any) -> Array:
    """Returns x clipped to the finite range of a dtype."""
    largest = packing.largest(dtype)
    return jnp.clip(x, -largest, largest)


def low_rank(rank: int) -> Compressor:
    """Sends each tensor as the product of two thin matrices, found by one step of power iteration.

    It is a projection, so it suits compressed gossip (CHOCO) and error feedback, with a smaller gamma at
    lower rank: on random 16 x 16 tensors and a ring of eight, 0.2 at rank 2 and 0.5 at rank 4.

    Args:
      rank: columns of the thin matrices, >= 1. PowerSGD uses 1 to 4.

    >>> sj.low_rank(2).bits((3, 3, 64, 64))  # (576 + 64) * 2 numbers of 32 bits
    40960
    >>> sj.low_rank(2).bits((64,))  # vectors are sent whole
    2048
    >>> x = jnp.outer(jnp.array([1.0, 2.0, 3.0]), jnp.array([1.0, -1.0, 4.0]))  # of rank 1: nothing is lost
    >>> bool(jnp.allclose(sj.low_rank(1).compress(x, jax.random.key(0)), x))
    True
    """
    return LowRank(checks.whole("rank", rank, at_least=1))
