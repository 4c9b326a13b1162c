"""An unreliable network: messages are lost, in bursts or one by one, and training goes on."""

import dataclasses

import jax
import jax.numpy as jnp

import saddle_jax as sj


def loss_fn(params, target):  # of one agent
    return jnp.sum((params - target) ** 2)


targets = jnp.linspace(-1.0, 1.0, 12)[:, None] * jnp.ones(3)  # every agent pulls elsewhere
networks = {
    "nothing lost": None,
    "20 % lost": sj.Faults(drop=0.2),
    "50 % lost": sj.Faults(drop=0.5),
    "50 % lost, one way": sj.Faults(drop=0.5, symmetric=False),
    "50 % lost, in bursts": sj.Faults(drop=0.5, burst=10),
    "20 % of agents away": sj.Faults(offline=0.2, mean_offline=5),
}
for name, faults in networks.items():
    method = dataclasses.replace(sj.qgm(sj.torus(3, 4), learning_rate=0.02), faults=faults)
    params = jnp.ones((12, 3))
    state, step = method.init(params), jax.jit(method.step, static_argnums=0)
    for t in range(150):
        params, state, _ = step(loss_fn, params, state, targets, jax.random.fold_in(jax.random.key(0), t))
    distance, error = sj.consensus_distance(params), jnp.abs(sj.consensus(params)).max()
    print(f"{name:>22}: consensus distance {distance:.4f}, error of the average {error:.4f}")
