"""A method prints as the call that makes it, in one line."""

import dataclasses
import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import saddle_jax as sj
from saddle_jax.methods import base_methods

RING = sj.ring(8)


def descent(topology):
    return sj.Method("mine", topology, sj.rule_of(optax.chain(optax.sgd(0.1), sj.gossip(topology))))


def falling(t):
    return 0.1 / (1 + t)


def falling_from(eta):
    return lambda t: eta / (1 + t)


PRINTED = {
    "qgm(ring(8), learning_rate=0.1)": lambda: sj.qgm(RING, 0.1, beta=0.9),
    "qgm(ring(8), learning_rate=0.1, mu=0.5, gamma=0.4, compressor=top_k(0.5))": lambda: sj.qgm(
        topology=RING, compressor=sj.top_k(0.5), mu=0.5, gamma=np.float64(0.4), learning_rate=0.1
    ),
    "q_saddle(path(5), learning_rate=0.1, rho=0.25, beta=0.5)": lambda: sj.q_saddle(
        sj.path(5), 0.1, jnp.float32(0.25), beta=0.5
    ),
    "dfedsam(one_peer_exponential(8), learning_rate=0.1, gossips=2)": lambda: sj.dfedsam(
        sj.one_peer_exponential(8), 0.1, gossips=2
    ),
    "saddle(qgm(ring(8), learning_rate=0.1), gradient=sam(rho=0.05))": lambda: sj.saddle(
        sj.qgm(RING, 0.1), sj.sam(0.05)
    ),
    "slowmo(saddle(d2(ring(8), learning_rate=0.1), gradient=0.1), learning_rate=0.1, every=12)": lambda: (
        sj.slowmo(sj.saddle(sj.d2(RING, 0.1), 0.1), 0.1, every=12)
    ),
    "dpsgd(ring(8), learning_rate=falling)": lambda: sj.dpsgd(RING, falling),
    "dpsgd(ring(8), learning_rate=falling_from(...))": lambda: sj.dpsgd(RING, falling_from(0.1)),
    "dpsgd(ring(8), learning_rate=partial(...))": lambda: sj.dpsgd(RING, functools.partial(falling)),
    "dpsgd(ring(8), learning_rate=cosine_decay_schedule(...))": lambda: sj.dpsgd(
        RING, optax.cosine_decay_schedule(0.1, 100)
    ),
    "Method('mine', ring(8), ..., plain())": lambda: descent(RING),
    "saddle(Method('mine', ring(8), ..., plain()), gradient=sam(rho=0.05))": lambda: sj.saddle(
        descent(RING), sj.sam(0.05)
    ),
}
PARTS = {
    "dataclasses.replace(dpsgd(ring(8), learning_rate=0.1), faults=Faults(drop=0.1))": {
        "faults": sj.Faults(drop=0.1)
    },
    "dataclasses.replace(dpsgd(ring(8), learning_rate=0.1), name='x', topology=path(8))": {
        "name": "x", "topology": sj.path(8)
    },
    "dpsgd(ring(8), learning_rate=0.1)": {"topology": RING.padded(12)},
    "Method('dpsgd', ring(8), ..., plain())": {"rule": descent(RING).rule},
}  # fmt: skip


@pytest.mark.parametrize("text", PRINTED)
def test_a_method_prints_as_the_call_that_makes_it(text):
    assert repr(PRINTED[text]()) == str(PRINTED[text]()) == text


@pytest.mark.parametrize("text", PARTS)
def test_what_was_put_in_its_place_later_is_told(text):
    assert repr(dataclasses.replace(sj.dpsgd(RING, 0.1), **PARTS[text])) == text


def test_large_arrays_stay_one_line():
    method = dataclasses.replace(descent(RING), timing=sj.Timing(latency=np.ones((8, 8))))
    assert repr(method) == ("dataclasses.replace(Method('mine', ring(8), ..., plain()), timing=Timing(...))")


@pytest.mark.parametrize("name", base_methods())
def test_every_method_prints_and_shows_its_own_signature(name):
    factory = sj.METHODS[name]
    assert repr(factory(sj.path(5), 0.1)) == f"{name}(path(5), learning_rate=0.1)"
    assert next(iter(inspect.signature(factory).parameters)) == "topology"


def test_a_traced_number_prints_as_dots():
    @jax.jit
    def stepped(eta, x):
        method = sj.qgm(RING, eta, beta=eta)
        assert repr(method) == "qgm(ring(8), learning_rate=..., beta=...)"
        return method.step(lambda x, d: jnp.sum((x - d) ** 2), x, method.init(x), x)[0]

    with jax.checking_leaks():
        stepped(0.1, jnp.ones((8, 2)))
