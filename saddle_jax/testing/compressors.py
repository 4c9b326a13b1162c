"""The invariants of compressors: decoding, encoded length, contraction and randomness."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base.types import Array, Key, Operator
from saddle_jax.compression.base import Compressor
from saddle_jax.core.gossip import compress_stacked
from saddle_jax.testing.invariants import InapplicableError, InvariantError, Result, results_of, verify
from saddle_jax.testing.randomness import draws_of
from saddle_jax.testing.trial import compiled

SHAPES = ((), (7,), (3, 3, 2), (2, 0, 3))
_DRAWS = 400  # of a mean


def check_compressor(
    factory: Callable[..., Compressor],
    options: dict[str, Any] | None = None,
    *,
    tell: Callable[[str], None] | None = None,
) -> list[Result]:
    """Checks every invariant of the operator that `factory(**options)` makes."""
    made = functools.cache(lambda: _made(factory, options or {}))
    with jax.enable_x64(True):
        return verify(results_of(INVARIANTS, made, tell, gates=1))


def it_is_an_operator_with_an_encoding(made: Callable[[], Compressor]) -> str:
    """Checks that the factory makes an operator with an encoding and a cost."""
    return str(made())


def decoding_gives_the_compressed_tensor_and_its_length_is_counted(made: Callable[[], Compressor]) -> str:
    """Checks encodings of random, zero and constant tensors of several shapes and dtypes."""
    for dtype in (jnp.float32, jnp.float64, jnp.bfloat16):
        for shape in SHAPES:
            for x in (_drawn(shape), jnp.zeros(shape), jnp.full(shape, -2.0)):
                check_payload(made(), x.astype(dtype), jax.random.key(3))
    return f"{len(SHAPES)} shapes in three dtypes"


def check_payload(operator: Compressor, x: Array, key: Key) -> None:
    """Checks that decoding an encoding gives Q(x), in the same shape and dtype, and that bits are exact."""
    compressed, data, decoded = _through_bytes(operator, x, key)
    what = f"of a tensor {x.dtype}{list(x.shape)}"
    if (compressed.shape, compressed.dtype) != (x.shape, x.dtype):
        raise InvariantError(f"Q(x) {what} is {compressed.dtype}{list(compressed.shape)}")
    if not np.isfinite(np.asarray(compressed, np.float64)).all():
        raise InvariantError(f"Q(x) {what} has numbers that are not finite")
    if (data.dtype, data.ndim) != (jnp.uint8, 1):
        raise InvariantError(f"the payload {what} must be uint8 [length], got {data.dtype}{list(data.shape)}")
    if decoded.dtype != x.dtype or not np.array_equal(decoded, compressed):
        raise InvariantError(f"decoding the payload {what} does not give Q(x)")
    counted = operator.bits(x.shape, x.dtype)
    if not isinstance(counted, int) or counted != 8 * data.size:
        raise InvariantError(f"the payload {what} has {8 * data.size} bits, and {counted} are counted")
    if not isinstance(operator.paper_bits(x.shape), int):
        raise InvariantError(f"paper_bits {what} must be an integer, got {operator.paper_bits(x.shape)!r}")


@functools.partial(compiled, static_argnums=0)
def _through_bytes(operator: Compressor, x: Array, key: Key) -> tuple[Array, Array, Array]:
    payload = operator.encode(x, key)
    return operator.compress(x, key), payload.data, operator.decode(payload)


def zeros_stay_zeros_and_derivatives_are_finite(made: Callable[[], Compressor]) -> str:
    """Checks that nothing is divided by a norm of zero, for single and for stacked tensors."""
    operator, key = made(), jax.random.key(0)

    @compiled
    def of(x: Array) -> tuple[Array, Array]:
        return operator.compress(x, key), jax.grad(lambda x: jnp.sum(operator.compress(x, key)))(x)

    for shape in SHAPES:
        pair = compiled(jax.vmap(operator.compress))(jnp.zeros((2, *shape)), jax.random.split(key, 2))
        result, slope = of(jnp.zeros(shape))
        if np.asarray(result).any() or np.asarray(pair).any():
            raise InvariantError(f"zeros {list(shape)} become {np.asarray(result).ravel()[:3]}")
        if not np.isfinite(slope).all() or not np.isfinite(of(_drawn(shape))[1]).all():
            raise InvariantError(f"derivatives of a tensor {list(shape)} are not finite")
    return f"{len(SHAPES)} shapes"


def random_numbers_come_from_the_key_and_from_nothing_else(made: Callable[[], Compressor]) -> str:
    """Checks that `stochastic` is right, that results depend on the key, and that one is required."""
    operator, x, keys = made(), _drawn((40, 30)), [jax.random.key(seed) for seed in (1, 1, 2, 3, 4)]
    draws = draws_of(jax.make_jaxpr(operator.compress)(x, keys[0]), [False, True])
    if draws.constant:
        raise InvariantError(
            f"{', '.join(draws.constant.values())} is drawn from a key that is always the same"
        )
    if draws.all and not operator.stochastic:
        raise InvariantError("it draws random numbers, and its `stochastic` is False")
    one, same, *others = (np.asarray(operator.compress(x, key)) for key in keys)
    if not np.array_equal(one, same):
        raise InvariantError("one key gives two results")
    if not operator.stochastic:
        if not np.array_equal(one, operator.compress(x)):
            raise InvariantError("its `stochastic` is False, and a key changes the result")
        return "it draws none"
    if all(np.array_equal(one, other) for other in others):
        raise InvariantError("its `stochastic` is True, and four keys give one result")
    return "four keys, several results"


def agents_and_tensors_are_compressed_each_on_its_own(made: Callable[[], Compressor]) -> str:
    """Checks that stacked tensors, of agents and of pairs, give the same results as separate ones."""
    operator, key = made(), jax.random.key(5)
    for lead in ((4,), (4, 3)):
        scales = 10.0 ** jnp.arange(4).reshape(4, *[1] * (len(lead) + 1))
        tree = {"a": _drawn((*lead, 6, 5)) * scales, "b": _drawn((*lead, 6, 5), seed=1) * scales}
        whole = compiled(lambda tree, lead=lead: compress_stacked(operator, tree, key, len(lead)))(tree)
        alone = compiled(operator.compress)
        for index in np.ndindex(*lead):
            for position, name in enumerate(tree):
                key_of_tensor = functools.reduce(jax.random.fold_in, index, jax.random.fold_in(key, position))
                expected = alone(tree[name][index], key_of_tensor)
                if not np.allclose(whole[name][index], expected, rtol=1e-6, atol=0):
                    raise InvariantError(f"tensor {name} of {index} becomes another one than it does alone")
    return "4 agents, and 12 pairs"


def it_contracts_as_it_promises(made: Callable[[], Compressor]) -> str:
    """Checks E||Q(x) - x||^2 <= (1 - zeta) ||x||^2 on random tensors, if the operator has a zeta."""
    promised = [check_contraction(made(), np.asarray(_drawn(shape))) for shape in ((), (7,), (4, 5))]
    if not any(promised):
        raise InapplicableError("it promises no contraction")
    return f"zeta {', '.join(f'{zeta:.2g}' for zeta in promised if zeta)}"


def check_contraction(operator: Compressor, x: np.ndarray) -> float | None:
    """Checks the contraction of an operator on one tensor; returns zeta, or None if it has none."""
    zeta = operator.contraction(x.shape)
    if zeta is None or x.size == 0 or not x.any():
        return zeta
    if not 0 < zeta <= 1:
        raise InvariantError(f"contraction must be a zeta in (0, 1], got {zeta} for {list(x.shape)}")
    draws = _DRAWS if operator.stochastic else 1
    x = x / np.abs(x).max()  # errors are squared and may overflow
    errors = _squared_errors(operator, x, jax.random.split(jax.random.key(0), draws))
    norm = np.sum(np.square(x, dtype=np.float64))
    noise = 5 * np.std(errors) / math.sqrt(draws) + 1e-5 * norm
    if np.mean(errors) > (1 - zeta) * norm + noise:
        raise InvariantError(
            f"zeta {zeta:.3g} is promised for {list(x.shape)}, and the error is {np.mean(errors) / norm:.3g}"
        )
    return zeta


@functools.partial(compiled, static_argnums=0)
def _squared_errors(operator: Compressor, x: Array, keys: Key) -> Array:
    return jax.vmap(lambda key: jnp.sum((operator.compress(x, key) - x) ** 2))(keys)


def _made(factory: Callable[..., Compressor], options: dict[str, Any]) -> Compressor:
    operator = factory(**options)
    if not isinstance(operator, Operator):
        raise InvariantError(f"the factory must return a Compressor, got {operator!r:.80}")
    if not hasattr(operator, "encode"):
        raise InvariantError("it has no encoding, so its bytes cannot be counted: make it an sj.Compressor")
    return operator


def _drawn(shape: tuple[int, ...], seed: int = 0) -> Array:
    return jax.random.normal(jax.random.key(seed), shape)


INVARIANTS = (
    it_is_an_operator_with_an_encoding,
    decoding_gives_the_compressed_tensor_and_its_length_is_counted,
    zeros_stay_zeros_and_derivatives_are_finite,
    random_numbers_come_from_the_key_and_from_nothing_else,
    agents_and_tensors_are_compressed_each_on_its_own,
    it_contracts_as_it_promises,
)
