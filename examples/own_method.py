"""A method of your own: EXTRA (Shi et al., 2015) remembers one step, and so it reaches the exact optimum."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import saddle_jax as sj


class Memory(NamedTuple):
    x: Any  # the models of the step before [A, ...]
    g: Any  # their gradients [A, ...]


def extra(topology, eta):
    """x <- W x + x - (x' + W x') / 2 - eta (g - g'); at the start x' = x and g' = 0."""

    def step(s, x, old):
        g, mixed, old_mixed = s.gradient(x), s.network.mix(x), s.network.mix(old.x)
        new = mixed + x - (old.x + old_mixed) / 2 - eta * (g - old.g)
        return new, Memory(x, g)

    return sj.Method("EXTRA", topology, sj.Rule(lambda x: Memory(x, jnp.zeros_like(x)), step))


def loss_fn(x, target):  # of one agent
    return jnp.sum((x - target) ** 2)


targets = jnp.linspace(-1.0, 1.0, 8)[:, None]  # every agent pulls elsewhere; the optimum is their mean, 0
for method in (sj.dpsgd(sj.ring(8), 0.2), extra(sj.ring(8), 0.2)):
    params = jnp.ones((8, 1))
    state, step = method.init(params), jax.jit(method.step, static_argnums=0)
    for _ in range(200):
        params, state, _ = step(loss_fn, params, state, targets)
    print(f"{method.name}: the farthest agent is {float(jnp.abs(params).max()):.4f} from the optimum")
