"""Methods that the paper does not have, composed of the package's parts, for the laws that hold for all."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

import saddle_jax as sj
from saddle_jax.base import checks


class Tracked(NamedTuple):
    y: Any
    g: Any
    x_gossip_state: Any
    y_gossip_state: Any


def gradient_tracking(topology, learning_rate, compressor=None):
    """Two quantities travel, each by its own gossip."""
    gossip = sj.exact() if compressor is None else sj.choco(compressor, 0.5)
    eta = checks.schedule(learning_rate)

    def init(x):
        zero = jax.tree.map(jnp.zeros_like, x)
        return Tracked(zero, zero, gossip.init(x), gossip.init(x))

    def step(s, x, state):
        g = s.gradient(x)
        y, y_gossip_state = gossip.mix(s, state.y, state.y_gossip_state)
        y = jax.tree.map(lambda y, g, old: y + g - old, y, g, state.g)
        half = jax.tree.map(lambda x, y: x - eta(s.t) * y, x, y)
        x, x_gossip_state = gossip.mix(s, half, state.x_gossip_state)
        return x, Tracked(y, g, x_gossip_state, y_gossip_state)

    return sj.Method("gradient_tracking", topology, sj.Rule(init, step, requires="doubly"))


def of_the_readme(topology, learning_rate, compressor=None):
    """1-bit cross-gradients with quasi-global momentum over compressed gossip, each agent clipped."""
    gossip = sj.choco(compressor or sj.top_k(0.3), gamma=0.4)
    chain = optax.chain(
        sj.neighbourhood_mean(topology, sj.sign()),
        sj.per_agent(optax.clip_by_global_norm(1.0)),
        sj.as_optax(sj.qgm(topology, learning_rate, gossip=gossip)),
    )
    return sj.Method("of_the_readme", topology, sj.rule_of(chain, gradients="pairs"))


def adam(topology, learning_rate, compressor=None):
    """Any optax optimizer takes a local step, and gossip follows."""
    gossip = sj.gossip(topology) if compressor is None else sj.choco_gossip(topology, compressor)
    return sj.Method("adam", topology, sj.rule_of(optax.chain(optax.adam(learning_rate), gossip)))


def messages(topology, learning_rate, compressor=None):
    """Descends, hears everybody, and sends one message per link: each kind of round once."""
    del compressor
    eta = checks.schedule(learning_rate)

    def step(s, x, state):
        half = jax.tree.map(lambda x, g: x - eta(s.t) * g, x, s.gradient(x))
        heard = s.network.gather(half)
        replies = s.network.send(jax.tree.map(lambda h: h / 2, heard))
        mean = s.network.average(heard)
        return jax.tree.map(lambda m, r: m + 0.01 * r.mean(axis=1), mean, replies), state

    return sj.Method("messages", topology, sj.Rule(lambda x: (), step))


def slow_rounds(topology, learning_rate, compressor=None):
    """Rounds of local steps, each of which ends with gossip and an outer step."""
    method = sj.qgm(topology, learning_rate, local_steps=2, compressor=compressor)
    return sj.slowmo(method, learning_rate, every=2, average=False)


COMPOSED = {
    "gradient_tracking": gradient_tracking,
    "of_the_readme": of_the_readme,
    "adam": adam,
    "messages": messages,
    "slow_rounds": slow_rounds,
}
