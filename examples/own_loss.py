"""A loss and metrics of your own: prices with outliers, by Huber's loss, judged by the median error."""

import jax.numpy as jnp
import numpy as np
import optax

import saddle_jax as sj

random = np.random.default_rng(0)
features = random.normal(size=(900, 4))
prices = features @ [3.0, -1.0, 0.5, 2.0] + 5.0 + 20.0 * (random.random(900) < 0.1)  # one in ten is wrong
houses = {"features": features, "price": prices}  # any tree of arrays [N, ...]


def init(key):
    return {"w": jnp.zeros(4), "b": jnp.zeros(())}


def predict(params, features):
    return features @ params["w"] + params["b"]


def huber(params, batch):  # of one agent, on its own batch
    errors = predict(params, batch["features"]) - batch["price"]
    return jnp.mean(optax.huber_loss(errors)), {"largest": jnp.max(jnp.abs(errors))}  # logged


def median(params, batch):
    return jnp.median(jnp.abs(predict(params, batch["features"]) - batch["price"]))


def of(part):
    return {name: array[part] for name, array in houses.items()}


metric = sj.Metric("median_error", "lower", median)  # the first is what tables show
task = {"train": of(slice(800)), "test": of(slice(800, 900)), "model": (init, predict), "loss": huber}
method = sj.gradient_tracking(sj.ring(8), 0.2, beta=0.0, weight_decay=0.0)
run = sj.Experiment(method, **task, metrics=[metric], epochs=30, workdir="runs/own/huber")
print(f"median error {run.train(quiet=True)['test_median_error']:.3f}")
