import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problem import GRAPHS, IRREGULAR, Problem

import saddle_jax as sj
from saddle_jax.core.gradients import Gradients
from saddle_jax.devices import policy

RHO = 0.3
every_graph = pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.name)


def one(tree, *index):
    return jax.tree.map(lambda leaf: leaf[index], tree)


def sam_by_hand(problem, agent, model, step=0, rho=RHO):
    """The SAM gradient of one agent's loss at any model, in NumPy."""
    model = jax.tree.map(np.asarray, model)
    g = problem.gradient(agent, [model["b"], model["w"]], step)
    norm = np.sqrt(sum(np.sum(tensor**2) for tensor in g))
    climbed = [x + rho / norm * tensor for x, tensor in zip((model["b"], model["w"]), g, strict=True)]
    b, w = problem.gradient(agent, climbed, step)
    return {"b": b, "w": w}


@pytest.mark.usefixtures("x64")
def test_local_sam_perturbs_each_agent_by_its_own_norm():
    problem = Problem(5)
    grads = jax.jit(sj.local_gradients(problem.loss_fn, sj.sam(RHO)))(problem.params, problem.batch(0))
    for i in range(5):
        chex.assert_trees_all_close(
            one(grads, i), sam_by_hand(problem, i, one(problem.params, i)), atol=1e-12
        )


@pytest.mark.usefixtures("x64")
@every_graph
@pytest.mark.parametrize("rho", [0.0, RHO])
def test_cross_gradient_ik_is_the_neighbours_loss_at_the_own_model(graph, rho):
    problem = Problem(graph.size)
    gradients = sj.cross_gradients(problem.loss_fn, graph, sj.sam(rho))
    grads = jax.jit(gradients)(problem.params, problem.batch(0))
    for i, k in np.ndindex(*graph.neighbours.shape):
        expected = sam_by_hand(problem, graph.neighbours[i, k], one(problem.params, i), rho=rho)
        chex.assert_trees_all_close(one(grads, i, k), expected, atol=1e-12)


@pytest.mark.usefixtures("x64")
def test_the_mean_is_the_same_on_all_kinds_of_hardware(monkeypatch):
    """Accelerators go through the neighbours one by one, and never take the gradient of a joined batch."""
    problem = Problem(5)

    def mean():
        return asked(MEAN, IRREGULAR, sj.sam(0.0), problem.loss_fn, problem.params, problem.batch(0))

    joined, metrics = mean()
    monkeypatch.setattr(Gradients, "_gradient_of_mean", lambda *_: pytest.fail("it is joined"))
    with policy.targeting("gpu"):
        one_by_one, same = mean()
    chex.assert_trees_all_close(one_by_one, joined, atol=1e-12)
    np.testing.assert_allclose(same["loss"], metrics["loss"], atol=1e-12)


@pytest.mark.usefixtures("x64")
@every_graph
@pytest.mark.parametrize("rho", [0.0, RHO])
def test_the_mean_equals_averaging_all_pairs(graph, rho):
    problem = Problem(graph.size)
    pairs = sj.cross_gradients(problem.loss_fn, graph, sj.sam(rho))(problem.params, problem.batch(0))
    expected = jax.tree.map(lambda g: np.einsum("ik,ik...->i...", graph.weights, g), pairs)
    mean, metrics = asked(MEAN, graph, sj.sam(rho), problem.loss_fn, problem.params, problem.batch(0))
    chex.assert_trees_all_close(mean, expected, atol=1e-12)
    own = jax.vmap(problem.loss_fn)(problem.params, problem.batch(0))
    np.testing.assert_allclose(metrics["loss"], own, atol=1e-12)  # the agent's own batch, before the climb


OWN = sj.Rule(lambda x: (), lambda s, x, state: (s.gradient(x), state))
MEAN = sj.Rule(lambda x: (), lambda s, x, state: (s.cross_gradient_mean(x), state))
PAIRS = sj.Rule(lambda x: (), lambda s, x, state: (s.network.average(s.cross_gradients(x)), state))


def asked(rule, graph, estimator, loss_fn, params, batch, **options):
    """What a rule gets that moves every model to its gradient, and the metrics."""
    method = sj.Method("asked", graph, rule, estimator)
    gradient, _, metrics = method.step(loss_fn, params, method.init(params), batch, **options)
    return gradient, metrics


def backward_passes(rule, estimator, params, batch, kind=None):
    """How often the loss is differentiated in one step, per agent: each pass takes one tanh of [B, C]."""

    def loss_fn(p, d):
        return jnp.mean(jnp.tanh(d @ p))

    def step(p, d):
        return asked(rule, sj.complete(len(p)), estimator, loss_fn, p, d, kind=kind)[0]

    return str(jax.make_jaxpr(step)(params, batch)).count(" = tanh")


def test_number_of_passes():
    params, batch = jnp.zeros((5, 3)), jnp.ones((5, 4, 3))
    assert backward_passes(OWN, sj.plain_gradient(), params, batch) == 1
    assert backward_passes(OWN, sj.sam(RHO), params, batch) == 2
    assert backward_passes(MEAN, sj.plain_gradient(), params, batch) == 1  # one weighted batch
    for reuse in (False, True):
        every_five = sj.sam(RHO, 5, reuse)
        assert every_five.kinds == (0, 1, 1, 1, 1)
        for kind, passes in ((0, 2), (1, 1)):
            assert backward_passes(OWN, every_five, params, batch, (0, kind)) == passes
            assert every_five.passes(kind) == passes
    assert (sj.plain_gradient().passes_per_step, sj.sam(RHO).passes_per_step) == (1, 2)
    assert sj.sam(RHO, every=5).passes_per_step == pytest.approx(6 / 5)


def test_the_caller_may_tell_the_kind_with_the_same_result():
    problem = Problem(5, steps=6)
    method = sj.q_saddle(sj.ring(5), 0.1, RHO, ascent_every=3)
    by_counter = by_caller = (problem.params, method.init(problem.params))
    step = jax.jit(method.step, static_argnums=0, static_argnames="kind")
    for t in range(6):
        assert method.kind(t) == (0, 0 if t in (0, 3) else 1)
        by_counter = step(problem.loss_fn, *by_counter, problem.batch(t))[:2]
        by_caller = step(problem.loss_fn, *by_caller, problem.batch(t), kind=method.kind(t))[:2]
    chex.assert_trees_all_close(by_counter, by_caller, rtol=1e-6)
    always = sj.q_saddle(sj.ring(5), 0.1, RHO)
    assert {always.kind(t) for t in range(6)} == {(0, 0)}


@pytest.mark.parametrize("rule", [OWN, PAIRS])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.bfloat16])
def test_a_vanishing_gradient_gives_no_nan(rule, dtype):
    params = jnp.ones((4, 3), dtype)

    def flat(p, d):
        return jnp.sum(p * 0.0 * d)

    grads, _ = asked(rule, sj.ring(4), sj.sam(RHO), flat, params, jnp.ones((4, 3), dtype))
    assert grads.dtype == dtype
    np.testing.assert_array_equal(grads, np.zeros(grads.shape))


def test_between_climbs_the_gradient_is_plain():
    problem = Problem(5)
    method, plain = sj.d_saddle(sj.ring(5), 0.1, RHO, ascent_every=2), sj.dpsgd(sj.ring(5), 0.1)
    arguments = (problem.loss_fn, problem.params, method.init(problem.params), problem.batch(0))
    flat = method.step(*arguments, kind=(0, 1))[0]
    expected = plain.step(problem.loss_fn, problem.params, plain.init(problem.params), problem.batch(0))[0]
    chex.assert_trees_all_equal(flat, expected)
    with pytest.raises(ValueError, match=r"kind must be one of \[\(0, 0\), \(0, 1\)\], got 2"):
        method.step(*arguments, kind=2)
    with pytest.raises(ValueError, match=r"kind must be static, .*: jit with static_argnames=\('kind',\)"):
        jax.jit(method.step, static_argnums=0)(*arguments, kind=(0, 0))


def test_steps_can_be_differentiated():
    """Hyper-gradients: by the starting models, through a step of N-SADDLe."""
    problem = Problem(5)
    method = sj.n_saddle(sj.ring(5), 0.1, RHO)

    def later_loss(params):
        params, _, _ = method.step(problem.loss_fn, params, method.init(params), problem.batch(0))
        return jnp.mean(jax.vmap(problem.loss_fn)(params, problem.batch(1)))

    gradient = jax.grad(later_loss)(problem.params)
    nudge = 1e-2
    descended = jax.tree.map(lambda x, g: x - nudge * g, problem.params, gradient)
    gain = later_loss(problem.params) - later_loss(descended)
    slope = sum(float(jnp.sum(g**2)) for g in jax.tree.leaves(gradient))
    assert float(gain) == pytest.approx(nudge * slope, rel=0.1)


def memory_of_mean(width):
    """Bytes of scratch memory of N-SADDLe's gradient stage on a graph of K = width neighbours."""
    topology = sj.circulant(12, range(1, width // 2 + 1))
    params = jnp.zeros((12, 50_000))

    def gradients(p, d):
        return asked(MEAN, topology, sj.sam(RHO), lambda x, d: jnp.sum(jnp.sin(x * d)), p, d)[0]

    compiled = jax.jit(gradients).lower(params, jnp.ones((12, 1))).compile()
    return compiled.memory_analysis().temp_size_in_bytes


def test_one_pairs_gradient_is_alive_at_a_time():
    narrow, wide = memory_of_mean(3), memory_of_mean(11)
    assert wide < narrow + 12 * 50_000 * 4  # not one more gradient, though there are eight more pairs


def test_wide_neighbourhoods_are_looped_over():
    topology = sj.complete(20)
    params, batch = jnp.linspace(0, 1, 60).reshape(20, 3), jnp.linspace(-1, 1, 60).reshape(20, 3)

    def loss_fn(p, d):
        return jnp.sum(jnp.sin(p * d))

    grads = sj.cross_gradients(loss_fn, topology, sj.sam(RHO))(params, batch)
    i, j = 4, 7
    k = int(np.flatnonzero(topology.neighbours[i] == j)[0])
    expected = sj.local_gradients(loss_fn, sj.sam(RHO))(params[i][None], batch[j][None])[0]
    np.testing.assert_allclose(grads[i, k], expected, rtol=1e-6)
    assert backward_passes(PAIRS, sj.sam(RHO), params, batch[:, None]) == 2


def test_aux_comes_back_stacked_from_the_own_batch():
    problem = Problem(5)
    params, batch = problem.params, problem.batch(0)

    def with_aux(p, d):
        return problem.loss_fn(p, d), {"mean": jnp.mean(d["x"]), "count": jnp.int32(3)}

    for method in (sj.dpsgd(IRREGULAR, 0.1), sj.ngm(IRREGULAR, 0.1), sj.n_saddle(IRREGULAR, 0.1, RHO)):
        _, _, metrics = method.step(with_aux, params, method.init(params), batch)
        np.testing.assert_allclose(metrics["aux"]["mean"], batch["x"].mean(axis=(1, 2)), rtol=1e-6)
        np.testing.assert_array_equal(metrics["aux"]["count"], [3] * 5)
        np.testing.assert_allclose(metrics["loss"], jax.vmap(problem.loss_fn)(params, batch), rtol=1e-6)
        assert "aux" not in method.step(problem.loss_fn, params, method.init(params), batch)[2]


BAD = {
    "estimator": (
        lambda: sj.local_gradients(Problem.loss_fn, 0.1),
        r"estimator must be a GradientEstimator, such as sj.sam\(0.05\), got 0.1",
    ),
    "estimator that remembers": (
        lambda: sj.local_gradients(Problem.loss_fn, sj.lesam())(Problem(5).params, Problem(5).batch(0)),
        r"estimator must remember nothing .* got lesam\(",
    ),
    "rho nan": (lambda: sj.sam(float("nan")), "rho must be a number >= 0, got nan"),
    "every": (lambda: sj.sam(0.1, 0), "every must be an integer >= 1, got 0"),
    "reuse": (lambda: sj.sam(0.1, 2, 3), "reuse must be a bool, such as True, got 3"),
    "kinds": (
        lambda: sj.GradientEstimator("mine", None, None, kinds=()),
        r"kinds must be a tuple of integers, got \(\)",
    ),
    "topology": (lambda: sj.cross_gradients(Problem.loss_fn, 5), "topology must be a Topology.* got 5"),
    "directed": (
        lambda: sj.cross_gradients(Problem.loss_fn, sj.exponential(8)),
        r"topology must be undirected to exchange cross-gradients, got exponential\(8\)",
    ),
    "batch": (
        lambda: sj.cross_gradients(Problem.loss_fn, sj.ring(5))(Problem(5).params, Problem(4).batch(0)),
        r"batch\['x'\] must have leading axis A = 5.* got shape \(4, 3, 3\)",
    ),
    "local batch": (
        lambda: sj.local_gradients(Problem.loss_fn)(Problem(5).params, Problem(4).batch(0)),
        r"batch\['x'\] must have leading axis A = 5.* got shape \(4, 3, 3\)",
    ),
    "loss": (
        lambda: sj.local_gradients(lambda p, d: p * d)(jnp.ones((2, 3)), jnp.ones((2, 3))),
        r"loss_fn must return the scalar loss of one agent.* got a loss of shape \(3,\)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_named_with_their_value(name):
    make, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        make()
