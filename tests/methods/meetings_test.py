"""Every method meets every estimator, compressor, graph and fault: it steps, or says in one line why not."""

import dataclasses

import chex
import jax
import pytest
from problem import Problem
from suited import suited

import saddle_jax as sj
from saddle_jax.methods import METHODS, base_methods
from saddle_jax.sam import GRADIENTS

every_method = pytest.mark.parametrize("name", base_methods())
COMPRESSORS = [
    sj.identity(), sj.quantize(4), sj.top_k(0.3), sj.random_k(0.3), sj.sign(), sj.natural(), sj.ternary(),
    sj.low_rank(1),
]  # fmt: skip
GRAPHS = [
    sj.ring(6), sj.star(6), sj.path(6), sj.isolated(6), sj.exponential(6), sj.random_digraph(6, 2),
    sj.one_peer_exponential(6), sj.base_graph(6, 1), sj.alternate(sj.ring(6), sj.complete(6)),
]  # fmt: skip
FAULTS = [
    {"drop": 0.2},
    {"drop": 0.2, "symmetric": False, "lost_weight": "renormalise"},
    {"drop": 0.2, "burst": 4},
    {"offline": 0.2, "mean_offline": 3},
    {"offline": 0.2, "computes": True},
    {"delay": 2},
]


def make(name, topology, **options):
    rho = {"rho": 0.1} if "rho" in METHODS.options(name) else {}
    return sj.METHODS[name](topology, 0.1, **rho, **options)


def shapes_after_a_step(method):
    """Traces a step and returns the shapes of models and state before and after it; computes nothing."""
    problem = Problem(method.topology.size)
    state = jax.eval_shape(method.init, problem.params)

    def step(params, state):
        batch, key = problem.batch(0), jax.random.key(0)
        return method.step(problem.loss_fn, params, state, batch, key)[:2]

    return (problem.params, state), jax.eval_shape(step, problem.params, state)


def is_taken(make_method):
    """Tells whether a method can be made and begun, which rehearses a step; if not, it must say why."""
    try:
        jax.eval_shape(make_method().init, Problem(6).params)
    except sj.ArgumentError as error:
        return "\n" in str(error) and pytest.fail(str(error))
    return True


@every_method
def test_every_gradient(name):
    method = make(name, suited(name, sj.ring(6)))
    for estimator in GRADIENTS:
        text = "sam(rho=0.1)" if estimator == "sam" else estimator
        before, after = shapes_after_a_step(dataclasses.replace(method, gradient=GRADIENTS.make(text)))
        chex.assert_trees_all_equal_shapes_and_dtypes(before, after)


@every_method
def test_every_compressor(name):
    for compressor in COMPRESSORS if "compressor" in METHODS.options(name) else ():
        assert is_taken(lambda c=compressor: make(name, suited(name, sj.ring(6)), compressor=c)), compressor


@every_method
def test_every_graph(name):
    taken = {graph.name for graph in GRAPHS if is_taken(lambda g=graph: make(name, g))}
    if name in ("sgp", "push_diging"):
        assert {"random_digraph(6, 2, seed=0)", "one_peer_exponential(6)", "ring(6)"} <= taken
    elif name == "relay_sgd":
        assert taken == {"star(6)", "path(6)"}
    else:
        assert "ring(6)" in taken
        assert "random_digraph(6, 2, seed=0)" not in taken


@every_method
def test_every_fault(name):
    method = make(name, suited(name, sj.ring(6)))
    taken = [is_taken(lambda o=o: dataclasses.replace(method, faults=sj.Faults(**o))) for o in FAULTS]
    keeps_copies = name in ("dcd", "ecd", "beer", "motef", "ada_gossip")
    assert taken[0] != keeps_copies
