"""`gossip=` says how a method's models travel; `gamma` may be above one, and may vary."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import printed_algorithms as printed
import pytest
from problem import IRREGULAR, Problem, compiled, run
from suited import PLAIN

import saddle_jax as sj
from saddle_jax.methods import METHODS, base_methods

TAKE_IT = [name for name in base_methods() if "gossip" in METHODS.options(name)]
SHORTHANDS = {
    "exact": ({"gamma": 0.7}, sj.exact(0.7)),
    "choco": ({"gamma": 0.4, "compressor": sj.top_k(0.5)}, sj.choco(sj.top_k(0.5), 0.4)),
    "drawn": ({"compressor": sj.quantize(4)}, sj.choco(sj.quantize(4))),
}
RING, PROBLEM = sj.ring(4), Problem(5)


@functools.cache
def usual(name):
    """The method with its defaults, and its program."""
    method = sj.METHODS[name](IRREGULAR, 0.1)
    return method, program(method)


def program(method, problem=PROBLEM):
    """The program of a step: what is one program gives one result, to the last bit."""
    arguments = (problem.params, method.init(problem.params), problem.batch(0), jax.random.key(0))
    return str(jax.make_jaxpr(lambda *given: method.step(problem.loss_fn, *given)[:2])(*arguments))


def test_nine_methods_and_those_made_of_them_take_it():
    assert len(TAKE_IT) == 9 + len(["d_saddle", "q_saddle", "dfedsam"])


@pytest.mark.parametrize("shorthand", SHORTHANDS)
@pytest.mark.parametrize("name", TAKE_IT)
def test_compressor_and_gamma_are_short_for_it(name, shorthand):
    make, (plain, program_of_plain) = sj.METHODS[name], usual(name)
    options, gossip = SHORTHANDS[shorthand]
    long, short = make(IRREGULAR, 0.1, gossip=gossip), make(IRREGULAR, 0.1, **options)
    assert program(long) == program(short) != program_of_plain
    assert repr(long) == repr(plain)[:-1] + f", gossip={gossip!r})"


def test_a_gossip_prints_as_the_call_that_makes_it():
    assert repr(sj.exact()) == "exact()"
    assert repr(sj.exact(0.5, mixing="dense")) == "exact(gamma=0.5, mixing='dense')"
    assert repr(sj.choco(sj.sign(), np.float64(0.5), "paper")) == "choco(sign(), gamma=0.5, order='paper')"
    assert repr(sj.exact(optax.linear_schedule(1.0, 0.5, 3))) == "exact(gamma=polynomial_schedule(...))"
    assert repr(sj.Gossip(lambda x: (), lambda s, x, state: (x, state))) == "Gossip(...)"
    assert jax.jit(lambda gamma: float(repr(sj.exact(gamma)) == "exact(gamma=...)"))(0.5) == 1


def test_d2_takes_half_the_rate():
    for gossip in (sj.exact(0.8), sj.choco(sj.top_k(0.5), 0.8)):
        half = gossip.scaled(0.5)
        assert half.options == gossip.options._replace(gamma=0.4)
        whole = sj.d2(IRREGULAR, 0.1, gossip=half, half=False)
        assert program(sj.d2(IRREGULAR, 0.1, gossip=gossip)) == program(whole)
    assert sj.exact(lambda t: t).scaled(0.5).options.gamma(3) == 1.5


def test_a_gossip_of_ones_own():
    """It sends both quantities of a method by itself, and tells nothing of its rate."""
    own = sj.Gossip(lambda x: jnp.int32(0), lambda s, x, n: (s.network.mix(x), n + 1))
    method, exact = sj.gradient_tracking(RING, 0.1, gossip=own), sj.gradient_tracking(RING, 0.1)
    problem = Problem(4)
    history, state, _ = run(method, problem)
    expected, _, _ = run(exact, problem)
    assert len(method.trace(problem.params)[0].rounds) == 2
    assert [int(n) for n in jax.tree.leaves(state.rule)[-2:]] == [problem.steps] * 2
    np.testing.assert_allclose(history["w"], expected["w"], atol=1e-5)
    for make in (sj.d2, sj.gut):
        with pytest.raises(sj.ArgumentError, match=r"gossip must be made by sj.exact or sj.choco here"):
            make(RING, 0.1, gossip=own)


REFUSED = {
    "both": (
        lambda: sj.qgm(RING, 0.1, compressor=sj.sign(), gossip=sj.exact()),
        r"^compressor must be left out beside gossip, got gossip=exact\(\)$",
    ),
    "gamma too": (
        lambda: sj.qgm(RING, 0.1, gamma=0.5, gossip=sj.choco(sj.sign())),
        r"^gamma must be left out beside gossip, got gossip=choco\(sign\(\)\)$",
    ),
    "no gossip": (
        lambda: sj.qgm(RING, 0.1, gossip=0.5), r"gossip must be a Gossip, such as sj.choco.* got 0.5"
    ),
    "gut": (
        lambda: sj.gut(RING, 0.1, gossip=sj.choco(sj.sign(), order="paper")),
        "order must be one of 'choco', got",
    ),
    "at the bound": (
        lambda: sj.qgm(RING, 0.1, gamma=1.5),
        r"^gamma must be below 1.5 on ring\(4\), whose W has the eigenvalue -0.333: .* diverge, got 1.5$",
    ),
    "directed": (
        lambda: sj.dpsgd(sj.exponential(5), 0.1, gamma=1.1),
        r"^gamma must be at most 1 on exponential\(5\), whose W is not symmetric, got 1.1$",
    ),
    "one of two": (
        lambda: sj.dpsgd(sj.alternate(RING, sj.directed_ring(4)), 0.1, gamma=1.1),
        "whose W is not symmetric, got 1.1",
    ),
    "beer": (lambda: sj.beer(RING, 0.1, gamma=1.6), r"gamma must be below 1.5 on ring\(4\)"),
    "ada_gossip": (
        lambda: sj.ada_gossip(RING, 0.1, gamma=1.1), "gamma must be a number > 0 and <= 1, got 1.1"
    ),
    "d2": (lambda: sj.d2(RING, 0.1, half=False, gamma=1.2), "half must be True on .* D2 would diverge"),
    "transform": (lambda: sj.gossip(RING, 1.5), r"gamma must be below 1.5 on ring\(4\)"),
    "decentralize": (
        lambda: sj.decentralize(optax.sgd(0.1), RING, sj.exact(1.5)), r"gamma must be below 1.5 on ring\(4\)"
    ),
    "own rule": (
        lambda: sj.Method("mine", RING, sj.Rule(sj.exact().init, sj.exact(1.5).mix)).init(jnp.zeros(4)),
        r"gamma must be below 1.5 on ring\(4\)",
    ),
    "faults": (
        lambda: dataclasses.replace(sj.qgm(RING, 0.1, gamma=1.1), faults=sj.Faults(drop=0.1)).init(
            jnp.zeros((4, 2))
        ),
        r"gamma must be at most 1 on ring\(4\), with Faults\(drop=0.1\), got 1.1",
    ),
    "a schedule outside of a method": (
        lambda: sj.gossip(RING, optax.linear_schedule(1.0, 0.5, 3)).update(jnp.zeros(4), (), jnp.zeros(4)),
        r"t must be given to update\(..., t=step\) on ring\(4\)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_go_together_is_named(name):
    make, message = REFUSED[name]
    with pytest.raises(sj.ArgumentError, match=message):
        make()


@pytest.mark.parametrize(
    "graph", [RING, sj.ring(5), sj.path(6), sj.star(5), sj.torus(2, 4), sj.complete(4)], ids=lambda g: g.name
)
def test_a_rate_above_one_is_taken_where_gossip_settles(graph):
    eigenvalues = np.linalg.eigvalsh(graph.mixing)[:-1]
    taken = set()
    for gamma in (1.05, 1.2, 1.3, 1.45, 1.6, 1.9, 2.2):
        settles = np.abs(1 + gamma * (eigenvalues - 1)).max() < 1
        taken.add(settles)
        if settles:
            x = jax.random.normal(jax.random.key(0), (graph.size, 3))
            mixed = x + gamma * sj.Network(graph).correction(x)
            method = sj.dpsgd(graph, 0.1, gamma=gamma, weight_decay=0.0)
            stepped, _, _ = method.step(lambda x, d: 0.0 * jnp.sum(x), x, method.init(x), x)
            np.testing.assert_allclose(stepped, mixed, atol=1e-6)
            assert sj.consensus_distance(stepped) < sj.consensus_distance(x)
        else:
            with pytest.raises(sj.ArgumentError, match="gossip would diverge"):
                sj.dpsgd(graph, 0.1, gamma=gamma)
    assert taken == {True, False}


def falling(t):
    return 0.8 / (1 + t)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("order", ["choco", "paper"])
@pytest.mark.parametrize("compressor", [None, sj.top_k(0.4)], ids=str)
def test_a_rate_that_varies_is_that_of_the_step(compressor, order):
    gossip = sj.exact(falling) if compressor is None else sj.choco(compressor, falling, order)
    history, _, _ = run(sj.dpsgd(IRREGULAR, 0.1, gossip=gossip, **PLAIN), PROBLEM)
    models, operator = printed.copy(PROBLEM.start), None if compressor is None else printed.top_k(0.4)
    copies = [printed.zeros_like(model) for model in models]
    for t in range(PROBLEM.steps):
        gradients = [PROBLEM.gradient(i, model, t) for i, model in enumerate(models)]
        half = [printed.add(x, printed.times(-0.1, g)) for x, g in zip(models, gradients, strict=True)]
        models = printed.gossip(half, copies, IRREGULAR.mixing, falling(t), operator, order)
        for i, (b, w) in enumerate(models):
            np.testing.assert_allclose(history["b"][t, i], b, atol=1e-10)
            np.testing.assert_allclose(history["w"][t, i], w, atol=1e-10)


@pytest.mark.parametrize("name", [name for name in base_methods() if "gamma" in METHODS.options(name)])
def test_every_method_takes_a_rate_that_varies(name):
    """It falls after the third step; kind 0 is the one in which agents gossip."""
    rates = (optax.piecewise_constant_schedule(0.5, {3: 0.5}), 0.5, 0.25)
    varies, *fixed = (sj.METHODS[name](sj.ring(5), 0.1, gamma=gamma) for gamma in rates)

    @compiled
    def after(t):
        """The models after two steps: in the first one BEER and MoTEF have sent nothing yet."""

        def two(method):
            params, state = PROBLEM.params, varies.init(PROBLEM.params)._replace(t=t)
            for _ in range(2):
                arguments = (PROBLEM.loss_fn, params, state, PROBLEM.batch(0), jax.random.key(0))
                params, state, _ = method.step(*arguments, kind=(0, 0))
            return params

        return [two(method) for method in (varies, *fixed)]

    for t in (1, 4):
        varied, *expected = after(t)
        chex.assert_trees_all_close(varied, expected[t == 4], atol=1e-6)
        assert np.abs(varied["w"] - expected[t != 4]["w"]).max() > 1e-4


def test_a_text_says_the_same_gossip_as_objects():
    text = "qgm(gossip=choco(top_k(0.3), gamma=0.4, order=paper))"
    made = METHODS.make(text, topology=sj.ring(4), learning_rate=0.1)
    assert repr(made) == repr(sj.qgm(sj.ring(4), 0.1, gossip=sj.choco(sj.top_k(0.3), 0.4, "paper")))
