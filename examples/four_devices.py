"""Eight agents on four devices: two on each. On a machine without GPUs the CPU is cut into four."""

import jax
import jax.numpy as jnp

import saddle_jax as sj

jax.config.update("jax_num_cpu_devices", 4)  # before JAX is first used; GPUs are taken as they are


def loss_fn(params, batch):  # of one agent
    return jnp.mean((batch["x"] @ params - batch["y"]) ** 2)


def train(devices):
    mesh = sj.agent_mesh(devices)
    stacked = sj.stacked_sharding(mesh)  # the axis of agents is cut, one piece per device
    method = sj.q_saddle(sj.ring(8), learning_rate=0.02, rho=0.01, compressor=sj.sign(), gamma=0.5)
    step = jax.jit(method.step, static_argnums=0)
    with jax.set_mesh(mesh):
        params = jax.device_put(jnp.zeros((8, 4)), stacked)
        x = jax.random.normal(jax.random.key(0), (8, 32, 4))
        batch = jax.device_put({"x": x, "y": x @ jnp.arange(4.0)}, stacked)
        state = method.init(params)
        for _ in range(50):
            params, state, metrics = step(loss_fn, params, state, batch)
            jax.block_until_ready(metrics)  # on CPUs devices share threads, and steps must take turns
    return params


one, four = train(devices=1), train(devices=4)
count, shard = len(four.sharding.device_set), four.addressable_shards[0].data
difference = abs(jax.device_get(four) - jax.device_get(one)).max()
print(f"{count} devices with {shard.shape[0]} agents on each")
print(f"largest difference from one device: {difference:.1e}")
