"""What every estimator must hold, those of the table and those to come: one test per law."""

import functools

import chex
import jax
import jax.numpy as jnp
import pytest
from composed import COMPOSED
from examples_of import needed, one_of_each

import saddle_jax as sj
from saddle_jax import testing
from saddle_jax.base.registry import parameters_of
from saddle_jax.sam import GRADIENTS

EVERY = one_of_each(GRADIENTS)
every_gradient = pytest.mark.parametrize("name", EVERY)
# The first option of most is the radius of their perturbation.
climbing = pytest.mark.parametrize(
    "name", [name for name in EVERY if next(iter(parameters_of(GRADIENTS[name])), "").startswith("rho")]
)


def loss_fn(params, batch):
    return jnp.sum((params["x"] - batch) ** 2)


# What a law does not apply to, and why.
EXCEPTIONS = {
    "a radius of zero is the plain gradient": ("plain",),  # which has none
    "permuting the agents permutes the result": ("esam",),  # which draws what it perturbs
}


@every_gradient
def test_every_invariant_holds(name):
    results = testing.check_gradient(GRADIENTS[name], needed(GRADIENTS[name]))
    silent = {each.invariant for each in results if each.status == "does not apply"}
    assert silent == {law for law, names in EXCEPTIONS.items() if name in names}


@pytest.mark.parametrize("make", [sj.sam, sj.asam, sj.looksam, sj.gsam, sj.esam, sj.lesam])
def test_no_radius_costs_no_pass(make):
    assert str(make(0.0)) == "plain()"


@climbing
def test_a_radius_that_is_no_length_is_refused(name):
    option = next(iter(parameters_of(GRADIENTS[name])))
    for wrong in (-0.1, float("nan"), "0.1"):
        with pytest.raises(sj.ArgumentError, match=f"^{option} must be a number >= 0, got {wrong!r}$"):
            GRADIENTS[name](wrong)


@every_gradient
def test_every_composed_method_takes_it(name):
    """The others meet all estimators in tests/methods/meetings_test.py."""
    params = {"x": jnp.zeros((6, 3))}
    for factory in COMPOSED.values():
        saddle = sj.saddle(factory(sj.ring(6), 0.1), EVERY[name])
        step = functools.partial(saddle.step, loss_fn)
        state = jax.eval_shape(saddle.init, params)
        after = jax.eval_shape(step, params, state, jnp.zeros((6, 3)), jax.random.key(0))
        chex.assert_trees_all_equal_shapes_and_dtypes(after[:2], (params, state))
