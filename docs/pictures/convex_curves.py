"""Measures how near each method comes to a known optimum, for the pages of the methods: writes convex.json.

Run it from the project's folder after a method was added or changed: .venv/bin/python
docs/pictures/convex_curves.py [METHOD ...]. It trains; building the site only reads what it wrote.
"""

import json
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import jax

import saddle_jax as sj
from saddle_jax import data
from saddle_jax.methods import METHODS
from saddle_jax.settings.settings import Settings
from saddle_jax.training.build import build

FILE = pathlib.Path(__file__).with_name("convex.json")
STEPS, EVERY = 1500, 30


def settings(name: str) -> dict[str, Any]:
    """Returns what differs from the defaults: exact gradients, and eta / (1 - beta) = 0.2 for all methods."""
    has = METHODS.options(name)
    options = {"weight_decay": 0.0, **({"gamma": 1.0} if "gamma" in has else {})}  # nothing is compressed
    written = ", ".join(f"{option}={value}" for option, value in options.items())
    return {
        "dataset": "convex",
        "method": f"{name}({written})",
        "batch_size": 0,
        "epochs": STEPS,
        "schedule": "constant",
        "learning_rate": 0.02 if "beta" in has else 0.2,
        **({"topology": "path"} if name == "relay_sgd" else {}),
    }


def distances(name: str) -> Iterator[float]:
    """Yields the consensus model's distance from the optimum, first at the start and then every few steps."""
    run = build(Settings(**settings(name)))
    method = run.method_on(run.topology)
    samples, mask = run.batches.step(0, 0)
    batch = {**data.take(run.dataset.train, samples), "mask": mask}
    period = jax.numpy.arange(EVERY)

    def take(carry: Any, key: Any) -> Any:
        return method.step(run.loss_fn, *carry, batch, key)[:2], None

    @jax.jit
    def go(carry: Any, key: Any) -> Any:
        return jax.lax.scan(take, carry, jax.vmap(lambda t: jax.random.fold_in(key, t))(period))[0]

    params = run.first_params()
    carry = params, method.init(params)
    yield float(run.evaluate(sj.consensus(params))["distance"])
    for point in range(STEPS // EVERY):
        carry = go(carry, jax.random.key(point))
        yield float(run.evaluate(sj.consensus(carry[0]))["distance"])


def main(names: list[str]) -> None:
    """Measures the named methods, or all of them, and keeps what the file says of the others."""
    found = json.loads(FILE.read_text())["methods"] if FILE.exists() else {}
    for name in names or METHODS.ours:
        found[name] = {
            "settings": settings(name),
            "distances": [float(f"{value:.3g}") for value in distances(name)],
        }
        print(f"{name}: {found[name]['distances'][-1]:.1e} after {STEPS} steps", flush=True)
    ordered = {name: found[name] for name in METHODS.ours if name in found}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in ordered.items())
    FILE.write_text(f'{{\n "every": {EVERY},\n "methods": {{\n{lines}\n }}\n}}\n')


if __name__ == "__main__":
    main(sys.argv[1:])
