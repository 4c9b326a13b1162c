"""What every method must hold, the paper's and those to come: one test per law, over all methods."""

import dataclasses
import inspect

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problem import IRREGULAR, Problem, compiled, run, run_each
from suited import PLAIN, suited, with_and_without

import saddle_jax as sj
from saddle_jax.methods import METHODS, base_methods

BASES = ("dpsgd", "qgm", "ngm")
SADDLES = {"d_saddle": "dpsgd", "q_saddle": "qgm", "n_saddle": "ngm"}
ROUNDS = ("kgt", "dfedavgm", "dfedsam")  # made for local steps: the laws hold over several rounds
MOMENTUM = {"beta": 0.9, "weight_decay": 0.03}
every_method = pytest.mark.parametrize("name", base_methods())
every_base = pytest.mark.parametrize("name", BASES)


def make(name, topology, learning_rate=0.1, **options):
    known = METHODS.options(name)
    if missing := [option for option, value in options.items() if value is not None and option not in known]:
        pytest.skip(f"it has no {', '.join(missing)}")
    usual = {**MOMENTUM, "rho": 0.2, **({"local_steps": 2} if name in ROUNDS else {}), **options}
    chosen = {option: value for option, value in usual.items() if option in known}
    return sj.METHODS[name](suited(name, topology), learning_rate=learning_rate, **chosen)


def known_to(name, **options):
    """Those of the options that a method has."""
    return {option: value for option, value in options.items() if option in METHODS.options(name)}


def sgd(nesterov):
    return optax.chain(optax.add_decayed_weights(0.03), optax.sgd(0.1, 0.9, nesterov))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("name", "nesterov", "options"),
    [
        ("dpsgd", False, {}),
        ("dpsgd", True, {}),
        ("ngm", False, {}),
        ("ngm", True, {}),
        # mu = 0 makes m-hat the last direction; under Nesterov that is g + beta m, which SGD does not keep
        ("qgm", False, {"mu": 0.0}),
    ],
)
def test_one_agent_alone_is_sgd(name, nesterov, options):
    problem = Problem(1)
    history, _, _ = run(make(name, sj.from_matrix([[1.0]]), nesterov=nesterov, **options), problem)
    optimizer, params = sgd(nesterov), jax.tree.map(lambda x: x[0], problem.params)
    state = optimizer.init(params)
    for t in range(problem.steps):
        grads = jax.grad(problem.loss_fn)(params, jax.tree.map(lambda d: d[0], problem.batch(t)))
        updates, state = optimizer.update(grads, state, params)
        params = optax.apply_updates(params, updates)
        chex.assert_trees_all_close(jax.tree.map(lambda x, t=t: x[t, 0], history), params, atol=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("name", "base"), SADDLES.items())
@pytest.mark.parametrize("compressor", [None, sj.sign()], ids=str)
def test_rho_zero_is_the_base_method(name, base, compressor):
    problem = Problem(5)
    saddle, _, _ = run(make(name, IRREGULAR, rho=0.0, compressor=compressor), problem)
    plain, _, _ = run(make(base, IRREGULAR, compressor=compressor), problem)
    chex.assert_trees_all_equal(saddle, plain)
    perturbed, _, _ = run(make(name, IRREGULAR, compressor=compressor), problem)
    assert np.abs(perturbed["w"] - plain["w"]).max() > 1e-3


@pytest.mark.usefixtures("x64")
@every_method
def test_the_identity_compressor_changes_nothing(name):
    problem = Problem(5)
    methods = make(name, IRREGULAR, compressor=sj.identity()), make(name, IRREGULAR)
    chex.assert_trees_all_close(*run_each(methods, problem), atol=1e-12)


@pytest.mark.usefixtures("x64")
@every_base
def test_a_complete_graph_with_equal_data_is_centralised_sgd(name):
    problem = Problem(4)
    problem.x[:], problem.y[:], problem.start = problem.x[:, :1], problem.y[:, :1], problem.start[:1] * 4
    history, _, _ = run(make(name, sj.complete(4)), problem)
    alone = Problem(1)
    alone.start, alone.x, alone.y = problem.start[:1], problem.x[:, :1], problem.y[:, :1]
    single, _, _ = run(make(name, sj.from_matrix([[1.0]])), alone)
    for i in range(4):
        chex.assert_trees_all_close(jax.tree.map(lambda x, i=i: x[:, [i]], history), single, atol=1e-12)


@pytest.mark.usefixtures("x64")
def test_dpsgd_on_a_complete_graph_is_sgd_on_the_whole_batch():
    problem = Problem(4)
    problem.start = problem.start[:1] * 4
    history, _, _ = run(sj.dpsgd(sj.complete(4), 0.1, **PLAIN), problem)
    params = jax.tree.map(lambda x: x[0], problem.params)
    whole = jax.tree.map(lambda d: d.reshape(problem.steps, -1, d.shape[-1]), problem.batches)
    for t in range(problem.steps):
        grads = jax.grad(problem.loss_fn)(params, jax.tree.map(lambda d, t=t: d[t], whole))
        params = jax.tree.map(lambda x, g: x - 0.1 * g, params, grads)
        chex.assert_trees_all_close(jax.tree.map(lambda x, t=t: x[t, 2], history), params, atol=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("compressor", [None, sj.sign(), sj.quantize(4), sj.top_k(0.3)], ids=str)
@pytest.mark.parametrize("name", ["dpsgd", "d_saddle", "qgm", "q_saddle"])
def test_gossip_does_not_move_the_mean(name, compressor):
    problem = Problem(5, steps=1)
    methods = make(name, IRREGULAR, compressor=compressor), make(name, sj.isolated(5))
    linked, alone = run_each(methods, problem)

    def mean(tree):
        return jax.tree.map(lambda x: x.mean(axis=1), tree)

    chex.assert_trees_all_close(mean(linked), mean(alone), atol=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("compressor", [None, sj.sign()], ids=str)
def test_the_gossip_of_ngm_does_not_move_the_mean(compressor):
    """W weighs NGM's gradients too, so they are zero here: what is left is x + gamma (W - I) x."""
    problem = Problem(5, steps=1)
    start = problem.params

    def flat(params, batch):
        return 0.0 * problem.loss_fn(params, batch)

    history, _, _ = run(sj.ngm(IRREGULAR, 0.1, compressor=compressor, weight_decay=0.0), problem, flat)
    end = jax.tree.map(lambda x: x[-1], history)
    assert np.abs(end["w"] - start["w"]).max() > 0.1
    chex.assert_trees_all_close(sj.consensus(end), sj.consensus(start), atol=1e-12)


@with_and_without(sj.sign())
def test_diagnostics_are_measured_only_when_asked(name, compressor):
    problem, topology = Problem(5), IRREGULAR
    method = make(name, topology, compressor=compressor)
    first = next(t for t in range(9) if method.rule.kind(t) in method.rule.comm_kinds)
    state = method.init(problem.params)._replace(t=jnp.int32(first))
    arguments = (problem.loss_fn, problem.params, state, problem.batch(0))
    step = compiled(lambda diagnostics: method.step(*arguments, diagnostics=diagnostics), static_argnums=0)
    (params, _, metrics), (same, _, full) = step(False), step(True)
    assert set(metrics) == {"loss"}
    chex.assert_trees_all_close(params, same, rtol=1e-6)
    np.testing.assert_allclose(full["consensus_distance"], sj.consensus_distance(params), rtol=1e-6)
    update = jax.tree.map(jnp.subtract, params, problem.params)
    np.testing.assert_allclose(
        full["update_norm"],
        [optax.tree.norm(jax.tree.map(lambda x, i=i: x[i], update)) for i in range(5)],
        rtol=1e-5,
    )
    pairs = name in ("ngm", "n_saddle", "cga")
    prefix = "gradient_" if pairs else ""
    assert (f"{prefix}compression_error" in full) == (compressor is not None)
    if compressor is not None:
        error, size = full[f"{prefix}compression_error"], full[f"{prefix}compression_input"]
        chex.assert_shape([error, size], (5, 5) if pairs else (5,))
        assert (error <= size).all()
        if pairs:  # slots that hold no pair compress nothing
            assert (np.asarray(size) > 0).tolist() == topology.occupied.tolist()
            assert (np.asarray(full["gradient_norm"]) > 0).tolist() == topology.occupied.tolist()


@every_method
def test_numpy_scalars_and_numpy_batches_serve_as_well(name):
    problem = Problem(5)
    params = jax.tree.map(lambda x: x.astype(jnp.bfloat16), problem.params)
    batch = jax.tree.map(lambda x: np.asarray(x, jnp.bfloat16), problem.batch(0))
    scalars = known_to(name, beta=np.float32(0.9), weight_decay=np.float64(0.1), gamma=np.float32(0.5))
    method = make(name, sj.ring(5), **scalars)
    state = method.init(params)

    def step(params, state):
        return method.step(problem.loss_fn, params, state, batch)[:2]

    after = jax.eval_shape(step, params, state)
    chex.assert_trees_all_equal_shapes_and_dtypes((params, state), after)


def test_two_compressors_in_one_method_are_told_apart():
    ring, problem = sj.ring(5), Problem(5)
    transform = optax.chain(
        sj.neighbourhood_mean(ring, sj.quantize(4)), optax.sgd(0.1), sj.choco_gossip(ring, sj.quantize(4))
    )
    method = sj.Method("mine", ring, sj.rule_of(transform, gradients="pairs"))
    _, _, metrics = method.step(
        problem.loss_fn,
        problem.params,
        method.init(problem.params),
        problem.batch(0),
        jax.random.key(0),
        diagnostics=True,
    )
    assert metrics["compression_error"].shape == (5,)
    assert metrics["gradient_compression_error"].shape == (5, 3)


def test_qgm_survives_a_learning_rate_of_zero():
    problem = Problem(5)
    method = sj.qgm(sj.ring(5), optax.linear_schedule(0.1, 0.0, 2))
    history, state, _ = run(method, problem)
    chex.assert_tree_all_finite((history, state))


def test_a_stochastic_compressor_without_a_key_is_an_error():
    problem = Problem(5)
    method = sj.qgm(sj.ring(5), 0.1, compressor=sj.quantize(8))
    with pytest.raises(ValueError, match=r"key must be given to quantize\(bits=8"):
        method.step(problem.loss_fn, problem.params, method.init(problem.params), problem.batch(0))


ON_A_PATH = {"topology": sj.path(5), "learning_rate": 0.1}
DEFAULTS = {"beta": 0.9, "nesterov": True, "weight_decay": 1e-4, "rho": 0.05}


@every_method
def test_all_methods_have_one_set_of_defaults(name):
    options = {option: each.default for option, each in METHODS.options(name).items() if option in DEFAULTS}
    assert options == {option: DEFAULTS[option] for option in options}
    assert "weight_decay" in options
    assert ("rho" in options) == (METHODS.make(name, **ON_A_PATH).gradient.name == sj.sam().name)
    assert sj.sam().name == "sam(rho=0.05)"


def test_a_text_may_put_methods_around_one_another():
    method = METHODS.make("slowmo(saddle(qgm(beta=0.5), looksam(every=10)), every=12)", **ON_A_PATH)
    inner = sj.saddle(sj.qgm(sj.path(5), 0.1, beta=0.5), sj.looksam(every=10))
    assert repr(method) == repr(sj.slowmo(inner, 0.1, every=12))
    assert method.gradient.name == sj.looksam(every=10).name
    assert dataclasses.replace(method, gradient=sj.sam(0.2)).gradient.name == "sam(rho=0.2)"
    with pytest.raises(sj.ArgumentError, match="method slowmo must be given method"):
        METHODS.make("slowmo", **ON_A_PATH)


def test_a_method_tells_its_arguments():
    method = METHODS.make("slowmo(saddle(qgm(beta=0.5)), every=12)", **ON_A_PATH)
    assert method.arguments["every"] == 12
    assert method.arguments["learning_rate"] == 0.1
    qgm = method.arguments["method"].arguments["method"].arguments
    assert (qgm["beta"], qgm["weight_decay"], qgm["mu"]) == (0.5, 1e-4, None)
    assert sj.n_saddle(sj.ring(5), 0.1, 0.2).arguments["rho"] == 0.2
    injected = sj.inject_hyperparams(sj.qgm)(sj.ring(5), 0.1, beta=0.5)
    assert injected.arguments["beta"] == 0.5
    own = dataclasses.replace(method, rule=sj.dpsgd(sj.path(5), 0.1).rule)
    assert own.arguments == {}


def test_help_shows_the_options_of_both():
    parameters = inspect.signature(sj.q_saddle).parameters
    assert list(parameters)[:3] == ["topology", "learning_rate", "rho"]
    assert {"ascent_every", "mu", "gossip", "compressor"} <= set(parameters)
    assert "options" not in parameters
