"""A small non-convex problem, different for every agent and step, with its gradient by hand in NumPy."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np

import saddle_jax as sj

IRREGULAR = sj.from_matrix(
    [
        [0.5, 0.3, 0.2, 0.0, 0.0],
        [0.3, 0.4, 0.3, 0.0, 0.0],
        [0.2, 0.3, 0.1, 0.25, 0.15],
        [0.0, 0.0, 0.25, 0.75, 0.0],
        [0.0, 0.0, 0.15, 0.0, 0.85],
    ],
    name="irregular",
)
GRAPHS = [sj.ring(5), sj.torus(3, 3), IRREGULAR]


# These programs run once, for microseconds: compiling them fast matters more than fast code.
compiled = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


class Problem:
    """Regression through tanh, two tensors, one batch per step and agent: leaves [T, A, B, ...]."""

    def __init__(self, agents, steps=4, batch=3, seed=0):
        random = np.random.default_rng(seed)
        self.agents, self.steps = agents, steps
        self.x = random.normal(size=(steps, agents, batch, 3)) + random.normal(size=(1, agents, 1, 3))
        self.y = random.normal(size=(steps, agents, batch, 2))
        self.start = [  # one start per agent: b and w, in the order of a dict's leaves
            [random.normal(size=2), random.normal(size=(3, 2))] for _ in range(agents)
        ]

    @property
    def params(self):
        """The starting models of all agents, stacked [A, ...]."""
        return {
            "b": jnp.stack([b for b, _ in self.start]),
            "w": jnp.stack([w for _, w in self.start]),
        }

    @property
    def batches(self):
        return {"x": jnp.asarray(self.x), "y": jnp.asarray(self.y)}

    def batch(self, step):
        return jax.tree.map(lambda leaf: leaf[step], self.batches)

    @staticmethod
    def loss_fn(params, batch):
        """Returns the loss of one agent on its batch."""
        return jnp.mean((jnp.tanh(batch["x"] @ params["w"] + params["b"][None]) - batch["y"]) ** 2)

    def gradient(self, i, model, t):
        """Returns the gradient of agent i at a model in step t, derived by hand."""
        b, w = model
        z = np.tanh(self.x[t, i] @ w + b)
        slope = 2 * (z - self.y[t, i]) * (1 - z**2) / z.size
        return [slope.sum(axis=0), self.x[t, i].T @ slope]


def run(method, problem, loss_fn=Problem.loss_fn, keys=None, kind=None):
    """Models after every step, leaves [T, A, ...], and the last state; one compiled scan."""

    def body(carry, inputs):
        batch, key = inputs
        params, state, metrics = method.step(loss_fn, *carry, batch, key, kind=kind)
        return (params, state), (params, metrics)

    if isinstance(keys, tuple):  # (): steps without a key
        keys = None
    elif keys is None:
        keys = jax.random.split(jax.random.key(0), problem.steps)
    start = (problem.params, method.init(problem.params))
    (_, state), (history, metrics) = compiled(lambda s, i: jax.lax.scan(body, s, i))(
        start, (problem.batches, keys)
    )
    return history, state, metrics


def history(method, problem, params, batches, first=0):
    """Models after every step, leaves [T, A, ...], from step number `first` on; to be compiled."""

    def body(carry, inputs):
        params, state, _ = method.step(problem.loss_fn, *carry, *inputs)
        return (params, state), params

    keys = jax.random.split(jax.random.key(0), problem.steps)
    start = (params, method.init(params)._replace(t=jnp.int32(first)))
    return jax.lax.scan(body, start, (batches, keys))[1]


def run_each(methods, problem, first=()):
    """Models after every step of each method, which begins at its own first step: one program."""

    def histories(*data):
        pairs = zip(methods, first or [0] * len(methods), strict=True)
        return [history(method, problem, *data, t) for method, t in pairs]

    return compiled(histories)(problem.params, problem.batches)


RADII = (0.0, 0.3)


def run_radii(method, problem, every=1, reuse=False):
    """Models after every step with SAM of both radii, leaves [2, T, A, ...]: one program."""

    def with_radius(rho, *data):
        return history(sj.saddle(method, sj.sam(rho, every, reuse)), problem, *data)

    program = jax.vmap(with_radius, in_axes=(0, None, None))
    return compiled(program)(jnp.array(RADII), problem.params, problem.batches)


def assert_transcribed(history, expected):
    """Compares models [T, A, ...] with a transcription's: lists of tensors of every agent, step by step."""
    tensors = {
        name: np.array([[model[k] for model in models] for models in expected])
        for k, name in enumerate(("b", "w"))
    }
    chex.assert_trees_all_close(history, tensors, rtol=0, atol=1e-10)


def assert_transcribed_with_radii(method, problem, transcribe, every=1, reuse=False):
    """Compares the method, plain and with SAM, with transcribe(rho)."""
    histories = run_radii(method, problem, every, reuse)
    for number, rho in enumerate(RADII):
        assert_transcribed(jax.tree.map(lambda x, n=number: x[n], histories), transcribe(rho))


def faulty(method, **options):
    """The same method on a network with faults."""
    return dataclasses.replace(method, faults=sj.Faults(**options))
