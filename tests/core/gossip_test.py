import chex
import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import saddle_jax as sj

GRAPHS = [sj.ring(12), sj.torus(n=20), sj.star(7), sj.exponential(9), sj.complete(6), sj.isolated(4)]


def stacked_tree(size, seed=0):
    random = np.random.default_rng(seed)
    return {"w": random.normal(size=(size, 3, 2)), "b": random.normal(size=(size,)), "e": np.zeros((size, 0))}


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("topology", GRAPHS, ids=lambda t: t.name)
@pytest.mark.parametrize("mixing", ["auto", "dense", "table"])
def test_mix_is_the_matrix_product(topology, mixing):
    tree = stacked_tree(topology.size)
    mixed = jax.jit(lambda t: sj.mix(topology, t, mixing))(tree)
    expected = jax.tree.map(lambda x: np.tensordot(topology.mixing, x, axes=1), tree)
    chex.assert_trees_all_close(mixed, expected, atol=1e-13)


@settings(deadline=None, max_examples=12)
@given(st.integers(2, 12), st.integers(0, 1000), st.sampled_from(["dense", "table"]), st.floats(0.01, 1.0))
def test_gossip_preserves_the_mean_and_contracts_on_any_graph(n, seed, mixing, gamma):
    graph = nx.gnp_random_graph(n, 0.3, seed=seed)
    graph.add_edges_from(nx.path_graph(n).edges)
    topology = sj.from_networkx(graph)
    with jax.enable_x64(True):
        params = jax.tree.map(jnp.asarray, stacked_tree(n, seed))
        transform = sj.gossip(topology, gamma, mixing=mixing)
        zero = jax.tree.map(jnp.zeros_like, params)
        updates, _ = transform.update(zero, transform.init(params), params)
        mixed = optax.apply_updates(params, updates)
        chex.assert_trees_all_close(sj.consensus(mixed), sj.consensus(params), atol=1e-12)
        rate = 1 - gamma * topology.spectral_gap if gamma <= 0.5 else 1.0
        assert sj.consensus_distance(mixed) <= rate * sj.consensus_distance(params) + 1e-12


def test_the_form_is_chosen_by_size_and_can_be_overridden():
    assert sj.mixing_form(sj.ring(5)) == sj.mixing_form(sj.complete(10)) == "table"
    assert sj.mixing_form(sj.ring(40)) == "table"
    assert sj.mixing_form(sj.complete(40)) == "dense"
    assert sj.mixing_form(sj.star(100)) == "dense"
    assert sj.mixing_form(sj.ring(40), "dense") == "dense"
    dense = str(jax.make_jaxpr(lambda x: sj.mix(sj.ring(40), x, "dense"))(jnp.zeros((40, 3))))
    table = str(jax.make_jaxpr(lambda x: sj.mix(sj.ring(40), x))(jnp.zeros((40, 3))))
    assert "dot_general" in dense
    assert "gather" not in dense
    assert "gather" in table
    assert "dot_general" not in table


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("of", ["updated", "current"])
def test_gossip_mixes_the_models_it_names(of):
    topology, gamma = sj.ring(5), 0.7
    random = np.random.default_rng(0)
    x, u = random.normal(size=(2, 5, 3))
    transform = sj.gossip(topology, gamma, of=of)
    updates, _ = transform.update({"x": u}, transform.init({"x": x}), {"x": x})
    w = topology.mixing
    point = x + u if of == "updated" else x
    expected = x + u + gamma * (w - np.eye(5)) @ point
    np.testing.assert_allclose(x + updates["x"], expected, atol=1e-13)


@pytest.mark.parametrize("mixing", ["dense", "table"])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(jnp.float32, 2e-5), (jnp.bfloat16, 0.02), (jnp.float16, 0.005)]
)
def test_rounding_does_not_drive_the_mean(mixing, dtype, tolerance):
    """Thousands of rounds with small noise: the mean model must not grow or shrink by W's rounding."""
    topology = sj.ring(9)
    start = sj.replicate(jnp.linspace(1, 2, 50).astype(dtype), 9)
    transform = sj.gossip(topology, mixing=mixing)

    def step(params, key):
        noise = (1e-3 * jax.random.normal(key, params.shape)).astype(dtype)
        noise = noise - jnp.mean(noise, axis=0, keepdims=True)
        updates, _ = transform.update(noise, (), params)
        return optax.apply_updates(params, updates), None

    steps = 5000 if dtype == jnp.float32 else 500
    end, _ = jax.jit(lambda p, k: jax.lax.scan(step, p, k))(start, jax.random.split(jax.random.key(0), steps))
    ratio = jnp.sum(end.astype(jnp.float32)) / jnp.sum(start.astype(jnp.float32))
    assert abs(ratio - 1) < tolerance
    agreed, _ = transform.update(jnp.zeros_like(start), (), start)
    np.testing.assert_array_equal(agreed, np.zeros(start.shape))  # who agrees does not move at all


leaf_shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)


@settings(deadline=None, max_examples=15)
@given(
    st.recursive(
        leaf_shapes,
        lambda t: (
            st.lists(t, min_size=1, max_size=3) | st.dictionaries(st.text("ab"), t, min_size=1, max_size=2)
        ),
        max_leaves=4,
    )
)
def test_any_tree_is_mixed_leaf_by_leaf(shapes):
    topology = sj.star(3)
    tree = jax.tree.map(
        lambda s: jnp.arange(3.0 * np.prod(s, dtype=int)).reshape(3, *s),
        shapes,
        is_leaf=lambda s: isinstance(s, tuple),
    )
    mixed = sj.mix(topology, tree)
    expected = jax.tree.map(lambda x: np.tensordot(topology.mixing, x, axes=1), tree)
    chex.assert_trees_all_close(mixed, expected, rtol=1e-5, atol=1e-5)


def test_low_precision_models_stay_low_precision():
    tree = {"x": jnp.ones((6, 4), jnp.bfloat16)}
    for mixing in ("dense", "table"):
        assert sj.mix(sj.ring(6), tree, mixing)["x"].dtype == jnp.bfloat16
        assert sj.Network(sj.ring(6)).correction(tree, mixing=mixing)["x"].dtype == jnp.bfloat16


BAD = {
    "topology": (lambda: sj.gossip(np.eye(3)), "topology must be a Topology"),
    "gamma": (lambda: sj.gossip(sj.ring(3), 0.0), r"gamma must be a number > 0, got 0.0"),
    "gamma nan": (lambda: sj.gossip(sj.ring(3), float("nan")), "gamma .* got nan"),
    "mixing": (lambda: sj.gossip(sj.ring(3), mixing="sparse"), "mixing must be one of .* got 'sparse'"),
    "of": (lambda: sj.gossip(sj.ring(3), of="old"), "of must be one of .* got 'old'"),
    "compressor": (
        lambda: sj.choco_gossip(sj.ring(3), "sign"),
        "compressor must be a Compressor.* got 'sign'",
    ),
    "order": (lambda: sj.choco_gossip(sj.ring(3), sj.sign(), order="x"), "order must be one of .* got 'x'"),
    "axis": (
        lambda: sj.gossip(sj.ring(3)).init({"w": jnp.zeros((2, 2))}),
        r"params\['w'\] must have leading axis A = 3.* got shape \(2, 2\)",
    ),
    "more rows than agents": (  # at the first update: in a method they may belong to idle agents
        lambda: sj.gossip(sj.ring(3)).update({"w": jnp.zeros((4, 2))}, (), {"w": jnp.zeros((4, 2))}),
        r"params\['w'\] must have leading axis A = 3.* got shape \(4, 2\)",
    ),
    "integers": (
        lambda: sj.mix(sj.ring(3), {"n": jnp.arange(3)}),
        r"x\['n'\] must be floating-point, got int32",
    ),
    "one agent": (lambda: sj.mix(sj.ring(3), jnp.ones((1, 2))), r"leading axis A = 3.* got shape \(1, 2\)"),
    "text": (lambda: sj.gossip(sj.ring(3), "0.5"), "gamma must be a number .* got '0.5'"),
    "bool": (lambda: sj.gossip(sj.ring(3), True), "gamma must be a number .* got True"),
    "no params": (
        lambda: sj.gossip(sj.ring(3)).update({"w": jnp.zeros((3, 2))}, optax.EmptyState()),
        "params must be given",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_named_with_their_value(name):
    make, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        make()
