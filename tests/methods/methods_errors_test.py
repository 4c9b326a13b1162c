"""What a method refuses, and in which words."""

import jax.numpy as jnp
import optax
import pytest
from methods_common_test import every_method, make
from problem import Problem

import saddle_jax as sj

BAD = {
    "learning_rate": ({"learning_rate": 0.0}, "learning_rate must be a number > 0, got 0.0"),
    "learning_rate text": ({"learning_rate": "fast"}, "learning_rate must be .* got 'fast'"),
    "gamma": ({"gamma": 0.0}, "gamma must be a number > 0.*, got 0.0"),
    "beta": ({"beta": 1.0}, "beta must be a number >= 0 and < 1, got 1.0"),
    "weight_decay": ({"weight_decay": -1}, "weight_decay must be a number >= 0, got -1"),
    "compressor": ({"compressor": "sign"}, r"compressor must be a Compressor, such as .*, got 'sign'"),
    "mixing": ({"mixing": "sparse"}, "mixing must be one of .* got 'sparse'"),
}


@every_method
@pytest.mark.parametrize("argument", BAD)
def test_bad_arguments_are_named_with_their_value(name, argument):
    options, message = BAD[argument]
    with pytest.raises(ValueError, match=message):
        make(name, sj.ring(5), **options)


@every_method
def test_bad_trees_are_named_with_their_shape(name):
    method, problem = make(name, sj.ring(5)), Problem(5)
    state = method.init(problem.params)
    with pytest.raises(ValueError, match=r"topology must be a Topology, such as .* got 5"):
        make(name, 5)
    with pytest.raises(ValueError, match=r"params\['b'\] must have leading axis A = 5.* got shape \(4, 2\)"):
        method.init(Problem(4).params)
    with pytest.raises(ValueError, match=r"params must have at least one array, got \{\}"):
        method.init({})
    with pytest.raises(
        ValueError, match=r"batch\['x'\] must have leading axis A = 5.* got shape \(4, 3, 3\)"
    ):
        method.step(problem.loss_fn, problem.params, state, Problem(4).batch(0))
    with pytest.raises(ValueError, match=r"params\['b'\] must have leading axis A = 5"):
        method.step(problem.loss_fn, Problem(4).params, state, problem.batch(0))


def test_options_of_single_methods_are_checked():
    ring = sj.ring(5)
    for build, message in (
        (lambda: sj.qgm(ring, 0.1, mu=1.0), "mu must be .* got 1.0"),
        (lambda: sj.choco(sj.sign(), order="new"), "order must be one of 'choco', 'paper', got 'new'"),
        (lambda: sj.exact(mixing="sparse"), "mixing must be one of .* got 'sparse'"),
        (lambda: sj.ngm(ring, 0.1, self_gradient="x"), "self_gradient must be one of .* got 'x'"),
        (lambda: sj.q_saddle(ring, 0.1, -1.0), "rho must be a number >= 0, got -1.0"),
        (lambda: sj.n_saddle(ring, 0.1, 0.1, ascent_every=0), "ascent_every must be .* got 0"),
        (lambda: sj.neighbourhood_mean(5), "topology must be a Topology"),
        (lambda: sj.neighbourhood_mean(sj.exponential(8)), "topology must be undirected"),
        (lambda: sj.ngm(sj.exponential(8), 0.1), "topology must be undirected"),
        (lambda: sj.saddle(5, 0.1), "method must be a Method"),
        (lambda: sj.saddle(sj.qgm(ring, 0.1), "sam"), "rho must be a number >= 0, got 'sam'"),
        (lambda: sj.rule_of(None), "transform must be a GradientTransformation"),
        (lambda: sj.rule_of(optax.sgd(0.1), gradients="all"), "gradients must be one of .* got 'all'"),
        (lambda: sj.Method("mine", ring, None), "rule must be a Rule, such as .* got None"),
        (
            lambda: sj.Method("mine", ring, sj.rule_of(optax.sgd(0.1)), 0.05),
            "gradient must be a GradientEstimator",
        ),
        (lambda: sj.sam(0.1, every=0), "every must be an integer >= 1, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            build()
    pairs = sj.neighbourhood_mean(ring)
    with pytest.raises(
        ValueError, match=r"updates must be gradients of pairs .* = \[5, 3, ...\], got shape \(5, 2\)"
    ):
        pairs.update(jnp.zeros((5, 2)), pairs.init(jnp.zeros((5, 2))))


def test_pairs_that_nobody_averaged_are_refused():
    full, params = sj.complete(3), jnp.ones((3, 4))
    method = sj.Method("mine", full, sj.rule_of(optax.sgd(0.1), gradients="pairs"))
    with pytest.raises(
        ValueError, match=r"updates of the parameters' shapes.* is sj.neighbourhood_mean missing"
    ):
        method.init(params)
