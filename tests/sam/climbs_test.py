"""Every relative of SAM inside D-PSGD, QGM and NGM against its published formula, in NumPy: 1e-10."""

import itertools

import jax
import numpy as np
import optax
import printed_algorithms as printed
import printed_gradients as climbs
import pytest
from problem import IRREGULAR, Problem, run

import saddle_jax as sj
from saddle_jax.core.trees import agent_keys

pytestmark = pytest.mark.usefixtures("x64")

SCHEDULE = optax.piecewise_constant_schedule(0.2, {2: 0.5})
BETA = 0.7  # of ESAM


def eta(t):
    return 0.2 if t < 2 else 0.1


def share(t):
    return 1 - t / 8


class Samples(Problem):
    """The problem with gradients on some of a batch's samples, and each sample's loss, by hand."""

    def __init__(self):
        super().__init__(IRREGULAR.size, steps=5, batch=5)

    def gradient(self, i, model, t, rows=None):
        b, w = model
        rows = slice(None) if rows is None else rows
        x, y = self.x[t, i][rows], self.y[t, i][rows]
        z = np.tanh(x @ w + b)
        slope = 2 * (z - y) * (1 - z**2) / z.size
        return [slope.sum(axis=0), x.T @ slope]

    def losses(self, i, model, t):
        b, w = model
        return np.mean((np.tanh(self.x[t, i] @ w + b) - self.y[t, i]) ** 2, axis=1)


def drawn(name, keys):
    """Says which tensors ESAM perturbs: its keys are those of the model's owner, and of the pair's slot."""

    def masks(agent, visit, t):
        owner = printed.neighbours(IRREGULAR.mixing, agent)[visit] if name == "ngm" else agent
        key = agent_keys(sj.Network(IRREGULAR, t, keys[t]).key(), IRREGULAR.size)[owner]
        if name == "ngm":
            senders = np.where(IRREGULAR.occupied, IRREGULAR.neighbours, -1)
            key = jax.random.fold_in(key, list(senders[owner]).index(agent))
        return np.asarray(jax.random.bernoulli(key, BETA, (2,)))

    return masks


# b is no weight and w is one: it has two axes.
GRADIENTS = {
    "asam": (sj.asam(0.4, eta=0.1), lambda *_: climbs.asam(0.4, 0.1, (False, True))),
    "looksam": (sj.looksam(0.3, every=3, alpha=0.6), lambda *_: climbs.looksam(0.3, 3, 0.6)),
    "gsam": (sj.gsam(0.4, 0.1, alpha=0.5), lambda *_: climbs.gsam(0.4, 0.1, 0.5, lambda t: 1.0)),
    # A schedule of the step counts in float32, where these radii are exact.
    "gsam_share": (
        sj.gsam(0.5, 0.25, alpha=0.5, share=share),
        lambda *_: climbs.gsam(0.5, 0.25, 0.5, share),
    ),
    "esam": (sj.esam(0.3, BETA, 0.5), lambda name, keys: climbs.esam(0.3, BETA, 0.5, drawn(name, keys))),
    "lesam": (
        sj.lesam(0.3),
        lambda name, _: climbs.lesam_along_m_hat(0.3, 0.9, eta) if name == "qgm" else climbs.lesam(0.3),
    ),
}


@pytest.mark.parametrize("estimator", GRADIENTS)
@pytest.mark.parametrize("name", ["dpsgd", "qgm", "ngm"])
def test_gradients_are_the_published_formulas(name, estimator):
    problem, shared = Samples(), {"beta": 0.9, "nesterov": True, "weight_decay": 0.03}
    keys = jax.random.split(jax.random.key(3), problem.steps)
    chosen, transcribe = GRADIENTS[estimator]
    climb = climbs.source(transcribe(name, keys), problem)
    expected = getattr(printed, name)(problem.start, IRREGULAR.mixing, climb, problem.steps, eta, **shared)
    method = sj.saddle(getattr(sj, name)(IRREGULAR, SCHEDULE, **shared), chosen)
    history, _, _ = run(method, problem, keys=keys)
    for t, i in itertools.product(range(problem.steps), range(problem.agents)):
        for tensor, values in zip(("b", "w"), expected[t][i], strict=True):
            np.testing.assert_allclose(
                history[tensor][t, i], values, rtol=0, atol=1e-10, err_msg=f"step {t}, agent {i}, {tensor}"
            )


def test_the_masks_of_esam_differ_among_agents_and_steps():
    keys = jax.random.split(jax.random.key(3), 5)
    masks = np.array([[drawn("dpsgd", keys)(i, 0, t) for i in range(5)] for t in range(5)])
    assert {tuple(mask) for mask in masks.reshape(-1, 2)} == set(itertools.product((False, True), repeat=2))
    assert len({masks[t].tobytes() for t in range(5)}) > 1
    assert len({masks[:, i].tobytes() for i in range(5)}) > 1
