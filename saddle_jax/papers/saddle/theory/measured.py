"""Estimates of the theorem's constants at the end of a real run.

Assumptions 1 and 2 are about every x. The estimates here are at one x, the consensus model, so the global L,
sigma and delta may be larger; for L even the local one may be, see `_smoothness`. f* is taken as 0, a lower
bound of cross-entropy, so the gap is an upper bound.
"""

import functools
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array, Batch, LossFn, Params
from saddle_jax.core.gradients import GradientInputs, plain_gradient, single_model
from saddle_jax.core.trees import agent_norms, consensus, replicate, scale_slices, squared_norms
from saddle_jax.data.recipes import Recipe, prepared
from saddle_jax.devices.lifting import vmap_agents
from saddle_jax.methods import METHODS
from saddle_jax.papers.saddle.theory.bound import Setting, mixing_lambda
from saddle_jax.settings.settings import Settings
from saddle_jax.training.build import Trial, options_of
from saddle_jax.training.progress import Screen
from saddle_jax.training.reopen import open_run

# Step length for differences of gradients: short relative to changes of the curvature, long relative to
# rounding errors of float32.
_STEP = 1e-3


class Estimates(NamedTuple):
    """A run's constants at its consensus model, over the samples used."""

    L: float  # largest ||grad f_i(y) - grad f_i(x)|| / ||y - x|| found, over all agents
    L_along_sam: float  # the largest along the agents' own gradients, where SAM climbs
    sigma: float  # sqrt of the mean over agents of E||g_batch - g_full||^2
    sigma_worst: float  # that of the noisiest agent
    delta: float  # sqrt(1/n sum_i ||grad f_i - grad f||^2)
    gap: float  # f(x_0) - 0
    lambda_: float
    samples: int  # used, at most per agent

    def setting(self, config: Settings, steps: int) -> Setting:
        """Returns the theorem's setting of a run with these constants and T steps."""
        options = {**METHODS.defaults(config.method), **METHODS.given(config.method)}
        return Setting(
            L=self.L,
            sigma=self.sigma,
            delta=self.delta,
            lambda_=self.lambda_,
            gap=self.gap,
            eta=config.learning_rate,
            beta=options["beta"],
            mu=options.get("mu") or options["beta"],
            rho=options.get("rho", 0.0),
            agents=config.agents,
            steps=steps,
        )


def estimate(
    trial: Trial,
    params: Params,
    *,
    samples: int = 0,
    iterations: int = 10,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Estimates:
    """Estimates a run's constants; images are preprocessed as in evaluation, without augmentation.

    Args:
      trial: the run's parts.
      params: all agents' models [A, ...].
      samples: the number of random samples per agent, rounded up to full batches; 0 uses all.
      iterations: number of steps of the power method for L.
      report: called with the number of completed passes over the samples, and the total.
    """
    iterations = checks.whole("iterations", iterations, at_least=1)
    lambda_ = mixing_lambda(trial.topology, options_of(trial.method_on(trial.topology)).get("gamma", 1.0))
    if lambda_ == 0:
        raise ArgumentError(f"the theorem needs agents that mix, got {trial.topology.name}")
    if not trial.objective.masked:
        raise ArgumentError(
            f"theory needs a loss that is a mean over masked samples, got {trial.objective.name}"
        )
    data = _AgentData(trial, checks.whole("samples", samples, at_least=0))
    passes = iterations + 4

    def finish(done: int) -> None:
        report(done, passes)

    # Through the host: a checkpoint's arrays are committed to devices, which would cause another compilation.
    here = replicate(jax.device_get(consensus(params)), trial.config.agents)
    _, initial_loss = data.mean_gradient(trial.first_params())
    finish(1)
    gradients, _ = data.mean_gradient(here)
    finish(2)
    variances = data.variances(here, gradients)
    finish(3)
    centred = jax.tree.map(lambda g: g - jnp.mean(g, axis=0, keepdims=True), gradients)
    along_sam, largest = _smoothness(data, here, gradients, iterations, lambda k: finish(3 + k))
    return Estimates(
        L=largest,
        L_along_sam=along_sam,
        sigma=float(np.sqrt(np.mean(variances))),
        sigma_worst=float(np.sqrt(np.max(variances))),
        delta=float(jnp.sqrt(jnp.mean(squared_norms(centred)))),
        gap=float(np.mean(initial_loss)),
        lambda_=lambda_,
        samples=int(data.mask.sum(axis=(0, 2)).max()),
    )


def _smoothness(
    data: "_AgentData", here: Params, gradients: Params, iterations: int, report: Callable[[int], None]
) -> tuple[float, float]:
    """Returns max_i ||grad f_i(x + r v_i) - grad f_i(x)|| / r along v_i = g_i / ||g_i||, and the largest.

    Every quotient is a lower bound of L. The first is along SAM's ascent direction, where the power method
    starts, v_i <- the difference of gradients. So the quotients approach the largest |eigenvalue| of agent
    i's Hessian at x, itself a lower bound of L.
    """
    direction, quotients = _unit(gradients), []
    for k in range(iterations + 1):
        shifted = jax.tree.map(lambda x, v: x + _STEP * v, here, direction)
        shifted_gradients, _ = data.mean_gradient(shifted)
        difference = jax.tree.map(lambda g, g0: (g - g0) / _STEP, shifted_gradients, gradients)
        quotients.append(float(jnp.max(agent_norms(difference))))
        direction = _unit(difference)
        report(k + 1)
    return quotients[0], max(quotients)


def _unit(tree: Any) -> Any:
    """Scales every agent's slice to norm one; a slice of zeros stays."""
    norms = agent_norms(tree)
    return scale_slices(tree, jnp.where(norms > 0, 1 / jnp.where(norms > 0, norms, 1), 0))


class _AgentData:
    """Each agent's samples in batches of the run's size, and passes over them."""

    def __init__(self, trial: Trial, samples: int):
        partition, size = trial.partition, trial.batches.size
        if 0 < samples < 2 * size:
            raise ArgumentError(f"samples must be 0 or at least two batches, {2 * size}, got {samples}")
        share = int(partition.sizes.max())
        batches = -(-(min(samples, share) if samples else share) // size)
        random = np.random.default_rng(trial.config.seed)
        chosen = np.zeros((partition.agents, batches * size), np.int64)
        mask = np.zeros(chosen.shape, np.float32)
        for agent, (row, count) in enumerate(zip(partition.samples, partition.sizes, strict=True)):
            drawn = random.permutation(row[:count])[: batches * size]
            chosen[agent, : len(drawn)], mask[agent, : len(drawn)] = drawn, 1.0
        self._sizes, self._batch_size = partition.sizes, size
        self._trial = trial
        self._samples = chosen.reshape(-1, batches, size).swapaxes(0, 1)  # [batches, A, B]
        self.mask = mask.reshape(-1, batches, size).swapaxes(0, 1)

    def _batch(self, number: int) -> Batch:
        """Returns one stored batch of every agent [A, B, ...]."""
        samples, train = self._samples[number], self._trial.dataset.train
        return {**jax.tree.map(lambda leaf: np.asarray(leaf[samples]), train), "mask": self.mask[number]}

    def _gradients(self, params: Params, number: int) -> tuple[Params, Array]:
        """Computes gradients [A, ...] and losses [A] of one batch of every agent."""
        trial = self._trial
        result: tuple[Params, Array] = _gradients(
            trial.loss_fn, trial.dataset.recipe, params, self._batch(number)
        )
        return result

    def mean_gradient(self, params: Params) -> tuple[Params, np.ndarray]:
        """Computes grad f_i(x_i) [A, ...] and f_i(x_i) [A]."""
        counts = self.mask.sum(axis=2)  # [batches, A]
        shares = counts / counts.sum(axis=0, keepdims=True)
        total, loss = jax.tree.map(jnp.zeros_like, params), np.zeros(counts.shape[1])
        for number, share in enumerate(shares):
            grads, losses = self._gradients(params, number)
            total = jax.tree.map(jnp.add, total, scale_slices(grads, jnp.asarray(share)))
            loss += share * np.asarray(losses)
        return total, loss

    def variances(self, params: Params, means: Params) -> np.ndarray:
        """Computes the mean over each agent's batches of ||g_batch - grad f_i||^2 [A].

        Batches of B out of m samples, drawn without replacement, have 1 - B/m times the variance of
        independent ones. For an agent with more than the m samples used, its own factor replaces this one.
        """
        filled = self.mask.sum(axis=2) > 0
        squares = np.zeros(filled.shape)
        for number in range(len(filled)):
            grads, _ = self._gradients(params, number)
            squares[number] = squared_norms(jax.tree.map(jnp.subtract, grads, means))
        means_of_squares = (squares * filled).sum(axis=0) / filled.sum(axis=0)
        seen = self.mask.sum(axis=(0, 2))
        partly = seen < self._sizes
        factor = (1 - self._batch_size / self._sizes) / np.where(partly, 1 - self._batch_size / seen, 1)
        result: np.ndarray = means_of_squares * np.where(partly, factor, 1)
        return result


@functools.partial(jax.jit, static_argnums=(0, 1))
def _gradients(loss_fn: LossFn, recipe: Recipe | None, params: Params, batch: Batch) -> tuple[Params, Array]:
    seen = jax.vmap(functools.partial(prepared, recipe))(batch)
    grads, _, evaluation = vmap_agents(single_model(loss_fn, plain_gradient(), kind=0))(
        params, seen, (), GradientInputs()
    )
    return grads, evaluation.loss


def outside_the_theorem(config: Settings) -> list[str]:
    """Lists the parts of a run's method that the theorem does not cover."""
    differences = []
    name = METHODS.parse(config.method).name
    options = {**METHODS.defaults(name), **METHODS.given(config.method)}
    if name not in ("qgm", "q_saddle"):
        differences.append(f"method {name}: the theorem is about Q-SADDLe, and QGM as its rho = 0")
    if options.get("nesterov") and options["beta"] > 0:
        differences.append("Nesterov: the theorem has heavy ball")
    if options.get("weight_decay"):
        differences.append(f"weight decay {options['weight_decay']:g}: the theorem has none")
    if config.schedule != "constant" or config.warmup_epochs > 0:
        differences.append(f"learning rate by schedule ({config.schedule}): the theorem has one eta")
    if options.get("compressor") is not None:
        differences.append(f"compressor {options['compressor']}: the theorem sends whole models")
    return differences


class MeasuredRun(NamedTuple):
    """A run's constants at its newest checkpoint."""

    step: int
    estimates: Estimates
    setting: Setting
    outside: list[str]  # parts of the run's method that the theorem does not cover


def measure_run(
    workdir: pathlib.Path,
    samples: int,
    data_dir: str | None,
    screen: Screen,
    code: Sequence[str] = (),
    trial: int | None = None,
) -> MeasuredRun:
    """Estimates the constants of the theorem at a run's newest checkpoint; `screen` shows the progress.

    `samples` of each agent's data are used, or all for 0; `data_dir`, `code` and `trial` are those of
    `open_run`.
    """
    run, step, params = open_run(workdir, screen.warn, data_dir, trial, code)
    screen.line("measuring L, sigma and delta at the consensus model ...")
    passes = 0

    def advance(done: int, total: int) -> None:
        nonlocal passes
        if passes == 0:
            screen.start(total, 0)
        screen.advance(done - passes)
        passes = done

    try:
        estimates = estimate(run, params, samples=samples, report=advance)
    finally:
        screen.stop()
    config = run.config
    return MeasuredRun(step, estimates, estimates.setting(config, max(step, 1)), outside_the_theorem(config))
