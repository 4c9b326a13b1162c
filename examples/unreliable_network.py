"""An unreliable network: every message is lost with some probability, and training goes on."""

import dataclasses

import jax
import jax.numpy as jnp

import saddle_jax as sj


@dataclasses.dataclass(frozen=True)
class Lossy:
    """Loses each message by itself. Whoever hears nothing keeps that weight on its own model."""

    probability: float

    def arrived(self, key, t, round_number, graph):
        """bool [A, K]: which messages of the k-th neighbour reach agent i; slot 0, its own, always does."""
        del t  # the key is another one in every step
        table, of_round = graph.neighbours, jax.random.fold_in(key, round_number)
        drawn = jax.random.bernoulli(of_round, 1 - self.probability, table.shape)
        return drawn.at[:, 0].set(True)


def loss_fn(params, target):  # of one agent
    return jnp.sum((params - target) ** 2)


targets = jnp.linspace(-1.0, 1.0, 12)[:, None] * jnp.ones(3)  # every agent pulls elsewhere
for probability in (0.0, 0.2, 0.5, 0.8):
    method = dataclasses.replace(sj.qgm(sj.torus(3, 4), learning_rate=0.02), faults=Lossy(probability))
    params = jnp.ones((12, 3))
    state, step = method.init(params), jax.jit(method.step, static_argnums=0)
    for t in range(150):
        params, state, _ = step(loss_fn, params, state, targets, jax.random.fold_in(jax.random.key(0), t))
    distance, error = sj.consensus_distance(params), jnp.abs(sj.consensus(params)).max()
    print(f"{probability:4.0%} lost: consensus distance {distance:.4f}, error of the average {error:.4f}")
