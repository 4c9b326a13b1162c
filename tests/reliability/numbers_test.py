"""Class F: compressors, partitions and methods at the edges of what floats can say."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples_of import one_of_each

import saddle_jax as sj
from saddle_jax import data
from saddle_jax.compression import COMPRESSORS

CLASS = "F"
pytestmark = pytest.mark.slow

OPERATORS = [sj.quantize(1), sj.quantize(16), sj.quantize(2, biased=True), sj.low_rank(2), sj.top_k(0.01)]
OPERATORS += [each for each in one_of_each(COMPRESSORS).values() if each not in OPERATORS]


def edges(dtype, shape):
    """Tensors [V, *shape] of numbers at the edges of a dtype, and some in between; deterministic."""
    form = jnp.finfo(dtype)
    most, least, small = float(form.max), float(form.tiny), float(form.smallest_subnormal)
    numbers = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        most,
        -most,
        most / 2,
        least,
        -least,
        small,
        1 + float(form.eps),
        most / 1e3,
    ]
    size = int(np.prod(shape))
    rows = [np.full(size, value) for value in numbers]
    random = np.random.RandomState(0)
    rows += [random.choice(numbers, size) for _ in range(40)]
    rows += [random.normal(size=size) * scale for scale in (1e-3, 1.0, 1e3, most / 8, least * 8)]
    rows += [np.eye(1, size, k).ravel() * most for k in (0, size - 1)]
    with np.errstate(over="ignore"):
        return jnp.asarray(np.stack(rows).reshape(-1, *shape), dtype)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16], ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("operator", OPERATORS, ids=str)
def test_compressors_are_finite_and_travel(operator, dtype, attack):
    for shape in ((1,), (7,), (6, 5)):
        tensors = edges(dtype, shape)
        key = jax.random.key(0)
        compressed = jax.jit(jax.vmap(lambda x: operator.compress(x, key)))(tensors)  # noqa: B023
        travelled = jax.jit(jax.vmap(lambda x: operator.decode(operator.encode(x, key))))(tensors)  # noqa: B023
        for x, one, other in zip(
            *(np.asarray(each, np.float64) for each in (tensors, compressed, travelled)), strict=True
        ):
            with attack.attempt(f"{operator} {dtype.__name__} {x.ravel()[:4]}"):
                assert np.isfinite(one).all(), one
                np.testing.assert_array_equal(one, other)


KINDS = {
    "iid": ("",),
    "dirichlet": (0.05, 0.1, 1.0, 100.0, 1e6),
    "shards": (1, 2, 5),
    "per_agent_dirichlet": (1e-300, 1e-12, 1e-4, 1e-3, 0.1, 1.0, 1e6, 1e300),
    "quantity_skew": (1e-300, 1e-12, 1e-4, 1e-3, 0.1, 1.0, 1e6, 1e300),
}


@pytest.mark.parametrize("kind", KINDS)
def test_partitions_deal_each_sample_once_and_leave_nobody_out(kind, attack):
    labels = np.arange(120) % 10
    for alpha, agents, seed in itertools.product(KINDS[kind], (1, 2, 4, 9), range(25)):
        with attack.attempt(f"{kind}({alpha}) agents={agents} seed={seed}"):
            partition = data.make_partition(f"{kind}({alpha})", labels, agents, seed=seed)
            rows = [row[:size] for row, size in zip(partition.samples, partition.sizes, strict=True)]
            used = np.concatenate(rows)
            assert partition.sizes.min() >= 1
            assert len(np.unique(used)) == len(used) >= 120 - agents * (10 if kind == "shards" else 1)
            assert np.isfinite([partition.skew.entropy, partition.skew.earth_movers_distance]).all()


METHODS = ("dpsgd", "d_saddle", "qgm", "q_saddle", "ngm", "n_saddle")


@pytest.mark.parametrize("name", METHODS)
def test_methods_keep_finite_what_is_finite_and_nan_to_whom_it_belongs(name, attack):
    """Rates of zero, of nearly zero and large ones; on a graph without links NaN stays with its agent."""
    rho = {"rho": 0.1} if "saddle" in name else {}
    start = jnp.ones((3, 2))

    def steps(rate, batch):
        method = sj.METHODS[name](sj.isolated(3), lambda step: rate, **rho)
        x, state = start, method.init(start)
        for _ in range(3):
            x, state, _ = method.step(lambda x, d: jnp.sum((x - d) ** 2), x, state, batch)
        return x

    compiled = jax.jit(steps)
    for rate, gradient in itertools.product((0.0, 1e-45, 1e-39, 1e-30, 1e-3, 1.0), (0.0, 1e-30, 1.0, 1e10)):
        with attack.attempt(f"{name} rate={rate} gradient={gradient}"):
            batch = jnp.full((3, 2), gradient, jnp.float32)
            found = compiled(jnp.float32(rate), batch)
            assert bool(jnp.isfinite(found).all()), found
            spoilt = compiled(jnp.float32(rate), batch.at[1].set(jnp.nan))
            np.testing.assert_array_equal(spoilt[jnp.array([0, 2])], found[jnp.array([0, 2])])
