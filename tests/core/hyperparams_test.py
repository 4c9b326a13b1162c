"""Numbers in a method's state: read, set, annealed and swept, as with optax.inject_hyperparams."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import saddle_jax as sj

A, STEPS = 4, 6
X = jnp.linspace(-1.0, 1.0, 3 * A).reshape(A, 3)
BATCH = jax.random.normal(jax.random.key(0), (A, 3))
KEY = jax.random.key(1)


def loss(x, batch):
    return jnp.sum((x - batch) ** 2 + 0.1 * x**4)


def lossy(topology, learning_rate, beta=0.9, rho=0.05, drop=0.1):
    """A method whose gradients and network have numbers, too."""
    method = sj.saddle(sj.dpsgd(topology, learning_rate, beta=beta), sj.asam(rho))
    return dataclasses.replace(method, faults=sj.Faults(drop=drop))


def trained(method, state=None, steps=STEPS, step=None):
    params, state = X, method.init(X) if state is None else state
    step = step or jax.jit(lambda x, state, key: method.step(loss, x, state, BATCH, key)[:2])
    for t in range(steps):
        params, state = step(params, state, jax.random.fold_in(KEY, t))
    return params, state


def test_floats_are_leaves_of_the_state_and_all_else_is_constant():
    method = sj.inject_hyperparams(sj.dpsgd)(sj.ring(A), 0.1, beta=0.5, local_steps=2)
    state = method.init(X)
    assert {name: float(each) for name, each in state.hyperparams.items()} == pytest.approx(
        {"learning_rate": 0.1, "beta": 0.5}
    )
    assert sj.dpsgd(sj.ring(A), 0.1).init(X).hyperparams == ()
    static = sj.inject_hyperparams(sj.dpsgd, static_args=("learning_rate",))(sj.ring(A), 0.1, beta=0.5)
    assert set(static.init(X).hyperparams) == {"beta"}
    assert repr(method) == repr(sj.dpsgd(sj.ring(A), 0.1, beta=0.5, local_steps=2))


def test_one_compiled_step_takes_all_numbers_and_is_each_method_alone():
    made = sj.inject_hyperparams(lossy)(sj.ring(A), 0.1, beta=0.0, rho=0.0, drop=0.0)
    step = jax.jit(lambda x, state, key: made.step(loss, x, state, BATCH, key)[:2])
    ends = []
    for numbers in ({"beta": 0.0, "rho": 0.0, "drop": 0.0}, {"beta": 0.9, "rho": 0.2, "drop": 0.4}):
        state = made.init(X)
        arrays = {name: jnp.float32(number) for name, number in numbers.items()}
        state = state._replace(hyperparams={**state.hyperparams, **arrays})
        found, _ = trained(made, state, step=step)
        alone, _ = trained(lossy(sj.ring(A), 0.1, **numbers))
        chex.assert_trees_all_close(found, alone, atol=2e-7, rtol=1e-6)
        ends.append(found)
    assert step._cache_size() == 1
    assert np.abs(ends[0] - ends[1]).max() > 1e-3


def test_runs_are_states_under_vmap():
    made = sj.inject_hyperparams(lossy)(sj.one_peer_exponential(A), 0.1, rho=0.05, drop=0.1)
    radii = jnp.array([0.0, 0.3])
    first = made.init(X)
    states = jax.vmap(lambda rho: first._replace(hyperparams={**first.hyperparams, "rho": rho}))(radii)
    step = jax.jit(jax.vmap(lambda x, s, key: made.step(loss, x, s, BATCH, key)[:2], (0, 0, None)))
    params = jnp.stack([X, X])
    for t in range(STEPS):
        params, states = step(params, states, jax.random.fold_in(KEY, t))
    for rho, found in zip(radii.tolist(), params, strict=True):
        alone, _ = trained(lossy(sj.one_peer_exponential(A), 0.1, rho=rho, drop=0.1))
        chex.assert_trees_all_close(found, alone, atol=1e-6)


def test_a_function_of_the_step_anneals_a_number():
    def radius(t):
        return 0.3 * jnp.exp(-t / 2)

    made = sj.inject_hyperparams(lossy)(sj.ring(A), lambda t: 0.1 / (1 + t), rho=radius)
    state = made.init(X)
    assert set(state.hyperparams) == {"rho"}  # the learning rate's schedule stays the method's own
    found, state = trained(made)
    assert float(state.hyperparams["rho"]) == pytest.approx(0.3 * np.exp(-(STEPS - 1) / 2))

    by_hand = sj.inject_hyperparams(lossy)(sj.ring(A), lambda t: 0.1 / (1 + t), rho=0.3)
    params, state = X, by_hand.init(X)
    for t in range(STEPS):
        state.hyperparams["rho"] = radius(t)
        params, state, _ = by_hand.step(loss, params, state, BATCH, jax.random.fold_in(KEY, t))
    chex.assert_trees_all_close(found, params, atol=1e-6)


def test_numbers_have_the_dtype_of_the_parameters():
    params = X.astype(jnp.bfloat16)
    method = sj.inject_hyperparams(sj.dpsgd)(sj.ring(A), 0.1, beta=0.5)
    state = method.init(params)
    assert {each.dtype for each in state.hyperparams.values()} == {jnp.dtype(jnp.bfloat16)}
    new, _, _ = method.step(lambda x, d: jnp.sum((x - d) ** 2), params, state, BATCH.astype(jnp.bfloat16))
    assert new.dtype == jnp.bfloat16


def test_parts_that_are_replaced_later_stay_replaced():
    method = sj.inject_hyperparams(sj.dpsgd)(sj.ring(A), 0.1)
    there, _ = trained(sj.saddle(method, sj.sam(0.3)))
    expected, _ = trained(sj.saddle(sj.dpsgd(sj.ring(A), 0.1), sj.sam(0.3)))
    chex.assert_trees_all_close(there, expected, atol=1e-6)
    assert np.abs(there - trained(method)[0]).max() > 1e-3


def test_an_optax_transform_takes_its_numbers_from_its_state():
    tx = sj.as_optax(sj.inject_hyperparams(sj.dpsgd)(sj.ring(A), 0.1, beta=0.5))
    alone = sj.as_optax(sj.dpsgd(sj.ring(A), 0.2, beta=0.0))
    state, other = tx.init(X), alone.init(X)
    state.hyperparams.update(learning_rate=jnp.float32(0.2), beta=jnp.float32(0.0))
    found, state = tx.update(BATCH, state, X)
    expected, _ = alone.update(BATCH, other, X)
    chex.assert_trees_all_close(found, expected, atol=1e-7)
    assert float(state.hyperparams["learning_rate"]) == pytest.approx(0.2)
    chain = sj.Method("chain", sj.ring(A), sj.rule_of(tx))
    state = chain.init(X)
    state.rule.hyperparams.update(learning_rate=jnp.float32(0.2), beta=jnp.float32(0.0))
    within, _, _ = chain.step(lambda x, g: x @ g, X, state, BATCH)
    chex.assert_trees_all_close(within, X + expected, atol=1e-6)


def test_mistakes_are_told():
    inject = sj.inject_hyperparams(sj.qgm)
    with pytest.raises(sj.ArgumentError, match=r"beta must be a number >= 0 and < 1, got 2.0"):
        inject(sj.ring(A), 0.1, beta=2.0)
    with pytest.raises(sj.ArgumentError, match=r"static_args must be arguments of qgm, got 'bta'"):
        sj.inject_hyperparams(sj.qgm, static_args="bta")
    with pytest.raises(sj.ArgumentError, match=r"the rule of qgm\+slowmo must not be replaced"):
        sj.slowmo(inject(sj.ring(A), 0.1), 0.1, every=2)
