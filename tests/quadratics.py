"""Heterogeneous quadratics with a known optimum: every agent's loss has a minimum of its own.

    F_i(x) = 1/2 sum_d h_id (x_d - c_id)^2        x* = sum_i h_i c_i / sum_i h_i

There is no noise. With a constant learning rate an exact method ends at x*, in float64 up to rounding.
Another one ends beside it, by an amount that its fixed point tells.
"""

import jax
import jax.numpy as jnp
import numpy as np
from problem import compiled


class Quadratics:
    """The losses of `agents` agents in `dimension` numbers; curvatures lie between 0.5 and 1.5."""

    def __init__(self, agents, dimension=4, seed=0):
        random = np.random.default_rng(seed)
        self.agents = agents
        self.h = random.uniform(0.5, 1.5, (agents, dimension))
        self.c = random.normal(size=(agents, dimension))
        self.start = random.normal(size=dimension)  # the same for all agents

    @property
    def optimum(self):
        """The minimum x* of the mean loss."""
        return (self.h * self.c).sum(axis=0) / self.h.sum(axis=0)

    @property
    def params(self):
        """The starting models of all agents, stacked [A, ...]."""
        return {"x": jnp.tile(jnp.asarray(self.start), (self.agents, 1))}

    @property
    def batch(self):
        return {"h": jnp.asarray(self.h), "c": jnp.asarray(self.c)}

    @staticmethod
    def loss_fn(params, batch):
        """Returns the loss of one agent."""
        return 0.5 * jnp.sum(batch["h"] * (params["x"] - batch["c"]) ** 2)

    def end(self, method, steps=3000, seed=0):
        """Returns all agents' models [A, ...] and the method's state after so many steps."""

        def body(carry, key):
            params, state, _ = method.step(self.loss_fn, *carry, self.batch, key)
            return (params, state), None

        keys = jax.random.split(jax.random.key(seed), steps)
        start = (self.params, method.init(self.params))
        (params, state), _ = compiled(lambda carry: jax.lax.scan(body, carry, keys))(start)
        return np.asarray(params["x"]), state

    def distance(self, method, steps=3000, seed=0):
        """Returns the distance of the worst agent from the optimum after so many steps."""
        models, _ = self.end(method, steps, seed)
        return float(np.linalg.norm(models - self.optimum, axis=1).max())
