"""A sweep: learning rates times radii of SAM, twelve runs of eight agents, in one compiled program."""

import jax
import jax.numpy as jnp

import saddle_jax as sj

topology, key = sj.ring(8), jax.random.key(0)
x = jax.random.normal(key, (8, 64, 5)) + jnp.arange(8.0)[:, None, None] / 4  # agents differ
y = jnp.tanh(x @ jnp.array([1.0, -2.0, 0.5, 0.0, 1.0]))


def loss_fn(params, batch):  # of one agent
    return jnp.mean((jnp.tanh(batch["x"] @ params) - batch["y"]) ** 2)


def final_loss(learning_rate, rho):
    """Of the consensus model on everybody's data after 60 steps; a hyper-parameter may be traced."""
    method = sj.q_saddle(topology, learning_rate, rho)
    params = jnp.zeros((8, 5))

    def step(carry, _):
        params, state, _ = method.step(loss_fn, *carry, {"x": x, "y": y})
        return (params, state), None

    (params, _), _ = jax.lax.scan(step, (params, method.init(params)), length=60)
    return loss_fn(sj.consensus(params), {"x": x, "y": y})


rates, radii = jnp.array([0.003, 0.01, 0.03, 0.1]), jnp.array([0.01, 0.1, 0.5])
grid = jax.jit(jax.vmap(jax.vmap(final_loss, (None, 0)), (0, None)))(rates, radii)
print("eta \\ rho " + "".join(f"{rho:10.2f}" for rho in radii.tolist()))
for rate, row in zip(rates.tolist(), grid.tolist(), strict=True):
    print(f"{rate:9.3f} " + "".join(f"{loss:10.4f}" for loss in row))
