"""A method of your own: gradient tracking, written as its paper does, through the whole machine."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import saddle_jax as sj


class Tracked(NamedTuple):
    y: Any  # each agent's estimate of the mean gradient [A, ...]
    g: Any  # its own gradient of the step before [A, ...]


def gradient_tracking(topology, eta):
    """y <- W y + g - g', x <- W (x - eta y): what is sent is what `mix` is handed, twice a model."""

    def step(s, x, old):
        g, mixed = s.gradient(x), s.network.mix(old.y)
        y = jax.tree.map(lambda y, g, old_g: y + g - old_g, mixed, g, old.g)
        half = jax.tree.map(lambda x, y: x - eta * y, x, y)
        return s.network.mix(half), Tracked(y, g)

    def init(x):
        zero = jax.tree.map(jnp.zeros_like, x)
        return Tracked(zero, zero)

    return sj.Method("tracking", topology, sj.Rule(init, step, requires="doubly"))


ring, task = sj.ring(10), "convex"  # whose optimum is known
options = {"epochs": 500, "batch_size": 0, "eval_every_epochs": 100, "eval_agents": "never"}
dpsgd = sj.dpsgd(ring, 0.2, beta=0.0, weight_decay=0.0)  # as plain as mine
compared = sj.compare(
    {
        "D-PSGD": sj.Experiment(dpsgd, task, workdir="runs/own/dpsgd", **options),
        "mine": sj.Experiment(gradient_tracking(ring, 0.2), task, workdir="runs/own/mine", **options),
    },
    quiet=True,
)
print(compared)  # run it again: finished runs are not trained again, interrupted ones go on
mine = compared.experiments["mine"]
print(f"lambda_max {mine.sharpness()[-1]['lambda_max']:.4f}, page: {compared.report().path.name}")
