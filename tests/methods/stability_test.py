"""Graphs on which D2 and GUT diverge are refused in one line, and only those."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from suited import PLAIN

import saddle_jax as sj
from saddle_jax.methods.momentum import inverse
from saddle_jax.methods.stability import smallest_eigenvalue


def spread(make, topology, steps=400):
    """How far apart agents are after gossip of so many steps, without gradients, from a distance of about 1.

    `make(one)` is handed a traced one: whoever multiplies by it is not checked.
    """

    @jax.jit
    def end(one):
        method = make(one)
        x = jnp.asarray(np.random.default_rng(0).normal(size=(topology.size, 3)))
        batch = jnp.zeros(topology.size)

        def body(carry, _):
            return method.step(lambda x, d: 0.0 * jnp.sum(x), *carry, batch)[:2], None

        (x, _), _ = jax.lax.scan(body, (x, method.init(x)), None, length=steps)
        return sj.consensus_distance(x)

    return float(end(1.0))


def gut(topology, mu, beta=0.0, nesterov=False):
    return lambda one: sj.gut(topology, 0.1, mu=mu * one, beta=beta, nesterov=nesterov, weight_decay=0.0)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("topology", "stable", "unstable"),
    [
        (sj.torus(5, 8), {"mu": 0.44}, {"mu": 0.48}),
        (sj.torus(4, 8), {"mu": 0.32}, {"mu": 0.35}),
        (sj.ring(16), {"mu": 0.9}, None),
        (sj.ring(16), {"mu": 0.05, "beta": 0.9}, {"mu": 0.13, "beta": 0.9}),
        (sj.torus(5, 8), {"mu": 0.05, "beta": 0.9}, {"mu": 0.13, "beta": 0.9}),
        (sj.ring(16), {"mu": 0.05, "beta": 0.9, "nesterov": True}, None),
        (
            sj.torus(5, 8),
            {"mu": 0.0, "beta": 0.4, "nesterov": True},
            {"mu": 0.0, "beta": 0.6, "nesterov": True},
        ),
        (sj.torus(5, 8), None, {"mu": 0.05, "beta": 0.9, "nesterov": True}),
        (
            sj.torus(4, 8),
            {"mu": 0.12, "beta": 0.2, "nesterov": True},
            {"mu": 0.17, "beta": 0.2, "nesterov": True},
        ),
    ],
    ids=lambda value: value.name if isinstance(value, sj.Topology) else str(value),
)
def test_gut_diverges_where_it_is_refused_and_nowhere_else(topology, stable, unstable):
    if stable:
        assert spread(gut(topology, **stable), topology) < 0.5
        sj.gut(topology, 0.1, **{**PLAIN, "nesterov": False} | stable)
    if unstable:
        assert spread(gut(topology, **unstable), topology) > 10
        with pytest.raises(ValueError, match=r"must be (below|above|False)"):
            sj.gut(topology, 0.1, **{**PLAIN, "nesterov": False} | unstable)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("topology", "stable"), [(sj.ring(5), True), (sj.torus(5, 8), False)], ids=str)
def test_d2_diverges_where_it_is_refused_and_nowhere_else(topology, stable):
    distance = spread(lambda one: sj.d2(topology, 0.1, half=False, gamma=one, **PLAIN), topology)
    if stable:
        assert distance < 1e-6
        sj.d2(topology, 0.1, half=False, **PLAIN)
    else:
        assert distance > 10
        with pytest.raises(ValueError, match="half must be True"):
            sj.d2(topology, 0.1, half=False)
    assert spread(lambda one: sj.d2(topology, 0.1, gamma=one, **PLAIN), topology, 2000) < 1e-6


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("steep", [True, False])
def test_d2_on_an_even_ring_without_half_warns_and_settles_where_the_loss_is_steep(steep):
    ring = sj.ring(8)
    with pytest.warns(UserWarning, match=r"^saddle_jax\.d2: half=False on ring\(8\), .* -1/3.*half=True"):
        method = sj.d2(ring, 0.1, half=False, **PLAIN)
    start = jnp.array(np.random.default_rng(0).normal(size=(8, 3)))
    targets, loss = start[::-1], lambda x, d: steep * jnp.sum((x - d) ** 2) / 2

    def step(carry, _):
        return method.step(loss, *carry, targets)[:2], None

    (x, _), _ = jax.lax.scan(step, (start, method.init(start)), None, 3000)
    if steep:
        np.testing.assert_allclose(x, jnp.broadcast_to(targets.mean(0), x.shape), atol=1e-9)
    else:  # the mode neither grows nor decays
        assert 0.1 < sj.consensus_distance(x) < 10


def test_d2_is_refused_just_below_the_eigenvalue_of_even_rings():
    lazy = sj.ring(8).mixing
    busier = sj.from_matrix(lazy - 0.01 * (np.eye(8) - lazy))
    with pytest.raises(ValueError, match="half must be True"):
        sj.d2(busier, 0.1, half=False, beta=0.0)
    in_float32 = sj.from_matrix(np.float32(lazy))
    with pytest.warns(UserWarning, match="half=False"):
        sj.d2(in_float32, 0.1, half=False, **PLAIN)
    sj.d2(sj.ring(8), 0.1, half=False, gamma=0.9, **PLAIN)


def test_the_words_say_what_to_change():
    torus = sj.torus(5, 8)
    with pytest.raises(
        ValueError, match=r"^half must be True on torus\(5, 8\), .* eigenvalue -0.524.* got False$"
    ):
        sj.d2(torus, 0.1, half=False)
    with pytest.raises(ValueError, match=r"^mu must be below 0.455 on torus\(5, 8\), .* got 0.9$"):
        sj.gut(torus, 0.1, mu=0.9, beta=0.0)
    with pytest.raises(ValueError, match=r"^mu must be below 0.455 on torus\(5, 8\), .* got 0.9$"):
        sj.gut(torus, 0.1, beta=0.0)
    with pytest.raises(ValueError, match=r"^mu must be below 1 - beta = 0.1, got 0.5$"):
        sj.gut(torus, 0.1, mu=0.5, beta=0.9)
    with pytest.raises(ValueError, match=r"^nesterov must be False on torus\(5, 8\).* no mu is stable"):
        sj.gut(torus, 0.1, beta=0.9, nesterov=True)
    with pytest.raises(ValueError, match=r"^mu must be a number >= 0, got -0.1$"):
        sj.gut(torus, 0.1, mu=-0.1)
    with pytest.raises(ValueError, match=r"^beta must be 0 for variant 'plus', got 0.9; variant='relay' has"):
        sj.d2(torus, 0.1, variant="plus", beta=0.9)
    with pytest.raises(ValueError, match=r"^momentum must be 'tracked' for variant 'diging', got 'updates'"):
        sj.gradient_tracking(torus, 0.1, variant="diging", momentum="updates")


@pytest.mark.parametrize(
    ("name", "option"),
    [("dpsgd", "variant"), ("gradient_tracking", "variant"), ("gradient_tracking", "momentum"),
     ("d2", "variant"), ("gut", "point"), ("momentum_tracking", "init"), ("sgp", "mixing"),
     ("push_diging", "mixing")],
)  # fmt: skip
def test_options_are_named_with_their_value(name, option):
    with pytest.raises(ValueError, match=f"{option} must be one of .* got 'other'"):
        sj.METHODS[name](sj.ring(5), 0.1, **{option: "other"})


def test_push_methods_alone_take_graphs_that_keep_mass():
    push = sj.from_matrix([[0.5, 0.0, 0.5], [0.25, 0.5, 0.0], [0.25, 0.5, 0.5]], name="push")
    for name in ("gradient_tracking", "d2", "gut", "momentum_tracking", "decentlam"):
        with pytest.raises(ValueError, match=f"{name} needs a topology that keeps the agents' average"):
            sj.METHODS[name](push, 0.1)
    for name in ("sgp", "push_diging"):
        assert sj.METHODS[name](push, 0.1).topology is push
        with pytest.raises(ValueError, match=f"{name} needs a topology that keeps the agents' sum"):
            sj.METHODS[name](sj.from_matrix(push.mixing.T), 0.1)


@pytest.mark.parametrize(
    ("name", "options"), [("gut", {"mu": 0.9, "beta": 0.0}), ("d2", {"half": False, "beta": 0.0})]
)
def test_a_slower_gossip_is_stable_with_more(name, options):
    with pytest.raises(ValueError, match="got"):
        sj.METHODS[name](sj.torus(5, 8), 0.1, **options)
    assert sj.METHODS[name](sj.torus(5, 8), 0.1, gamma=0.5, **options).name == name


def test_the_smallest_eigenvalue():
    assert smallest_eigenvalue(sj.ring(4)) == pytest.approx(-1 / 3)
    assert smallest_eigenvalue(sj.ring(5).padded(8)) == pytest.approx((1 + 2 * np.cos(4 * np.pi / 5)) / 3)
    assert smallest_eigenvalue(sj.exponential(8)) is None
    assert smallest_eigenvalue(sj.alternate(sj.ring(4), sj.path(4))) is None


@pytest.mark.parametrize("rate", [0.0, 1e-40, 1e-39, 1e-30], ids=str)
def test_a_learning_rate_without_a_finite_inverse_counts_as_zero(rate):
    """QGM divides its steps by the learning rate, which a schedule may bring near zero."""
    method = sj.qgm(sj.ring(3), lambda step: jnp.float32(rate), weight_decay=0.0)
    x = jnp.ones((3, 2))
    for _ in range(2):
        x, state, _ = method.step(lambda x, d: jnp.sum(x * d), x, method.init(x), jnp.ones((3, 2)))
    assert bool(jnp.isfinite(x).all())
    assert bool(jnp.isfinite(state.rule.m_hat).all())
    np.testing.assert_allclose(x, 1.0)
    assert float(inverse(jnp.float32(rate))) == (0.0 if rate < 1e-38 else pytest.approx(1 / rate))
