"""How fast methods reach an optimum that is known: `rates.py`, or `rates.py gradient_tracking d2`."""

import sys

import jax

import saddle_jax as sj
from saddle_jax import data
from saddle_jax.training.build import build

EVERY, POINTS = 400, 5
NAMES = ["dpsgd", "gradient_tracking", "d2", "push_diging", "relay_sgd", "kgt", "beer", "motef"]


def distances(name):
    """Of the consensus model from the optimum after so many steps with the gradients of all samples."""
    plain = {"beta": 0.0, "weight_decay": 0.0, "gamma": 1.0}  # nothing is compressed
    options = [f"{option}={plain[option]}" for option in plain if option in sj.METHODS.options(name)]
    config = sj.Settings(
        dataset="convex", batch_size=0, method=f"{name}({', '.join(options)})", agents=10, learning_rate=0.2,
        topology="path" if name == "relay_sgd" else "ring", schedule="constant",
    )  # fmt: skip
    run = build(config)
    method = run.method_on(run.topology)
    samples, mask = run.batches.step(0, 0)
    batch = {**data.take(run.dataset.train, samples), "mask": mask}
    take = lambda carry, key: (method.step(run.loss_fn, *carry, batch, key)[:2], None)  # noqa: E731
    go = jax.jit(lambda carry, key: jax.lax.scan(take, carry, jax.random.split(key, EVERY))[0])
    params = run.first_params()
    carry = params, method.init(params)
    for point in range(POINTS):
        carry = go(carry, jax.random.key(point))
        yield run.evaluate(sj.consensus(carry[0]))["distance"]


print("after steps" + "".join(f"{EVERY * (point + 1):>9}" for point in range(POINTS)))
for name in sys.argv[1:] or NAMES:
    print("".join(f"{distance:9.1e}" for distance in distances(name)), f" {name}", flush=True)
