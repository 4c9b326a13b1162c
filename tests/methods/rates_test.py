"""On a convex task with exact gradients, exact methods reach the known optimum at a linear rate."""

import jax
import numpy as np
import pytest

import saddle_jax as sj
from saddle_jax import data
from saddle_jax.methods import METHODS
from saddle_jax.settings.settings import Settings
from saddle_jax.training.build import build

STEPS = 400
# What each ends with after three times so many steps, in float64; its share of what it had after two.
EXACT = {
    "gradient_tracking": 1e-9,
    "d2": 1e-9,
    "momentum_tracking": 1e-9,
    "push_diging": 1e-9,
    "beer": 1e-9,
    "motef": 1e-9,
    "relay_sgd": 1e-3,
    "kgt": 1e-2,
}


def distances(spelling, dtype=np.float64):
    """From the optimum, of the consensus model after one, two and three times so many steps."""
    spec = METHODS.parse(spelling).with_option("weight_decay", 0.01)
    if "beta" in METHODS.options(spec):
        spec = spec.with_option("beta", 0.0)
    run = build(
        Settings(
            dataset="convex(dimension=5, samples=200)",
            method=str(spec),
            topology="path" if spec.name == "relay_sgd" else "ring",
            agents=5,
            batch_size=0,
            learning_rate=0.2,
            schedule="constant",
        )
    )
    method = run.method_on(run.topology)
    samples, mask = run.batches.step(0, 0)
    params, batch = jax.tree.map(
        lambda leaf: leaf.astype(dtype),
        (run.first_params(), {**data.take(run.dataset.train, samples), "mask": mask}),
    )

    @jax.jit
    def go(carry, key):
        def step(carry, key):
            return method.step(run.loss_fn, *carry, batch, key)[:2], None

        return jax.lax.scan(step, carry, jax.random.split(key, STEPS))[0]

    carry, found = (params, method.init(params)), []
    for number in range(3):
        carry = go(carry, jax.random.key(number))
        found.append(run.evaluate(sj.consensus(carry[0]))["distance"])
    return found


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", EXACT)
def test_exact_methods_reach_the_optimum_at_a_linear_rate(name):
    whole = "gamma" in METHODS.options(name)  # at their own small gamma some would need more steps
    first, second, third = distances(f"{name}(gamma=1.0)" if whole else name)
    assert third < EXACT[name]
    assert second < 0.2 * first
    assert third < 0.2 * second or third < 1e-12


@pytest.mark.usefixtures("x64")
def test_others_end_beside_it():
    _, second, third = distances("dpsgd")
    assert third > 1e-3
    assert third == pytest.approx(second, rel=1e-3)


def test_in_float32_rounding_adds_up_in_two_variants_of_d2():
    assert distances("gradient_tracking", np.float32)[-1] < 5e-6
    assert distances("d2(variant=relay)", np.float32)[-1] < 2e-5
    for variant in ("plus", "original"):
        _, second, third = distances(f"d2(variant={variant})", np.float32)
        assert third > 1e-5
        assert third - second > 0
