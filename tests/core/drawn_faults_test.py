"""What faults draw from a key: how often, how long, for whom; and mistakes, reported in one line."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problem import Problem, faulty, run

import saddle_jax as sj

LOPSIDED = sj.random_digraph(5, 2)


def drawn(faults, graph, steps, seed=0):
    """What arrives [T, A, K] and who is online [T, A] in many steps."""
    network = sj.Network(graph)

    def body(state, t):
        key = jax.random.fold_in(jax.random.key(seed), t)
        conditions, state = faults.draw(key, t, network.table, state, 0)
        return state, (conditions.arrived, conditions.online)

    start = faults.init(graph.occupied, 1, ())
    return jax.jit(lambda: jax.lax.scan(body, start, jnp.arange(steps))[1])()


def runs_of(bad):
    """The lengths of all runs of True in [T, ...] that have ended."""
    lengths = []
    for line in bad.reshape(len(bad), -1).T:
        edges = np.flatnonzero(np.diff(np.r_[0, line.astype(int), 0]))
        lengths += [
            end - start for start, end in zip(edges[::2], edges[1::2], strict=True) if end < len(line)
        ]
    return np.array(lengths)


@pytest.mark.parametrize("symmetric", [True, False], ids=["both-ways", "one-way"])
def test_independent_losses(symmetric):
    graph = sj.ring(6)
    arrived, online = drawn(sj.Faults(drop=0.3, symmetric=symmetric), graph, 2000)
    assert np.asarray(online).all()
    assert np.asarray(arrived[:, :, 0]).all()
    lost = ~np.asarray(arrived[:, :, 1:])
    assert lost.mean() == pytest.approx(0.3, abs=0.01)
    assert runs_of(lost).mean() == pytest.approx(1 / 0.7, abs=0.03)
    matrix = np.zeros((2000, 6, 6), bool)
    for k in range(1, 3):
        matrix[:, np.arange(6), graph.neighbours[:, k]] = lost[:, :, k - 1]
    both = (matrix & np.swapaxes(matrix, 1, 2)).sum() / matrix.sum()
    assert both == (1 if symmetric else pytest.approx(0.3, abs=0.02))
    first = matrix[:, 0, 1], matrix[:, 1, 2]
    assert np.corrcoef(*first)[0, 1] == pytest.approx(0, abs=0.08)


def test_losses_in_bursts_and_agents_that_come_and_go():
    faults = sj.Faults(drop=0.2, burst=6, offline=0.25, mean_offline=10)
    arrived, online = drawn(dataclasses.replace(faults, offline=0.0, mean_offline=None), sj.ring(8), 6000)
    lost = ~np.asarray(arrived[:, :, 1:])
    assert lost.mean() == pytest.approx(0.2, abs=0.02)
    assert runs_of(lost).mean() == pytest.approx(6, abs=0.5)
    arrived, online = drawn(faults, sj.ring(8), 6000)
    away = ~np.asarray(online)
    assert away.mean() == pytest.approx(0.25, abs=0.03)
    assert runs_of(away).mean() == pytest.approx(10, abs=1.2)
    table = sj.ring(8).neighbours
    lost = ~np.asarray(arrived[:, :, 1:])
    assert lost[away].all()
    assert lost[away[:, table[:, 1:]]].all()


def test_joins_and_leaves():
    _, online = drawn(sj.Faults(joins={1: 3}, leaves={2: 4, 0: 1}), sj.ring(4), 6)
    assert np.asarray(online).astype(int).T.tolist() == [
        [1, 0, 0, 0, 0, 0],
        [0, 0, 0, 1, 1, 1],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 1, 1],
    ]


def test_the_same_seed_loses_the_same_messages_whatever_the_method_and_the_padding():
    faults, graph = sj.Faults(drop=0.4, offline=0.2), sj.ring(6)
    arrived, online = drawn(faults, graph, 20)
    padded, padded_online = drawn(faults, graph.padded(8), 20)
    np.testing.assert_array_equal(arrived, padded[:, :6])
    np.testing.assert_array_equal(online, padded_online[:, :6])
    other, _ = drawn(faults, graph, 20, seed=1)
    assert not np.array_equal(arrived, other)
    sent = [
        run(dataclasses.replace(make(graph, 0.1), faults=faults), Problem(6))[1].faults.sent
        for make in (sj.dpsgd, sj.qgm, sj.ngm)
    ]
    chex.assert_trees_all_equal(*sent)


REFUSED = {
    "drop": (lambda: sj.Faults(drop=1.0), "drop must be a number >= 0 and < 1, got 1.0"),
    "offline": (lambda: sj.Faults(offline=-0.1), "offline must be a number >= 0 and < 1, got -0.1"),
    "delay": (lambda: sj.Faults(delay=1.5), "delay must be an integer >= 0, got 1.5"),
    "lost_weight": (
        lambda: sj.Faults(lost_weight="x"),
        "lost_weight must be one of 'self', 'renormalise', got 'x'",
    ),
    "symmetric": (lambda: sj.Faults(symmetric=1), "symmetric must be a bool, such as True, got 1"),
    "burst": (lambda: sj.Faults(drop=0.8, burst=2), r"burst, .* at drop = 0.8, must be a number >= 4, got 2"),
    "mask": (
        lambda: sj.Faults(arrived=np.ones((2, 3, 3))),
        r"arrived must be masks bool \[T, A, A\] or a function, got float64 \[2, 3, 3\]",
    ),
    "both": (
        lambda: sj.Faults(drop=0.1, arrived=np.ones((2, 3, 3), bool)),
        "drop must be 0 beside arrived, which says what is lost, got 0.1",
    ),
    "masks of another shape": (
        lambda: faulty(sj.dpsgd(sj.ring(4), 0.1), arrived=np.ones((2, 3, 3), bool)),
        r"arrived must be \[T, A, A\] with A = 4 agents, got shape \(2, 3, 3\)",
    ),
    "agents of another number": (
        lambda: faulty(sj.dpsgd(sj.ring(4), 0.1), online=np.ones((2, 5), bool)),
        r"online must be \[T, A\] with A = 4 agents, got shape \(2, 5\)",
    ),
    "nobody": (
        lambda: faulty(sj.dpsgd(sj.ring(4), 0.1), joins={4: 2}),
        "joins: agent must be an integer >= 0 and <= 3, got 4",
    ),
    "faults": (
        lambda: dataclasses.replace(sj.dpsgd(sj.ring(4), 0.1), faults=0.1),
        r"faults must be a Faults, such as sj.Faults\(drop=0.1\), got 0.1",
    ),
    "key": (
        lambda: run(faulty(sj.dpsgd(sj.ring(5), 0.1), drop=0.1), Problem(5), keys=()),
        r"key must be given to a step with Faults\(drop=0.1\), which draws, got None",
    ),
    "compressed": (
        lambda: faulty(sj.qgm(sj.ring(5), 0.1, compressor=sj.sign()), drop=0.1).init(Problem(5).params),
        r"faults must lose nothing for compressed gossip, .* got Faults\(drop=0.1\)",
    ),
    "compressed gradients": (
        lambda: faulty(sj.ngm(sj.ring(5), 0.1, compressor=sj.sign()), drop=0.1).init(Problem(5).params),
        "faults must lose nothing for error feedback, which is kept per link",
    ),
    "one way": (
        lambda: faulty(sj.ngm(sj.ring(5), 0.1), drop=0.1, symmetric=False).init(Problem(5).params),
        "faults must be symmetric and without delay for cross-gradients",
    ),
    "pairs": (
        lambda: faulty(sj.n_saddle(sj.ring(5), 0.1, 0.1, ascent_every=2, ascent_reuse=True), drop=0.1).init(
            Problem(5).params
        ),
        "faults must lose nothing for sam.* which remembers pairs",
    ),
    "mass": (
        lambda: faulty(sj.sgp(LOPSIDED, 0.1), lost_weight="renormalise"),
        "lost_weight must be 'self' on random_digraph.*, whose senders keep what they cannot deliver",
    ),
    "late mass": (
        lambda: faulty(sj.sgp(LOPSIDED, 0.1), delay=1, offline=0.1),
        "delay must be 0 on random_digraph.* where agents are away",
    ),
    "turns": (
        lambda: faulty(sj.dpsgd(sj.alternate(sj.ring(5), sj.star(5)), 0.1), drop=0.1, burst=2),
        r"burst must be None on alternate\(ring\(5\), star\(5\)\), whose links are others in every step, got",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_mistakes_are_told_in_one_line(case):
    make, message = REFUSED[case]
    with pytest.raises(sj.ArgumentError, match=message) as error:
        make()
    assert "\n" not in str(error.value)
