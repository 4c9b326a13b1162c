"""CGA against its paper in NumPy, and its quadratic program by the conditions of a minimum."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import printed_algorithms as printed
import published_relay as published
import pytest
from problem import GRAPHS, IRREGULAR, Problem, assert_transcribed_with_radii, compiled, run
from quadratics import Quadratics

import saddle_jax as sj
from saddle_jax.methods.cga import aggregated
from saddle_jax.methods.cga_program import solve

SCHEDULE = optax.piecewise_constant_schedule(0.2, {2: 0.1})


def eta(t):
    return 0.2 if t < 2 else 0.02


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("graph", "options"),
    [
        (GRAPHS[1], {"nesterov": True}),
        (IRREGULAR, {"nesterov": False, "margin": 0.0}),
        (IRREGULAR, {"self_gradient": "mixed", "gamma": 0.5, "margin": 0.2}),
        (GRAPHS[0], {"compressor": sj.top_k(0.4)}),
        (GRAPHS[1], {"compressor": sj.sign()}),
    ],
    ids=["torus", "heavy-ball", "mixed", "top_k", "sign"],
)
def test_it_is_the_published_method(graph, options):
    transcribed = {None: None, "top_k(0.4)": printed.top_k(0.4), "sign()": printed.sign}
    problem, options = Problem(graph.size), {"weight_decay": 0.03, "beta": 0.9, **options}
    method = sj.cga(graph, SCHEDULE, **options)
    compressor = options.pop("compressor", None)
    operator = transcribed[compressor and str(compressor)]

    def transcribe(rho):
        arguments = (problem.start, graph.mixing, problem.gradient, problem.steps, eta)
        return published.cga(*arguments, rho=rho, Q=operator, **options)

    assert_transcribed_with_radii(method, problem, transcribe)


def test_where_all_gradients_agree_a_margin_of_one_is_ngm():
    """Then every v is at its least, 1: the program has nothing to gain."""
    problem = Problem(5)
    problem.x[:] = np.abs(problem.x)

    def rising(params, batch):
        return jnp.mean(batch["x"] @ params["w"] + params["b"][None])

    with jax.enable_x64(True):
        history, _, _ = run(sj.cga(IRREGULAR, 0.1, margin=1.0), problem, rising)
        expected, _, _ = run(sj.ngm(IRREGULAR, 0.1), problem, rising)
        chex.assert_trees_all_close(history, expected, rtol=0, atol=1e-13)
        other, _, _ = run(sj.cga(IRREGULAR, 0.1), problem, rising)
    assert np.abs(other["w"] - expected["w"]).max() > 1e-3


def problems(unknowns, kind, count=100, seed=0):
    """Rows M [count, k, 6] and an own gradient g [count, 6]."""
    random = np.random.default_rng(seed)
    M, g = random.normal(size=(count, unknowns, 6)), random.normal(size=(count, 6))  # noqa: N806
    if kind == "equal rows":
        M[:, -1] = M[:, 0]
    if kind == "zero rows":
        M[:, ::2] = 0
    if kind == "opposed rows":
        M[:, -1] = -M[:, 0]
    if kind == "own is a row":
        g = -M[:, 0]
    if kind == "small":
        M, g = M * 1e-6, g * 1e-6  # noqa: N806
    return M, g


KINDS = ("plain", "equal rows", "zero rows", "opposed rows", "own is a row", "small")


@pytest.mark.parametrize("margin", [0.0, 0.5])
@pytest.mark.parametrize("kind", KINDS)
def test_the_program_meets_the_conditions_of_a_minimum(kind, margin):
    """u = v - margin >= 0, y = G v + b >= 0, and u_i y_i = 0, each to 1e-9 of its scale; in float64."""
    with jax.enable_x64(True):
        for unknowns in (1, 3, 8):
            M, g = problems(unknowns, kind)  # noqa: N806
            G = M @ M.swapaxes(1, 2) + 1e-12 * np.eye(unknowns)  # noqa: N806
            b = np.einsum("nki,ni->nk", M, g)
            v = np.asarray(compiled(solve)(jnp.asarray(G), jnp.asarray(b), margin))
            y = np.einsum("nij,nj->ni", G, v) + b
            size = np.abs(b).max(axis=1, keepdims=True) + np.abs(G).max(axis=(1, 2))[:, None]
            assert (v - margin).min() >= 0
            assert (y / size).min() > -1e-9
            assert np.abs(np.minimum((v - margin) / (1 + v), y / size)).max() < 1e-9
            if margin:  # some constraints bind, some do not
                assert unknowns == 1 or 0 < np.mean(v == margin) < 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_program_serves_float32(kind):
    """The aggregated gradient is near that of float64, where rows depend on each other too."""
    M, g = problems(4, kind)  # noqa: N806
    sums = []
    for dtype in (np.float32, np.float64):
        with jax.enable_x64(dtype is np.float64):
            rows = jnp.asarray(np.concatenate([g[:, None], M], axis=1), dtype)
            sums.append(np.asarray(compiled(aggregated)({"w": rows}, 0.5)["w"], np.float64))
    scale = np.abs(M).max()
    np.testing.assert_allclose(sums[0] / scale, sums[1] / scale, atol=2e-4)


@pytest.mark.usefixtures("x64")
def test_it_ends_beside_the_optimum():
    assert Quadratics(5).distance(sj.cga(sj.ring(5), 0.05, weight_decay=0.0), 1000) == pytest.approx(
        0.464, rel=0.01
    )


def test_many_neighbours_are_refused():
    with pytest.raises(ValueError, match=r"at most 8 neighbours for cga, .* got complete\(10\) with 9"):
        sj.cga(sj.complete(10), 0.1)
    assert sj.cga(sj.complete(9), 0.1).name == "cga"
    with pytest.raises(ValueError, match="margin must be a number >= 0, got -1"):
        sj.cga(sj.ring(5), 0.1, margin=-1)
    with pytest.raises(ValueError, match="topology must be undirected"):
        sj.cga(sj.exponential(8), 0.1)
