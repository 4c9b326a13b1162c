"""Data of your own: any arrays, dealt to agents by label so that each sees a different world."""

import jax
import jax.numpy as jnp
import numpy as np

import saddle_jax as sj
from saddle_jax import data

random = np.random.default_rng(0)
labels = random.integers(0, 3, size=1200)  # three clusters in the plane
points = np.array([[0.0, 2.0], [-2.0, -1.0], [2.0, -1.0]])[labels] + random.normal(size=(1200, 2))


def loss_fn(params, batch):  # of one agent
    scores = jax.nn.log_softmax(batch["points"] @ params["w"] + params["b"])
    return -jnp.mean(jnp.take_along_axis(scores, batch["labels"][:, None], axis=1))


partition = data.make_partition("dirichlet", labels, 8, alpha=0.1, seed=0)
batches = data.Batches(partition, batch_size=25, seed=0)
method = sj.qgm(sj.ring(8), learning_rate=0.05)
params = sj.replicate({"w": jnp.zeros((2, 3)), "b": jnp.zeros(3)}, 8)  # leaves [A, ...]
state, step = method.init(params), jax.jit(method.step, static_argnums=0)

for t in range(200):
    samples, _ = batches.step(*divmod(t, batches.steps_per_epoch))  # numbers of samples [A, B]
    batch = {"points": data.take(points, samples), "labels": data.take(labels, samples)}
    params, state, _ = step(loss_fn, params, state, batch)

model = sj.consensus(params)
right = np.argmax(points @ model["w"] + model["b"], axis=1) == labels
print(f"{partition.skew}\nthe consensus model tells {100 * right.mean():.1f} % of the points apart")
