"""The network of a step against W written out in NumPy, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problem import IRREGULAR, Problem

import saddle_jax as sj
from saddle_jax.core.network import Network
from saddle_jax.devices import lifting

MASS = sj.from_matrix([[0.9, 0.2, 0.0], [0.1, 0.5, 0.7], [0.0, 0.3, 0.3]], name="mass")
GRAPHS = [sj.ring(6), sj.star(5), IRREGULAR, sj.exponential(7), MASS, sj.isolated(3)]
every_graph = pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.name)
undirected = pytest.mark.parametrize("graph", [g for g in GRAPHS if not g.is_directed], ids=lambda g: g.name)


def numbers(*shape):
    return np.random.default_rng(0).normal(size=shape)


@pytest.mark.usefixtures("x64")
@every_graph
@pytest.mark.parametrize("mixing", ["dense", "table"])
def test_mix_and_correction_are_products_with_w_whatever_it_keeps(graph, mixing):
    x, network = numbers(graph.size, 3, 2), Network(graph)
    product = np.einsum("ij,j...->i...", graph.mixing, x)
    np.testing.assert_allclose(network.mix(jnp.asarray(x), mixing=mixing), product, atol=1e-14)
    np.testing.assert_allclose(network.correction(jnp.asarray(x), mixing=mixing), product - x, atol=1e-14)
    assert len(network.rounds) == 2


@pytest.mark.usefixtures("x64")
@every_graph
def test_hear_brings_every_neighbour_and_average_weighs_them(graph):
    x, network = numbers(graph.size, 4), Network(graph)
    heard = np.asarray(network.gather(jnp.asarray(x)))
    for i, k in np.ndindex(*graph.neighbours.shape):
        expected = x[graph.neighbours[i, k]] if graph.occupied[i, k] else np.zeros(4)
        np.testing.assert_array_equal(heard[i, k], expected)
    np.testing.assert_allclose(network.average(jnp.asarray(heard)), graph.mixing @ x, atol=1e-14)
    assert len(network.rounds) == 1  # an average sends nothing


@pytest.mark.usefixtures("x64")
@undirected
@pytest.mark.parametrize("devices", [1, 4])
def test_a_message_reaches_whom_it_is_for(graph, devices):
    graph = graph.padded(8)
    width = graph.neighbours.shape[1]
    x = numbers(8, width, 2)
    with jax.set_mesh(sj.agent_mesh(devices)):
        got = np.asarray(jax.jit(lambda x: Network(graph).send(x))(jnp.asarray(x)))
    for i, k in np.ndindex(8, width):
        j = graph.neighbours[i, k]
        if graph.occupied[i, k]:
            slot = int(np.flatnonzero((graph.neighbours[j] == i) & graph.occupied[j])[0])
            np.testing.assert_array_equal(got[i, k], x[j, slot])
        else:
            np.testing.assert_array_equal(got[i, k], np.zeros(2))


def test_an_exchange_of_messages_moves_those_that_cross_alone():
    import re

    graph, x = sj.ring(8), jnp.zeros((8, 3, 5))
    mesh = sj.agent_mesh(4)
    with jax.set_mesh(mesh):
        x = jax.device_put(x, lifting.stacked_sharding(mesh))
        text = jax.jit(lambda x: Network(graph).send(x)).lower(x).compile().as_text()
    collectives = re.findall(r"= \(?(\w+\[[\d,]*\])\S* (all-gather|all-reduce|collective-permute)\(", text)
    assert collectives == [("f32[1,5]", "collective-permute")] * 2


def test_what_is_sent_instead_is_what_is_charged():
    x = {"w": jnp.zeros((6, 10, 10)), "b": jnp.zeros((6, 10))}
    network = Network(sj.ring(6))
    network.mix(x)
    network.mix(x, sent=sj.Message(x, sj.sign()))
    network.mix(x, sent=[sj.Message(x["b"]), sj.Message(x["w"], sj.sign())])
    network.mix(x, sent=())
    network.gather(x["b"])
    network.send(jnp.zeros((6, 3, 7)))
    signs = [sj.sign().bits(shape) // 8 for shape in ((10,), (10, 10))]
    assert [entry.wire_bytes for entry in network.rounds] == [440, sum(signs), 40 + signs[1], 0, 40, 28]


def test_every_caller_gets_random_numbers_of_its_own():
    network = Network(sj.ring(3), 0, jax.random.key(0))
    keys = [jax.random.key_data(network.key()) for _ in range(4)]
    assert len({tuple(np.asarray(key).tolist()) for key in keys}) == 4
    again = Network(sj.ring(3), 0, jax.random.key(0))
    np.testing.assert_array_equal(jax.random.key_data(again.key()), keys[0])
    assert Network(sj.ring(3)).key() is None


@pytest.mark.parametrize(
    "method",
    [
        sj.dpsgd(sj.alternate(sj.ring(5), sj.star(5)), 0.1, compressor=sj.sign()),
        sj.ngm(sj.alternate(sj.ring(5), sj.star(5)), 0.1, compressor=sj.sign()),
        sj.n_saddle(sj.alternate(sj.ring(5), sj.star(5)), 0.1, 0.1, ascent_every=2, ascent_reuse=True),
    ],
    ids=["public copies", "error feedback", "perturbations of pairs"],
)
def test_what_is_kept_per_link_needs_links_that_stay(method):
    with pytest.raises(
        sj.ArgumentError, match=r"same links in every step .* got alternate\(ring\(5\), star\(5\)\)"
    ):
        method.init(Problem(5).params)
    same = sj.alternate(sj.ring(5), sj.ring(5))  # graphs that take turns with the same links are no trouble
    sj.ngm(same, 0.1, compressor=sj.sign()).init(Problem(5).params)


def deeper(use):
    """A method whose rule uses the network where its rounds cannot be counted."""
    rule = sj.Rule(lambda x: (), lambda s, x, state: (use(s.network, x), state))
    return sj.Method("deep", sj.ring(5), rule).init(Problem(5).params)


DEEP = {
    "scan": lambda n, x: jax.lax.scan(lambda x, _: (n.mix(x), None), x, jnp.arange(3))[0],
    "cond": lambda n, x: jax.lax.cond(n.t > 3, n.mix, lambda x: x, x),
    "vmap": lambda n, x: jax.tree.map(lambda a: jax.vmap(n.mix, -1, -1)(a), x),
    "grad": lambda n, x: jax.grad(lambda x: jnp.sum(n.mix(x)["b"]))(x),
    "jit": lambda n, x: jax.jit(n.mix)(x),
    "gather": lambda n, x: jax.lax.scan(lambda x, _: (n.gather(x), None), x, jnp.arange(3))[0],
    "key": lambda n, x: jax.jit(lambda x: (n.key(), x)[1])(x),
}


@pytest.mark.parametrize("name", DEEP)
def test_a_network_deeper_than_its_step_is_refused(name):
    with pytest.raises(ValueError, match="the network must be used where the step is, not inside a scan"):
        deeper(DEEP[name])


def test_a_loop_written_in_python_books_every_round():
    def thrice(network, x):
        for _ in range(3):
            x = network.mix(x)
        return x

    rule = sj.Rule(lambda x: (), lambda s, x, state: (thrice(s.network, x), state))
    method = sj.Method("thrice", sj.ring(5), rule)
    assert len(method.trace(Problem(5).params)[0].rounds) == 3
    params, _, metrics = method.step(
        Problem.loss_fn, Problem(5).params, method.init(Problem(5).params), Problem(5).batch(0)
    )
    w = np.linalg.matrix_power(sj.ring(5).mixing, 3)
    np.testing.assert_allclose(params["b"], w @ Problem(5).params["b"], rtol=1e-5)
    assert "loss" not in metrics  # nobody asked for a gradient


ROWS = sj.from_matrix([[0.9, 0.1], [0.4, 0.6]], name="rows")
X = {"w": jnp.zeros((5, 4))}


def method_of(step, init=lambda x: ()):
    return sj.Method("mine", sj.ring(5), sj.Rule(init, step))


BAD = {
    "keeps": (
        lambda: sj.qgm(ROWS, 0.1),
        r"qgm needs a topology that keeps the agents' average .*, got rows, which keeps agreement",
    ),
    "mass": (
        lambda: sj.Method("sgp", ROWS, sj.Rule(lambda x: (), None, requires="column")),
        r"sgp needs a topology that keeps the agents' sum .* got rows",
    ),
    "another shape": (
        lambda: method_of(lambda s, x, state: ({"w": x["w"][:, :2]}, state)).init(X),
        r"must return models of the shapes .*, float32\[5, 4\] for models\['w'\], got float32\[5, 2\]",
    ),
    "another dtype": (
        lambda: method_of(lambda s, x, state: ({"w": x["w"].astype(jnp.bfloat16)}, state)).init(X),
        r"float32\[5, 4\] for models\['w'\], got bfloat16\[5, 4\]",
    ),
    "another tree": (
        lambda: method_of(lambda s, x, state: (x["w"], state)).init(X),
        "must return models of the structure that it got",
    ),
    "another state": (
        lambda: method_of(lambda s, x, state: (x, state[0]), lambda x: (x, x)).init(X),
        "must return state of the structure that it got",
    ),
    "a state of nobody's": (
        lambda: method_of(lambda s, x, state: (x, state), lambda x: jnp.zeros(3)).init(X),
        r"state of mine must be a scalar or have leading axis A = 5, got shape \(3,\)",
    ),
    "messages": (
        lambda: Network(sj.ring(5)).send(jnp.zeros((5, 4, 2))),
        r"must have one message per slot, \[A, K, ...\] = \[5, 3, ...\], got shape \(5, 4, 2\)",
    ),
    "one way": (
        lambda: Network(sj.exponential(8)).send(jnp.zeros((8, 4, 2))),
        r"topology must be undirected for messages per link, got exponential\(8\)",
    ),
    "cross": (
        lambda: sj.Method(
            "mine", sj.exponential(8), sj.Rule(lambda x: (), lambda s, x, _: (s.cross_gradient_mean(x), ()))
        ).init({"w": jnp.zeros((8, 2))}),
        r"undirected to exchange cross-gradients, got exponential\(8\)",
    ),
    "returned": (
        lambda: Network(sj.ring(5)).returned(sj.Message(jnp.zeros((5, 3, 2)))),
        "gradients of pairs must be asked for before they can be returned",
    ),
    "axes": (
        lambda: sj.Step(0, None, None, None).note("x", 0, "B"),
        "axes must be one of .* got 'B'",
    ),
    "t": (
        lambda: sj.gossip(CYCLE).update(X, (), X),
        r"t must be given to update\(..., t=step\) on alternate\(ring\(5\), complete\(5\)\), got None",
    ),
}
CYCLE = sj.alternate(sj.ring(5), sj.complete(5))


@pytest.mark.parametrize("name", BAD)
def test_mistakes_are_one_clear_line(name):
    make, message = BAD[name]
    with pytest.raises(sj.ArgumentError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("x64")
def test_transforms_work_alone_on_graphs_that_take_turns():
    transform, x = sj.gossip(CYCLE), {"w": jnp.asarray(numbers(5, 4))}
    for t in range(3):
        update = jax.jit(transform.update)  # where t has no number yet
        updates, _ = update({"w": jnp.zeros((5, 4))}, transform.init(x), x, t=t)
        expected = CYCLE.at(t).mixing @ np.asarray(x["w"])
        np.testing.assert_allclose(x["w"] + updates["w"], expected, atol=1e-14)
