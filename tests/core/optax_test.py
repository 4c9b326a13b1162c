"""Methods as optax transforms: the same steps as `method.step`, in optax's own company."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from composed import COMPOSED
from suited import PLAIN, plain

import saddle_jax as sj

STEPS, AGENTS = 60, 8
RING = sj.ring(AGENTS)
IRREGULAR = sj.directed(np.random.default_rng(0).random((AGENTS, AGENTS)) < 0.5)
START = sj.replicate({"w": jnp.zeros(5), "b": jnp.zeros((2, 2))}, AGENTS)
DATA = jax.random.normal(jax.random.key(1), (STEPS, AGENTS, 2, 5)) / 2
DATA += jnp.linspace(0, 0.5, AGENTS)[None, :, None, None]  # agents differ; models stay below one


def loss_fn(params, targets):  # of one agent's samples [B, 5]
    first = targets[:, :4].reshape(-1, 2, 2)
    return jnp.mean((params["w"][None] - targets) ** 2) + jnp.mean((params["b"][None] - first) ** 2)


METHODS = {
    **{name: lambda name=name: sj.METHODS[name](RING, 0.1) for name in (
        "qgm", "momentum_tracking", "decentlam", "kgt", "dfedavgm",
    )},
    **{name: lambda name=name: sj.METHODS[name](RING, 0.1, **PLAIN) for name in (
        "dpsgd", "gradient_tracking", "d2", "dcd", "ecd",
    )},
    **{f"{name} by half": lambda name=name: sj.METHODS[name](
        RING, 0.05, compressor=sj.top_k(0.5), **plain(name)
    ) for name in ("beer", "motef", "ada_gossip")},
    "deep_squeeze by signs": lambda: sj.deep_squeeze(RING, 0.1, compressor=sj.sign(), gamma=0.3, **PLAIN),
    "qgm by half": lambda: sj.qgm(RING, 0.1, gossip=sj.choco(sj.top_k(0.5), 0.4)),
    "dpsgd in rounds": lambda: sj.dpsgd(RING, 0.1, beta=0.9, local_steps=3),
    "slowmo": lambda: sj.slowmo(sj.dpsgd(RING, 0.1, **PLAIN), 0.1, every=4),
    "a mean at first": lambda: sj.momentum_tracking(RING, 0.1, init="mean"),
    "relay_sgd": lambda: sj.relay_sgd(sj.binary_tree(AGENTS), 0.1, **PLAIN),
    "sgp": lambda: sj.sgp(IRREGULAR, 0.1, **PLAIN),
    "push_diging": lambda: sj.push_diging(IRREGULAR, 0.05),
    "graphs that take turns": lambda: sj.dpsgd(sj.one_peer_exponential(AGENTS), 0.1, **PLAIN),
    "lost messages": lambda: dataclasses.replace(sj.dpsgd(RING, 0.1), faults=sj.Faults(drop=0.2)),
    "late messages": lambda: dataclasses.replace(sj.qgm(RING, 0.1), faults=sj.Faults(delay=2)),
    "adam": lambda: COMPOSED["adam"](RING, 0.01),
    "two gossips": lambda: COMPOSED["gradient_tracking"](RING, 0.05, sj.top_k(0.5)),
}  # fmt: skip


# ECD sends x extrapolated t / 2 times: rounding grows with t.
BOUNDS = {"ecd": 4e-6}


def key_of(t):
    return jax.random.fold_in(jax.random.key(7), t)


def by_method(method, data=DATA, loss_fn=loss_fn):
    """The models and the state after all steps of a method."""

    def step(carry, inputs):
        t, batch = inputs
        return method.step(loss_fn, *carry, batch, key_of(t))[:2], None

    start = (START, method.init(START))
    return jax.jit(lambda data: jax.lax.scan(step, start, (jnp.arange(len(data)), data))[0])(data)


def by_optax(tx, data=DATA, gradients=None, **extra):
    """The models and the state after all steps of anybody's optax loop."""
    gradients = sj.local_gradients(loss_fn) if gradients is None else gradients

    def step(carry, inputs):
        (params, state), (t, batch) = carry, inputs
        named = {name: make(t) for name, make in extra.items()}
        updates, state = tx.update(gradients(params, batch), state, params, **named)
        return (optax.apply_updates(params, updates), state), None

    start = (START, tx.init(START))
    return jax.jit(lambda data: jax.lax.scan(step, start, (jnp.arange(len(data)), data))[0])(data)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_takes_the_same_steps_as_a_transform(name):
    method = METHODS[name]()
    params, state = by_optax(sj.as_optax(method), key=key_of)
    expected, after = by_method(method)
    chex.assert_trees_all_close(params, expected, rtol=0, atol=BOUNDS.get(name, 4e-7))
    chex.assert_trees_all_equal_shapes_and_dtypes(state, after)
    assert int(state.t) == STEPS
    assert np.abs(params["w"]).max() > 0.1


def test_a_compressor_that_draws_takes_the_same_draws():
    """A number may fall on the next level by rounding, of x + (x' - x): 60 steps are not as close."""
    tx = sj.as_optax(method := sj.qgm(RING, 0.1, gossip=sj.choco(sj.quantize(4), 0.4)))
    few, _ = by_optax(tx, DATA[:3], key=key_of)
    chex.assert_trees_all_close(few, by_method(method, DATA[:3])[0], rtol=0, atol=4e-7)
    others, _ = by_optax(tx, DATA[:3], key=lambda t: key_of(t + 1))
    assert np.abs(others["w"] - few["w"]).max() > 1e-4
    many, _ = by_optax(tx, key=key_of)
    chex.assert_trees_all_close(many, by_method(method)[0], rtol=0, atol=0.05)


def test_sharpness_aware_gradients_are_taken_outside():
    for estimator in (sj.sam(0.05), sj.sam(0.05, every=3), sj.asam(), sj.esam()):
        taken = sj.local_gradients(loss_fn, estimator)
        tx = sj.as_optax(sj.qgm(RING, 0.1))

        def step(carry, inputs, taken=taken, tx=tx):
            (params, state), (t, batch) = carry, inputs
            updates, state = tx.update(taken(params, batch, key_of(t), t), state, params)
            return (optax.apply_updates(params, updates), state), None

        steps = (jnp.arange(STEPS), DATA)
        (params, _), _ = jax.lax.scan(step, (START, tx.init(START)), steps)
        expected, _ = by_method(sj.saddle(sj.qgm(RING, 0.1), estimator))
        chex.assert_trees_all_close(params, expected, rtol=0, atol=1e-6)


def test_in_a_chain():
    chain = optax.chain(sj.per_agent(optax.clip_by_global_norm(0.5)), sj.as_optax(sj.qgm(RING, 0.1)))
    params, _ = by_optax(chain)

    def clipped(s, x, state):
        g = s.gradient(x)
        norm = sj.agent_norms(g)
        g = jax.tree.map(lambda g: g * jnp.minimum(1, 0.5 / norm).reshape(-1, *(1,) * (g.ndim - 1)), g)
        oracle = dataclasses.replace(s, oracle=type("Clipped", (), {"own": lambda self, x, along: g})())
        return sj.qgm(RING, 0.1).rule.step(oracle, x, state)

    method = sj.Method("clipped", RING, sj.Rule(sj.qgm(RING, 0.1).rule.init, clipped))
    chex.assert_trees_all_close(params, by_method(method)[0], rtol=0, atol=4e-7)


def test_in_multi_steps():
    """Two gradients are averaged and make one step: that on both batches."""
    method = sj.gradient_tracking(RING, 0.1, **PLAIN)
    tx = optax.MultiSteps(sj.as_optax(method), 2)
    params, _ = by_optax(tx, key=key_of)
    pairs = DATA.reshape(STEPS // 2, 2, *DATA.shape[1:]).swapaxes(1, 2)

    def of_both(params, batch):
        return (loss_fn(params, batch[0]) + loss_fn(params, batch[1])) / 2

    chex.assert_trees_all_close(params, by_method(method, pairs, of_both)[0], rtol=0, atol=4e-7)


def test_in_apply_if_finite():
    """A step whose gradients are not finite is as if it had not been."""
    method = sj.momentum_tracking(RING, 0.1)
    tx = optax.apply_if_finite(sj.as_optax(method), max_consecutive_errors=3)
    params, state = by_optax(tx, DATA.at[5].set(jnp.nan), key=key_of)
    assert int(state.total_notfinite) == 1
    expected, _ = by_method(method, jnp.concatenate([DATA[:5], DATA[6:]]))
    chex.assert_trees_all_close(params, expected, rtol=0, atol=4e-7)


def test_inside_another_method_it_uses_the_network_of_that_method():
    chain = optax.chain(sj.neighbourhood_mean(RING), sj.as_optax(sj.qgm(RING, 0.1)))
    method = sj.Method("mine", RING, sj.rule_of(chain, gradients="pairs"))
    assert len(method.trace(START)[0].rounds) == 3  # models out, gradients back, gossip
    padded = dataclasses.replace(method, topology=RING.padded(AGENTS + 4))
    models = sj.replicate({"w": jnp.zeros(5), "b": jnp.zeros((2, 2))}, AGENTS + 4)
    batch = jnp.pad(DATA[0], ((0, 4), (0, 0), (0, 0)))
    wide = padded.step(loss_fn, models, padded.init(models), batch)[0]
    narrow = method.step(loss_fn, START, method.init(START), DATA[0])[0]
    chex.assert_trees_all_close(jax.tree.map(lambda x: x[:AGENTS], wide), narrow, atol=1e-6)


def elsewhere(s, x, state):
    return s.network.mix(s.gradient(jax.tree.map(jnp.negative, x))), state


REFUSED = {
    "another point": (lambda: sj.gut(RING, 0.1), "got gut, one that asks elsewhere"),
    "own rule": (
        lambda: sj.Method("mine", RING, sj.Rule(lambda x: (), elsewhere)), "got mine, one that asks elsewhere"
    ),
    "mean of pairs": (lambda: sj.ngm(RING, 0.1), "got ngm, one that asks for its neighbours' gradients"),
    "pairs": (lambda: sj.cga(RING, 0.1), "got cga, one that asks for its neighbours' gradients"),
    "sam": (
        lambda: sj.q_saddle(RING, 0.1, rho=0.05),
        r"sj.local_gradients\(loss_fn, sam\(rho=0.05\)\), got q_saddle\(ring\(8\)",
    ),
    "timing": (
        lambda: dataclasses.replace(sj.qgm(RING, 0.1), timing=sj.Timing(compute=1.0)), "timing must be None"
    ),
    "no method": (lambda: 5, "method must be a Method.* got 5"),
    "no models": (lambda: sj.qgm(RING, 0.1), "params must be given to update"),
    "models of others": (lambda: sj.qgm(RING, 0.1), r"params\['b'\] must have leading axis A = 8"),
}  # fmt: skip


def attempt(name, method):
    """Makes a transform and its state, and an update that lacks something."""
    tx = sj.as_optax(method)
    state = tx.init(START)
    rows = sj.replicate({"w": jnp.zeros(5), "b": jnp.zeros((2, 2))}, 9)
    tx.update(rows, state, rows if name == "models of others" else None)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_transform_is_refused_in_words(name):
    make, message = REFUSED[name]
    method = make()
    with pytest.raises(sj.ArgumentError, match=message):
        attempt(name, method)


def test_a_rule_that_asks_twice_is_refused():
    def twice(s, x, state):
        return jax.tree.map(jnp.add, s.gradient(x), s.gradient(x)), state

    with pytest.raises(sj.ArgumentError, match="got mine, one that asks twice"):
        sj.as_optax(sj.Method("mine", RING, sj.Rule(lambda x: (), twice))).init(START)


def test_kinds_and_faults_belong_to_the_method_around_a_chain():
    faulty = dataclasses.replace(sj.dpsgd(RING, 0.1), faults=sj.Faults(drop=0.2))
    for inner in (sj.dpsgd(RING, 0.1, local_steps=2), faulty):
        method = sj.Method("mine", RING, sj.rule_of(sj.as_optax(inner)))
        with pytest.raises(sj.ArgumentError, match="steps of one kind and no faults of its own"):
            method.init(START)


@pytest.mark.parametrize("gossip", [None, sj.choco(sj.top_k(0.5), 0.4)], ids=["exact", "choco"])
@pytest.mark.parametrize("graph", [RING, sj.alternate(RING, sj.path(AGENTS))], ids=["ring", "turns"])
def test_a_decentralized_optimizer_gossips_behind_its_own_step(gossip, graph):
    if gossip is not None and graph is not RING:
        pytest.skip("public copies need links that stay")
    momentum = optax.sgd(0.1, momentum=0.9)  # not Adam, whose first updates are equal: top-k could take any
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), momentum)
    params, _ = by_optax(sj.decentralize(optimizer, graph, gossip))
    behind = sj.gossip(graph) if gossip is None else sj.choco_gossip(graph, sj.top_k(0.5), 0.4)
    chain = optax.chain(sj.per_agent(optax.clip_by_global_norm(0.5)), momentum, behind)
    expected, _ = by_method(sj.Method("mine", graph, sj.rule_of(chain)))
    chex.assert_trees_all_close(params, expected, rtol=0, atol=4e-7)
    with pytest.raises(sj.ArgumentError, match="optimizer must be a GradientTransformation"):
        sj.decentralize(graph, optimizer)


def test_a_decentralized_optimizer_clips_each_agent_by_itself():
    tx, x = sj.decentralize(optax.clip_by_global_norm(1.0), sj.isolated(2)), jnp.zeros((2, 2))
    updates, _ = tx.update(jnp.array([[3.0, 4.0], [0.3, 0.4]]), tx.init(x), x)
    np.testing.assert_allclose(updates, [[0.6, 0.8], [0.3, 0.4]], rtol=1e-6)
