"""Simulated time, against cases that can be computed by hand and a plain simulation of clocks."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problem import IRREGULAR, Problem, run

import saddle_jax as sj
from saddle_jax.devices import lifting

# One model of Problem: 2 + 6 numbers of four bytes.
BITS = 8 * 32


def timed(method, **options):
    return dataclasses.replace(method, timing=sj.Timing(**options))


def seconds(method, agents, steps=4, **options):
    _, _, metrics = run(timed(method, **options), Problem(agents, steps=steps))
    return np.asarray(metrics["simulated_seconds"])


def test_a_step_takes_its_gradient_its_latency_and_its_bits():
    ring = sj.ring(5)
    each = seconds(sj.dpsgd(ring, 0.1), 5, latency=0.01, bandwidth=1e6, compute=0.1)
    step = 0.1 + 0.01 + BITS / 1e6
    np.testing.assert_allclose(each, step * np.arange(1, 5), rtol=1e-6)
    sharp = seconds(sj.q_saddle(ring, 0.1, 0.1), 5, latency=0.01, bandwidth=1e6, compute=0.1)
    np.testing.assert_allclose(sharp, (step + 0.1) * np.arange(1, 5), rtol=1e-6)  # two backward passes
    # Three pairs of gradients each, and two rounds: models there, gradients back.
    crossed = seconds(sj.ngm(ring, 0.1), 5, latency=0.01, bandwidth=1e6, compute=0.1)
    np.testing.assert_allclose(crossed, (0.3 + 2 * (0.01 + BITS / 1e6)) * np.arange(1, 5), rtol=1e-6)


def test_compression_saves_time_on_slow_links_alone():
    method = sj.dpsgd(sj.ring(5), 0.1, compressor=sj.sign())
    bits = 8 * (2 * 4 + 1 + 1)  # two scales, two and six signs
    np.testing.assert_allclose(seconds(method, 5, bandwidth=100.0), bits / 100 * np.arange(1, 5), rtol=1e-6)
    np.testing.assert_allclose(seconds(method, 5, latency=2.0), 2.0 * np.arange(1, 5))


def test_a_straggler_is_felt_first_by_its_neighbours():
    """Agent 0 of a ring takes a second, the others none: who is d links away waits from step d on."""
    _, state, metrics = run(timed(sj.dpsgd(sj.ring(6), 0.1), compute=[1, 0, 0, 0, 0, 0]), Problem(6, steps=2))
    np.testing.assert_allclose(metrics["simulated_seconds"], [1, 2])
    np.testing.assert_allclose(state.clock.behind, [0, 0, 1, 2, 1, 0])


def test_times_of_links():
    latency = np.zeros((5, 5))
    latency[2, 1] = 3.0  # from agent 1 to agent 2
    _, state, metrics = run(timed(sj.dpsgd(sj.ring(5), 0.1), latency=latency), Problem(5, steps=1))
    np.testing.assert_allclose(metrics["simulated_seconds"], [3])
    np.testing.assert_allclose(state.clock.behind, [3, 3, 0, 3, 3])
    bandwidth = np.full((5, 5), math.inf)
    bandwidth[1, 2] = 64.0
    _, _, metrics = run(timed(sj.dpsgd(sj.ring(5), 0.1), bandwidth=bandwidth), Problem(5, steps=1))
    np.testing.assert_allclose(metrics["simulated_seconds"], [BITS / 64])


def local_steps(topology):
    """Talks in every other step; takes an exact average of all in every fourth."""

    def step(s, x, state):
        half = jax.tree.map(lambda x, g: x - 0.1 * g, x, s.gradient(x))
        return {0: lambda x: x, 1: s.network.mix, 2: s.network.all_reduce}[s.kind](half), state

    return sj.Method("local", topology, sj.Rule(lambda x: (), step, kinds=(0, 1, 0, 2), local_kinds=(0,)))


def test_silent_steps_and_averages_of_all():
    found = seconds(local_steps(sj.ring(6)), 6, latency=1.0, bandwidth=BITS, compute=0.25)
    everyone = 2 * 5 * (1 + 1 / 6)
    np.testing.assert_allclose(np.diff(found, prepend=0), [0.25, 2.25, 0.25, 0.25 + everyone], rtol=1e-6)


def clocks_by_hand(graph, timing, work, steps, online=None):
    """The agents' clocks, one agent and neighbour at a time."""
    clock, latest = np.zeros(graph.size), []
    for t in range(steps):
        on = np.ones(graph.size, bool) if online is None else online[t]
        ready = [clock[i] + work[t][i] * on[i] for i in range(graph.size)]
        heard = list(ready)
        for i in range(graph.size):
            for j in np.flatnonzero(graph.mixing[i]):
                if i != j and on[i] and on[j]:
                    heard[i] = max(heard[i], ready[j] + timing.latency[i, j] + BITS / timing.bandwidth[i, j])
        last = max([heard[i] for i in range(graph.size) if on[i]] + (latest[-1:] or [0.0]))
        clock = np.array([heard[i] if on[i] else last for i in range(graph.size)])
        latest.append(last)
    return clock, latest


@pytest.mark.parametrize("away", [False, True], ids=["all-there", "some-away"])
def test_measured_times_on_an_irregular_graph(away):
    random = np.random.default_rng(0)
    timing = sj.Timing(
        latency=random.uniform(0, 1, (5, 5)),
        bandwidth=random.uniform(100, 1000, (5, 5)),
        compute=random.uniform(0, 2, (7, 5)),
    )
    online = random.random((7, 5)) < 0.6 if away else None
    faults = sj.Faults(online=online) if away else None
    method = dataclasses.replace(sj.dpsgd(IRREGULAR, 0.1), timing=timing, faults=faults)
    _, state, metrics = run(method, Problem(5, steps=7))
    clock, latest = clocks_by_hand(IRREGULAR, timing, timing.compute, 7, online)
    np.testing.assert_allclose(metrics["simulated_seconds"], latest, rtol=1e-5)
    np.testing.assert_allclose(state.clock.seconds - state.clock.behind, clock, rtol=1e-5)


def test_stragglers_have_the_mean_that_was_given():
    times = []
    for seed in range(3):
        keys = jax.random.split(jax.random.key(seed), 1500)
        method = timed(sj.dpsgd(sj.isolated(4), 0.1), compute=2.0, compute_sigma=0.5)
        clock = method.init(Problem(4).params).clock
        network = sj.Network(method.topology)

        def body(clock, key, method=method, network=network):
            clock = method.timing.advance(key, 0, network, jnp.ones(4), clock)
            return clock, clock.seconds - clock.behind

        _, each = jax.lax.scan(body, clock, keys)
        times.append(np.diff(np.asarray(each), axis=0))
    drawn = np.concatenate(times)
    assert drawn.mean() == pytest.approx(2.0, rel=0.02)
    assert np.log(drawn).std() == pytest.approx(0.5, rel=0.05)
    assert np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1] == pytest.approx(0, abs=0.06)


def test_small_steps_are_not_lost_to_rounding():
    """A hundred thousand steps of a tenth of a millisecond after a long start, all in float32."""
    timing, network = sj.Timing(compute=1e-4), sj.Network(sj.isolated(2))
    first = timing.init(2)._replace(seconds=jnp.float32(1e4))

    def body(clock, _):
        return timing.advance(None, 0, network, jnp.ones(2), clock), None

    clock, _ = jax.jit(lambda clock: jax.lax.scan(body, clock, None, length=100_000))(first)
    assert float(clock.seconds) == pytest.approx(1e4 + 10, abs=2e-3)


def test_idle_agents_and_devices_change_nothing():
    found = []
    for devices, graph in ((1, sj.ring(6)), (4, sj.ring(6).padded(8))):
        options = {"latency": 0.5, "bandwidth": 100.0, "compute": np.arange(6.0), "compute_sigma": 0.3}
        method, mesh = timed(sj.dpsgd(graph, 0.1), **options), sj.agent_mesh(devices)
        with jax.set_mesh(mesh):
            start = jax.device_put({"x": jnp.zeros((graph.size, 4))}, lifting.stacked_sharding(mesh))
            params, state = start, method.init(start)
            step, batch = jax.jit(method.step, static_argnums=0), jnp.zeros(graph.size)
            for t in range(3):
                key = jax.random.key(t)
                params, state, _ = step(lambda p, d: p["x"].sum() + d, params, state, batch, key)
        found.append((float(state.clock.seconds), np.asarray(state.clock.behind)[:6]))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-6)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"latency": -1}, r"latency must be a number or \[A, A\], seconds >= 0, got -1"),
        ({"bandwidth": 0}, r"bandwidth must be a number or \[A, A\], above 0 bits per second, got 0"),
        ({"compute": math.nan}, r"compute must be a number or \[A\] or \[T, A\], seconds >= 0, got nan"),
        ({"latency": "fast"}, "latency must be a number .* got 'fast'"),
        ({"compute_sigma": -0.1}, "compute_sigma must be a number >= 0, got -0.1"),
        ({"compute": [1.0, 2.0]}, r"compute must be of 5 agents, got shape \(2,\)"),
        ({"latency": np.zeros((5, 4))}, r"latency must be of 5 agents, got shape \(5, 4\)"),
    ],
)
def test_mistakes_are_told_in_one_line(options, message):
    with pytest.raises(sj.ArgumentError, match=message):
        timed(sj.dpsgd(sj.ring(5), 0.1), **options)


def test_stragglers_need_a_key():
    method = timed(sj.dpsgd(sj.ring(5), 0.1), compute_sigma=0.1)
    with pytest.raises(sj.ArgumentError, match="key must be given to a step with Timing"):
        run(method, Problem(5), keys=())
