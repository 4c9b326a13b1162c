"""Where methods end when messages get lost, as a table: `limits.py 0.2 qgm d2`, or `limits.py 0.2 all`."""

import dataclasses
import sys

import jax
import jax.numpy as jnp
import numpy as np

import saddle_jax as sj
from saddle_jax.methods import base_methods

random, p = np.random.default_rng(0), float(sys.argv[1] if sys.argv[1:] else 0.2)
h, c, start = random.uniform(0.5, 1.5, (5, 4)), random.normal(size=(5, 4)), random.normal(size=4)
optimum = (h * c).sum(axis=0, keepdims=True) / h.sum(axis=0)  # of all agents; each alone would end at its c
push = sj.directed(np.roll(np.eye(5), 1, axis=0) + np.eye(5)[[2, 1, 0, 3, 4]])
graphs = {"relay_sgd": sj.path(5), "sgp": push, "push_diging": push}
heavy = {"qgm", "q_saddle", "ngm", "n_saddle", "cga", "momentum_tracking", "decentlam", "dfedavgm", "dfedsam"}
one_way, renormalised = {"drop": p, "symmetric": False}, {"drop": p, "lost_weight": "renormalise"}


def limit(name, faults):
    def step(carry, key):
        x, state, _ = method.step(lambda x, d: 0.5 * d[0] @ (x - d[1]) ** 2, *carry, (h, c), key)
        return (x, state), (jnp.linalg.norm(x - optimum, axis=1).max(), jnp.linalg.norm(x.mean(axis=0)))

    values = {"beta": 0.9 if name in heavy else 0.0, "weight_decay": 0.0, "rho": 0.1}
    published = {option: value for option, value in values.items() if option in sj.METHODS.options(name)}
    try:
        method = sj.METHODS[name](graphs.get(name, sj.ring(5)), 0.02, **published)
        method, x = dataclasses.replace(method, faults=sj.Faults(**faults)), jnp.tile(start, (5, 1))
        carry, keys = (x, method.init(x)), jax.random.split(jax.random.key(0), 4000)
    except sj.ArgumentError:
        return "refused"
    worst, norm = (line[-1000:].mean() for line in jax.lax.scan(step, carry, keys)[1])
    return "exact" if worst < 1e-8 else f"{worst:.2g} ({norm / np.linalg.norm(optimum):.2f})"


print("| method | nothing lost | both ways | one way | renormalised | agents offline |\n" + 6 * "|---" + "|")
for name in base_methods() if sys.argv[2:] == ["all"] else sys.argv[2:] or ["dpsgd", "d2", "push_diging"]:
    with jax.enable_x64(True):
        cells = [limit(name, faults) for faults in ({}, {"drop": p}, one_way, renormalised, {"offline": p})]
    print(f"| {name} |", " | ".join(cells), "|", flush=True)
