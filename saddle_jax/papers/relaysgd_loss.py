"""Do D2 and QGM diverge if 1 % of all messages are lost? (Vogels et al., NeurIPS 2021, Table 5)

The paper trains VGG-11 on CIFAR-10 with 16 agents, alpha 0.01 and momentum 0.9. A message is lost in one
direction, and the weights of what arrives are scaled to sum to one. It reports, in percent:

                     reliable    1 % lost    10 % lost
    RelaySGD, trees      89.2        89.3         89.3
    SGP, 1-peer exp.     88.5        88.6         88.1
    D2, ring             87.4    diverges     diverges
    QGM, ring            69.3    diverges     diverges

Here the same methods and losses are tried on RelaySGD's quadratics with zeta^2 = 0.1, where nothing
diverges, and train a small network on the embedded digits. There D2 diverges, but not if links fail in both
directions at once and the weight stays with the agent, so that W is doubly stochastic: what D2 cannot stand
is the rule for lost messages, not their number. QGM does not diverge.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base.types import Array, Params
from saddle_jax.core.faults import Faults
from saddle_jax.core.method import Method
from saddle_jax.core.trees import consensus, replicate
from saddle_jax.data.partition import make_partition
from saddle_jax.data.sources import load_digits
from saddle_jax.graphs.named import ring
from saddle_jax.graphs.time_varying import one_peer_exponential
from saddle_jax.graphs.trees import binary_tree
from saddle_jax.methods.d2 import d2
from saddle_jax.methods.qgm import qgm
from saddle_jax.methods.relay_sgd import relay_sgd
from saddle_jax.methods.sgp import sgp
from saddle_jax.models import initialise, make_model
from saddle_jax.papers.common import Compared, Reproduction, trajectory
from saddle_jax.papers.relaysgd import Quadratics, loss_fn, quadratics
from saddle_jax.tasks.supervised import cross_entropy

AGENTS, LOSSES = 16, (0.0, 0.01, 0.1)
DIVERGES = "diverges"
PRINTED = {  # accuracy by share of lost messages
    "RelaySGD": ("89.2 %", "89.3 %", "89.3 %"),
    "SGP": ("88.5 %", "88.6 %", "88.1 %"),
    "D2": ("87.4 %", DIVERGES, DIVERGES),
    "QGM": ("69.3 %", DIVERGES, DIVERGES),
}
_DECAYED: dict[str, Any] = {"beta": 0.9, "weight_decay": 1e-4}
METHODS: dict[str, Callable[[Any], Method]] = {
    "RelaySGD": lambda rate: relay_sgd(binary_tree(AGENTS), rate, **_DECAYED),
    "SGP": lambda rate: sgp(one_peer_exponential(AGENTS), rate, **_DECAYED),
    "D2": lambda rate: d2(ring(AGENTS), rate, **_DECAYED),
    "QGM": lambda rate: qgm(ring(AGENTS), rate, **_DECAYED),
}
# Of digits: the rate falls tenfold after 3/4 of the steps, and a method that ends near chance has diverged.
_RATE, _BATCH, _CHANCE = 0.1, 16, 30.0


def on_lossy_network(method: Method, loss: float, *, keeps_average: bool = False) -> Method:
    """Returns the method with lost messages, by the paper's rule or by one that keeps the agents' average."""
    if keeps_average:
        return dataclasses.replace(method, faults=Faults(drop=loss))
    rule: Any = {} if method.topology.stochasticity == "column" else {"lost_weight": "renormalise"}
    return dataclasses.replace(method, faults=Faults(drop=loss, symmetric=False, **rule)) if loss else method


def on_quadratics(make: Callable[[Any], Method], loss: float, steps: int = 3000) -> float:
    """Returns the distance of the worst agent to the optimum; the start's is one."""
    problem = quadratics(0.1, AGENTS)
    method, optimum = on_lossy_network(make(0.02), loss), problem.optimum()

    def run(data: Quadratics) -> Any:
        x = jnp.zeros(data.b.shape)
        return trajectory(
            method, loss_fn, x, steps, lambda t, key: data,
            lambda x: jnp.max(jnp.linalg.norm(x - optimum[None], axis=1)),
        )  # fmt: skip

    return float(jax.jit(run)(problem)[-1])


def on_digits(
    make: Callable[[Any], Method],
    loss: float,
    *,
    keeps_average: bool = False,
    steps: int = 800,
    seed: int = 0,
) -> float:
    """Returns the test accuracy of the mean model in percent; NaN if it is not finite."""
    data = load_digits()
    assert data.recipe is not None
    train, test = (
        data.recipe.for_evaluation(jnp.asarray(split["inputs"])) for split in (data.train, data.test)
    )
    targets = jnp.asarray(data.train["targets"])
    partition = make_partition("dirichlet(0.01)", data.train["targets"], AGENTS, seed=seed)
    samples, sizes = jnp.asarray(partition.samples), jnp.asarray(partition.sizes)
    model = make_model("mlp", data.num_outputs, "evonorm", "auto")
    method = make(lambda t: _RATE * jnp.where(t < 0.75 * steps, 1.0, 0.1))
    method, losses = on_lossy_network(method, loss, keeps_average=keeps_average), cross_entropy(model)

    def batch(t: Array, key: Array) -> Any:
        place = (jax.random.uniform(key, (AGENTS, _BATCH)) * sizes[:, None]).astype(int)
        drawn = jnp.take_along_axis(samples, place, axis=1)
        return {"inputs": train[drawn], "targets": targets[drawn], "mask": jnp.ones(drawn.shape)}

    def run(params: Params) -> Any:
        models = trajectory(method, losses, params, steps, batch, consensus, jax.random.key(seed))
        return model.apply(jax.tree.map(lambda x: x[-1], models), test)

    logits = jax.jit(run)(replicate(initialise(model, train[:1], jax.random.key(seed)), AGENTS))
    hits = np.argmax(logits, axis=-1) == data.test["targets"]
    return 100 * float(np.mean(hits)) if bool(jnp.all(jnp.isfinite(logits))) else float("nan")


def results(steps: int = 1500, seeds: Sequence[int] = (0, 1, 2)) -> list[Compared]:
    """Runs the claimed divergence on quadratics, then all methods on digits."""

    def compared(what: str, published: str, diverged: int, otherwise: str) -> Compared:
        ours = f"{DIVERGES} in {diverged} of {len(seeds)}" if diverged else otherwise
        agrees = None if published == "-" else (published == DIVERGES) == (diverged > 0)
        return Compared(what, published, ours, agrees)

    def digits(what: str, published: str, name: str, loss: float, **options: Any) -> Compared:
        found = [on_digits(METHODS[name], loss, steps=steps, seed=seed, **options) for seed in seeds]
        diverged = sum(not accuracy > _CHANCE for accuracy in found)
        return compared(f"digits, {what}: accuracy", published, diverged, f"{np.mean(found):.1f} %")

    rows = []
    for name in ("D2", "QGM"):
        for loss, published in zip(LOSSES, PRINTED[name], strict=True):
            distance = on_quadratics(METHODS[name], loss)
            what = f"quadratics, {name}, {loss:.0%} lost: worst agent's distance"
            rows.append(compared(what, published, 0 if distance < 1 else len(seeds), f"{distance:.2g}"))
    for name in METHODS:
        for loss, published in zip(LOSSES, PRINTED[name], strict=True):
            rows.append(digits(f"{name}, {loss:.0%} lost", published, name, loss))
    for loss in LOSSES[1:]:
        what = f"D2, {loss:.0%} lost in both directions, weight kept"
        rows.append(digits(what, "-", "D2", loss, keeps_average=True))
    return rows


REPRODUCTION = Reproduction(
    "do D2 and QGM diverge if messages are lost?",
    "Vogels et al., NeurIPS 2021, Table 5 (table_5_unreliable_networks.ipynb)",
    results,
    "Compared is whether a method diverges: accuracies are on another dataset. If links fail in both "
    "directions and the weight stays with the agent, W is doubly stochastic, and D2 does not diverge.",
)
