"""Bugs that are planted on purpose: each is found by the invariant that is meant for it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import saddle_jax as sj
from saddle_jax import testing
from saddle_jax.testing.invariants import name_of
from saddle_jax.testing.methods import INVARIANTS

NEIGHBOURS = "what the network does not deliver does not arrive"
FAR = "what an agent knows goes one link in a round"
RATES = "the learning rate may be a schedule"
STATE = "every leaf of a state is of agents of pairs or a scalar"
COUNTED = "no more arrives than is counted"
RANDOM = "every random number follows from the step"
AGAIN = "a run that was stopped goes on the same bit for bit"


def method(step, init=lambda x: ()):
    """A factory of a method, whose step is (s, x, state, rate, topology) -> x, state."""

    def factory(topology, learning_rate):
        def take(s, x, state):
            return step(s, x, state, learning_rate, topology)

        return sj.Method("planted", topology, sj.Rule(init, take, requires="doubly"))

    return factory


def descend(s, x, rate):
    return jax.tree.map(lambda x, g: x - rate(s.t) * g, x, s.gradient(x))


def a_mean_over_agents(s, x, state, rate, topology):
    half = s.network.mix(descend(s, x, rate))
    return jax.tree.map(lambda x: x + 0.01 * (x.mean(axis=0, keepdims=True) - x), half), state


def a_clip_by_the_norm_of_everybody(s, x, state, rate, topology):
    gradient = s.gradient(x)
    size = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(gradient)))
    return s.network.mix(jax.tree.map(lambda x, g: x - rate(s.t) * g / size, x, gradient)), state


def a_number_that_all_share(s, x, state, rate, topology):
    return s.network.mix(descend(s, x, rate)), state + x["b"].mean()


def momentum_without_agents(s, x, state, rate, topology):
    state = jax.tree.map(lambda m, g: 0.9 * m + g[0], state, s.gradient(x))
    return s.network.mix(jax.tree.map(lambda x, m: x - rate(s.t) * m[None], x, state)), state


def a_table_of_ten(s, x, state, rate, topology):
    return s.network.mix(descend(s, x, rate)), state


def a_look_at_the_neighbours(s, x, state, rate, topology):
    half = descend(s, x, rate)
    others = jax.tree.map(lambda x: x[topology.neighbours[:, 1]], half)
    return jax.tree.map(lambda x, y: (x + y) / 2, half, others), state


def a_second_look_beside_a_round(s, x, state, rate, topology):
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, state, s.gradient(x))
    others = jax.tree.map(lambda m: m[topology.neighbours[:, 1]], momentum)
    half = jax.tree.map(lambda x, m: x - rate(s.t) * m, x, others)
    return s.network.mix(half), momentum


def a_round_that_says_it_sends_nothing(s, x, state, rate, topology):
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, state, s.gradient(x))
    half = jax.tree.map(lambda x, m: x - rate(s.t) * m, x, momentum)
    return s.network.mix(half), s.network.mix(momentum, sent=())


def noise(x, key):
    return jax.tree.map(lambda x: x + 0.01 * jax.random.normal(key, x.shape, x.dtype), x)


def a_key_of_its_own(s, x, state, rate, topology):
    return noise(s.network.mix(descend(s, x, rate)), jax.random.key(0)), state


def a_good_key_and_one_of_its_own(s, x, state, rate, topology):
    """Both draw by the same function, which JAX traces once."""
    x = noise(s.network.mix(descend(s, x, rate)), s.network.key())
    return noise(x, jax.random.fold_in(jax.random.key(0), 3)), state


def a_key_that_is_never_renewed(s, x, state, rate, topology):
    return noise(s.network.mix(descend(s, x, rate)), state), state


def numbers_of_numpy(s, x, state, rate, topology):
    drawn = np.random.default_rng().normal(size=3)  # when the step is traced
    return jax.tree.map(lambda x: x + 0.01 * drawn[0], s.network.mix(descend(s, x, rate))), state


def zeros(x):
    return jax.tree.map(jnp.zeros_like, x)


def zeros_of_one(x):
    return jax.tree.map(lambda x: jnp.zeros_like(x[0]), x)


PLANTED = {
    "a mean over agents": (a_mean_over_agents, None, {NEIGHBOURS, FAR}),
    "a norm of all agents": (a_clip_by_the_norm_of_everybody, None, {NEIGHBOURS, FAR}),
    "a shared number": (a_number_that_all_share, lambda x: jnp.zeros([], x["b"].dtype), {NEIGHBOURS}),
    "a state without agents": (
        momentum_without_agents,
        lambda x: jax.tree.map(lambda x: 0 * x[0], x),
        {STATE},
    ),
    "a state of ten": (a_table_of_ten, lambda x: jnp.zeros((10, 2)), {STATE}),
    "a look at neighbours": (a_look_at_the_neighbours, None, {NEIGHBOURS}),
    "a second look": (a_second_look_beside_a_round, zeros, {NEIGHBOURS}),
    "a round that sends nothing": (a_round_that_says_it_sends_nothing, zeros, {COUNTED}),
    "a key of its own": (a_key_of_its_own, None, {RANDOM}),
    "a good key and one of its own": (a_good_key_and_one_of_its_own, None, {RANDOM}),
    "a key never renewed": (a_key_that_is_never_renewed, lambda x: jax.random.key(5), {RANDOM}),
    "numbers of NumPy": (numbers_of_numpy, None, {AGAIN}),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found_by_its_invariant(name):
    step, init, expected = PLANTED[name]
    tried = [each for each in INVARIANTS if name_of(each) in {STATE, *expected}]
    with pytest.raises(testing.InvariantError) as caught:
        testing.check_method(method(step) if init is None else method(step, init), invariants=tried)
    results = caught.value.results
    assert expected == {each.invariant for each in results if each.status == "fails"}
    assert all(each.seen and "\n" not in each.seen for each in results)
    assert str(caught.value).count("\n") == len(expected) - 1


def noise_of_the_step(s, x, state, rate, topology):
    return noise(s.network.mix(descend(s, x, rate)), s.network.key()), state


def noise_of_the_number(s, x, state, rate, topology):
    return noise(s.network.mix(descend(s, x, rate)), jax.random.fold_in(jax.random.key(0), s.t)), state


def a_key_that_is_renewed(s, x, state, rate, topology):
    now, later = jax.random.split(state)
    return noise(s.network.mix(descend(s, x, rate)), now), later


@pytest.mark.parametrize(
    ("step", "init"),
    [
        (noise_of_the_step, None),
        (noise_of_the_number, None),
        (a_key_that_is_renewed, lambda x: jax.random.key(5)),
    ],
)
def test_noise_that_differs_from_step_to_step_is_no_bug(step, init):
    tried = [each for each in INVARIANTS if name_of(each) in {STATE, AGAIN, RANDOM, NEIGHBOURS}]
    factory = method(step) if init is None else method(step, init)
    results = testing.check_method(factory, invariants=tried)
    (random,) = [each for each in results if each.invariant == RANDOM]
    assert random.seen == "2 draws, each from the step's key or number"


def test_what_cannot_begin_is_told_once():
    def refuses(topology, learning_rate):
        raise sj.ArgumentError("topology must be a torus, got another")

    with pytest.raises(testing.InvariantError) as caught:
        testing.check_method(refuses)
    assert str(caught.value) == f"{STATE}: topology must be a torus, got another"
    silent = [each for each in caught.value.results if each.status == "does not apply"]
    assert len(silent) == len(INVARIANTS) - 1
    with pytest.raises(AssertionError, match=f"^{STATE}: the factory must return a Method, got 3$"):
        testing.check_method(lambda topology, learning_rate: 3)


def descent_with(rate_at):
    """A factory whose methods ask for their learning rate by a function of it and of the step."""

    def factory(topology, learning_rate):
        def step(s, x, state):
            return s.network.mix(descend(s, x, lambda t: rate_at(learning_rate, t))), state

        return sj.Method("planted", topology, sj.Rule(lambda x: (), step, requires="doubly"))

    return factory


def test_a_method_may_take_schedules_alone_as_the_command_line_hands_them():
    results = testing.check_method(descent_with(lambda rate, t: rate(t)), invariants=INVARIANTS[:4])
    assert {each.status for each in results} == {"holds"}
    assert results[0].seen == "a schedule; a number: TypeError: 'float' object is not callable"


def test_a_method_that_takes_numbers_alone_is_told_so_by_name():
    with pytest.raises(testing.InvariantError) as caught:
        testing.check_method(descent_with(lambda rate, t: rate))
    assert str(caught.value).startswith(
        f"{RATES}: it takes a number alone, and not eta(s.t) of a schedule eta: TypeErr"
    )
    assert {each.status for each in caught.value.results[1:]} == {"does not apply"}
