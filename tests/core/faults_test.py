"""Unreliable networks, against matrices W_t that are written down link by link in NumPy."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import printed_algorithms as printed
import pytest
from problem import IRREGULAR, Problem, faulty, run
from suited import PLAIN

import saddle_jax as sj
from saddle_jax.core.comm_cost import comm_cost
from saddle_jax.devices import lifting

tree = jax.tree.map
ETA = 0.1
STEPS = 5
RANDOM = np.random.default_rng(3)
MASKS = RANDOM.random((STEPS, 5, 5)) < 0.6  # one-way
BOTH = MASKS & np.swapaxes(MASKS, 1, 2)
ONLINE = RANDOM.random((STEPS, 5)) < 0.7


def after_losses(w, arrived, lost_weight):
    """W of one step: what a lost message leaves behind."""
    w = w.copy()
    for i in range(len(w)):
        for j in range(len(w)):
            if i != j and not arrived[i, j]:
                if lost_weight == "self":
                    w[i, i] += w[i, j]
                w[i, j] = 0.0
        if lost_weight == "renormalise":
            w[i] /= w[i].sum()
    return w


def by_hand(problem, matrices, rule):
    """Models after every step; rule(step, w, x, gradients) -> x, all as lists of agents' models."""
    x, history = printed.copy(problem.start), []
    for t, w in enumerate(matrices):
        g = [problem.gradient(i, x[i], t) for i in range(len(x))]
        x = rule(t, w, x, g)
        history.append(printed.copy(x))
    return history


def mixed(w, x):
    return [[sum(w[i, j] * x[j][k] for j in range(len(x))) for k in range(len(x[0]))] for i in range(len(x))]


def descent(t, w, x, g):
    return mixed(w, [printed.subtract(x[i], printed.times(ETA, g[i])) for i in range(len(x))])


def assert_same(history, expected):
    for t, models in enumerate(expected):
        for i, (b, w) in enumerate(models):
            np.testing.assert_allclose(history["b"][t, i], b, rtol=0, atol=1e-10, err_msg=f"{t}, {i}")
            np.testing.assert_allclose(history["w"][t, i], w, rtol=0, atol=1e-10, err_msg=f"{t}, {i}")


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("lost_weight", ["self", "renormalise"])
@pytest.mark.parametrize("masks", [MASKS, BOTH], ids=["one-way", "both-ways"])
def test_lost_messages(masks, lost_weight):
    problem = Problem(5, steps=STEPS)
    method = faulty(sj.dpsgd(IRREGULAR, ETA, **PLAIN), arrived=masks, lost_weight=lost_weight)
    matrices = [after_losses(IRREGULAR.mixing, mask, lost_weight) for mask in masks]
    history, _, _ = run(method, problem)
    assert_same(history, by_hand(problem, matrices, descent))


@pytest.mark.usefixtures("x64")
def test_lost_messages_of_momentum_and_on_graphs_that_take_turns():
    problem, graphs = Problem(5, steps=STEPS), (sj.ring(5), sj.star(5))
    matrices = [after_losses(graphs[t % 2].mixing, BOTH[t], "self") for t in range(STEPS)]
    history, _, _ = run(faulty(sj.dpsgd(sj.alternate(*graphs), ETA, **PLAIN), arrived=BOTH), problem)
    assert_same(history, by_hand(problem, matrices, descent))

    m_hat = [printed.zeros_like(x) for x in problem.start]

    def qgm(t, w, x, g):
        half = []
        for i in range(5):
            m = printed.add(printed.times(0.9, m_hat[i]), g[i])
            half.append(printed.subtract(x[i], printed.times(ETA, m)))
        new = mixed(w, half)
        for i in range(5):
            d = printed.times(1 / ETA, printed.subtract(x[i], new[i]))
            m_hat[i] = printed.add(printed.times(0.9, m_hat[i]), printed.times(0.1, d))
        return new

    matrices = [after_losses(IRREGULAR.mixing, mask, "renormalise") for mask in MASKS]
    lossy = faulty(
        sj.qgm(IRREGULAR, ETA, nesterov=False, weight_decay=0.0), arrived=MASKS, lost_weight="renormalise"
    )
    history, _, _ = run(lossy, problem)
    assert_same(history, by_hand(problem, matrices, qgm))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("computes", [False, True], ids=["frozen", "computes"])
def test_agents_that_are_away(computes):
    problem, m = Problem(5, steps=STEPS), [printed.zeros_like(x) for x in Problem(5).start]

    def rule(t, w, x, g):
        takes_part = ONLINE[t] | computes
        half = []
        for i in range(5):
            if takes_part[i]:
                m[i] = printed.add(printed.times(0.9, m[i]), g[i])
            half.append(printed.subtract(x[i], printed.times(ETA, m[i])))
        new = mixed(w, half)
        return [new[i] if takes_part[i] else x[i] for i in range(5)]

    matrices = [after_losses(IRREGULAR.mixing, np.outer(on, on), "self") for on in ONLINE]
    method = faulty(
        sj.dpsgd(IRREGULAR, ETA, beta=0.9, nesterov=False, weight_decay=0.0), online=ONLINE, computes=computes
    )
    history, state, _ = run(method, problem)
    assert_same(history, by_hand(problem, matrices, rule))
    # A message is sent where both ends are online; lost ones would count too.
    links = (IRREGULAR.mixing > 0) & ~np.eye(5, dtype=bool)
    sent = sum((links & np.outer(on, on)).sum(axis=0) for on in ONLINE)
    np.testing.assert_array_equal(state.faults.sent[:, 0], sent)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("delay", [1, 3])
def test_late_messages(delay):
    problem, halves = Problem(5, steps=STEPS), []

    def rule(t, w, x, g):
        halves.append([printed.subtract(x[i], printed.times(ETA, g[i])) for i in range(5)])
        new = []
        for i in range(5):
            model = printed.zeros_like(x[i])
            for j in range(5):
                # The message of step t - delay; before the first one comes, the weight is the agent's own.
                late = i != j and t >= delay and MASKS[t - delay][i, j]
                heard = halves[t - delay][j] if late else halves[t][i]
                model = printed.add(model, printed.times(w[i, j], heard))
            new.append(model)
        return new

    history, _, _ = run(faulty(sj.dpsgd(IRREGULAR, ETA, **PLAIN), arrived=MASKS, delay=delay), problem)
    assert_same(history, by_hand(problem, [IRREGULAR.mixing] * STEPS, rule))


@pytest.mark.usefixtures("x64")
def test_late_messages_of_each_kind_of_round():
    """gather and send are late too; the own row never is."""
    graph, seen = sj.ring(4), []

    def step(s, x, state):
        heard = s.network.gather(x)
        seen.append(s.network.send(heard))
        return s.network.mix(heard.sum(axis=1)), state

    method = faulty(sj.Method("rounds", graph, sj.Rule(lambda x: (), step)), delay=1)
    x = jnp.arange(1.0, 5.0)[:, None]
    state = method.init(x)
    seen.clear()
    first, state, _ = method.step(lambda x, d: 0.0, x, state, x)
    np.testing.assert_array_equal(first, x)  # nothing has arrived: the own row alone
    np.testing.assert_array_equal(seen[0][:, :, 0], np.c_[x[:, 0], np.zeros((4, 2))])
    second, _, _ = method.step(lambda x, d: 0.0, 10 * x, state, x)
    heard = np.array([[10 * (i + 1), *sorted(((i - 1) % 4 + 1, (i + 1) % 4 + 1))] for i in range(4)])
    w, halves = graph.mixing, heard.sum(axis=1)
    off = w - np.diag(np.diag(w))
    np.testing.assert_allclose(second[:, 0], np.diag(w) * halves + off @ np.arange(1.0, 5.0))
    # What each neighbour k of i sent to i in the first step: what it had then heard of i, which was nothing.
    np.testing.assert_array_equal(seen[1][:, 0, 0], 10 * np.arange(1.0, 5.0))
    np.testing.assert_array_equal(seen[1][:, 1:, 0], 0)


def push_sum(eta):
    """SGP: x <- P (w z - eta g(z)), w <- P w, z = x / w."""

    def step(s, z, w):
        x = tree(lambda z, g: w.reshape(-1, *(1,) * (z.ndim - 1)) * z - eta * g, z, s.gradient(z))
        x, w = s.network.mix((x, w))
        return tree(lambda x: x / w.reshape(-1, *(1,) * (x.ndim - 1)), x), w

    return sj.Rule(lambda z: jnp.ones(len(jax.tree.leaves(z)[0])), step, requires="column")


LOPSIDED = np.eye(5) + np.roll(np.eye(5), 1, axis=0)
LOPSIDED[0, 3] = LOPSIDED[4, 1] = 1
LOPSIDED /= LOPSIDED.sum(axis=0)


@pytest.mark.usefixtures("x64")
def test_push_sum_keeps_what_it_cannot_deliver():
    problem, graph = Problem(5, steps=STEPS), sj.from_matrix(LOPSIDED, name="lopsided")
    weights = np.ones(5)
    matrices = []
    for mask in MASKS:
        p = LOPSIDED.copy()
        for i in range(5):
            for j in range(5):
                if i != j and not mask[i, j]:
                    p[j, j] += p[i, j]
                    p[i, j] = 0.0
        matrices.append(p)

    def rule(t, p, z, g):
        nonlocal weights
        x = [printed.subtract(printed.times(weights[i], z[i]), printed.times(ETA, g[i])) for i in range(5)]
        x, weights = mixed(p, x), p @ weights
        return [printed.times(1 / weights[i], x[i]) for i in range(5)]

    history, state, _ = run(faulty(sj.Method("sgp", graph, push_sum(ETA)), arrived=MASKS), problem)
    assert_same(history, by_hand(problem, matrices, rule))
    np.testing.assert_allclose(state.rule, weights, atol=1e-12)
    assert float(state.rule.sum()) == pytest.approx(5, abs=1e-12)
    # What is late is under way: the mass returns to five when it has arrived.
    _, state, _ = run(faulty(sj.Method("sgp", graph, push_sum(ETA)), arrived=MASKS, delay=1), problem)
    under_way = state.faults.past[0][1][:, 0]
    delivered = np.where(MASKS[-1] & ~np.eye(5, dtype=bool), LOPSIDED, 0)
    assert float(state.rule.sum() + delivered.sum(axis=0) @ under_way) == pytest.approx(5, abs=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("rho", [0.0, 0.2], ids=["plain", "sam"])
def test_cross_gradients_that_are_lost_leave_their_weight_to_the_own_one(rho):
    problem = Problem(5, steps=STEPS)

    def rule(t, w, x, g):
        def gradient(i, model):
            g = problem.gradient(i, model, t)
            if rho:
                g = problem.gradient(i, printed.add(model, printed.times(rho / printed.norm(g), g)), t)
            return g

        new = mixed(w, x)
        for i in range(5):
            for j in range(5):
                new[i] = printed.subtract(new[i], printed.times(ETA * w[i, j], gradient(j, x[i])))
        return new

    matrices = [after_losses(IRREGULAR.mixing, mask, "self") for mask in BOTH]
    method = faulty(sj.saddle(sj.ngm(IRREGULAR, ETA, beta=0.0, weight_decay=0.0), rho), arrived=BOTH)
    history, _, _ = run(method, problem)
    assert_same(history, by_hand(problem, matrices, rule))


def test_no_faults_are_the_method_and_a_rate_may_be_traced():
    problem, method = Problem(5), sj.qgm(IRREGULAR, 0.1, weight_decay=0.0)
    whole, _, _ = run(method, problem)
    for nothing in (
        sj.Faults(),
        sj.Faults(lost_weight="renormalise"),
        sj.Faults(arrived=np.ones((1, 5, 5), bool)),
    ):
        same, _, _ = run(dataclasses.replace(method, faults=nothing), problem)
        chex.assert_trees_all_close(same, whole, rtol=1e-6, atol=1e-6)

    def ends(drop, offline):
        lossy = faulty(sj.qgm(IRREGULAR, 0.1, weight_decay=0.0), drop=drop, offline=offline)
        return run(lossy, problem)[0]

    rates = jnp.array([0.0, 0.5]), jnp.array([0.0, 0.3])
    swept = jax.vmap(ends)(*rates)
    chex.assert_trees_all_close(tree(lambda x: x[0], swept), whole, rtol=1e-6, atol=1e-6)
    chex.assert_trees_all_close(tree(lambda x: x[1], swept), ends(0.5, 0.3), rtol=1e-6, atol=1e-6)
    assert np.abs(swept["w"][1] - whole["w"]).max() > 1e-3


@pytest.mark.parametrize("options", [{"drop": 0.5, "burst": 3}, {"delay": 2}, {"offline": 0.4}], ids=str)
def test_four_devices_give_the_same_numbers(options):
    method, problem = faulty(sj.qgm(sj.ring(8), 0.1, weight_decay=0.0), **options), Problem(8)
    ends = []
    for devices in (1, 4):
        mesh = sj.agent_mesh(devices)
        with jax.set_mesh(mesh):
            placed = jax.device_put((problem.params, problem.batch(0)), lifting.stacked_sharding(mesh))
            step, state = jax.jit(method.step, static_argnums=0), method.init(placed[0])
            params = placed[0]
            for t in range(4):
                params, state, _ = step(problem.loss_fn, params, state, placed[1], jax.random.key(t))
            ends.append(jax.device_get((params, state.rule, state.faults)))
    chex.assert_trees_all_close(*ends, rtol=1e-5, atol=1e-6)


def test_stopping_and_going_on_is_the_same_run_bit_for_bit():
    options = {"drop": 0.3, "burst": 2, "offline": 0.2, "mean_offline": 3, "delay": 2}
    method, problem = faulty(sj.qgm(sj.ring(6), 0.1, weight_decay=0.0), **options), Problem(6)
    step = jax.jit(method.step, static_argnums=0)

    def go(params, state, steps):
        for t in steps:
            params, state, _ = step(problem.loss_fn, params, state, problem.batch(t), jax.random.key(t))
        return params, state

    through = go(problem.params, method.init(problem.params), range(4))
    halfway = jax.device_get(go(problem.params, method.init(problem.params), range(2)))
    chex.assert_trees_all_equal(go(*halfway, range(2, 4)), through)


def test_a_step_tells_the_share_of_its_messages_that_were_lost():
    graph, problem = sj.star(5), Problem(5, steps=STEPS)
    arrived = np.random.default_rng(0).random((STEPS, 5, 5)) < 0.6
    _, _, metrics = run(faulty(sj.dpsgd(graph, 0.1, **PLAIN), arrived=arrived, online=ONLINE), problem)
    links = (graph.mixing > 0) & ~np.eye(5, dtype=bool)
    sent = [links & np.outer(on, on) for on in ONLINE]
    shares = [(each & ~came).sum() / max(1, each.sum()) for each, came in zip(sent, arrived, strict=True)]
    np.testing.assert_allclose(metrics["messages_lost"], shares, rtol=1e-6)
    _, _, metrics = run(sj.dpsgd(graph, 0.1, **PLAIN), problem)
    assert "messages_lost" not in metrics


def test_the_books_tell_what_was_really_sent():
    graph, problem = sj.star(5), Problem(5, steps=STEPS)
    _, state, metrics = run(faulty(sj.dpsgd(graph, 0.1, **PLAIN), online=ONLINE), problem)
    cost = comm_cost(sj.dpsgd(graph, 0.1, **PLAIN), problem.params)
    links = (graph.mixing > 0) & ~np.eye(5, dtype=bool)
    per_step = [(links & np.outer(on, on)).sum() for on in ONLINE]
    assert cost.bytes_of(metrics["sent"][-1]) == sum(per_step) * cost.link_bytes // 5
    # What is lost on the way was sent.
    _, state, _ = run(faulty(sj.dpsgd(graph, 0.1, **PLAIN), drop=0.9), problem)
    assert cost.bytes_of(state.faults.sent) == cost.wire_bytes_per_agent(STEPS)


def test_compressed_gossip_may_be_late_and_a_function_may_say_what_arrives():
    late, _, _ = run(
        faulty(sj.qgm(sj.ring(5), 0.1, compressor=sj.top_k(0.5), weight_decay=0.0), delay=1), Problem(5)
    )
    assert np.isfinite(late["w"]).all()

    def loses_agent_1(key, t, neighbours):
        del key, t
        return neighbours != 1

    masks = np.ones((1, 5, 5), bool)
    masks[0, :, 1] = False
    ends = [
        run(faulty(sj.dpsgd(sj.ring(5), 0.1, **PLAIN), arrived=arrived), Problem(5))[0]
        for arrived in (loses_agent_1, masks)
    ]
    chex.assert_trees_all_equal(*ends)
