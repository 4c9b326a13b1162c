"""Convex problems with a known optimum: ridge regression and regularised logistic regression.

Agent i has n_i samples (a, b) and the loss

    f_i(x) = 1/n_i sum_j phi(a_j . x, b_j) + p/2 |x|^2        ridge: phi(z, b) = (z - b)^2 / 2, b a number
                                                           logistic: phi(z, b) = log(1 + exp(-b z)), b = +-1

and F = 1/A sum_i f_i weighs agents equally, however many samples they have. The samples are made so that the
Hessian of F has the largest eigenvalue L = 1 and the smallest one mu = 1 / condition: exactly for ridge
regression, and as global bounds for logistic regression, when all samples are partitioned into equal shares.
`solve` computes the constants of any partition, in float64.
"""

import dataclasses
import functools
from typing import Any, Literal, NamedTuple

import numpy as np

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.data.dataset import Dataset
from saddle_jax.data.partition import Partition

Kind = Literal["ridge", "logistic"]
CONVEX_KINDS = ("ridge", "logistic")
# The largest second derivative of phi in its first argument.
_CURVATURE = {"ridge": 1.0, "logistic": 0.25}
_ITERATIONS = 100  # Newton's; on these problems ten are enough
# Limits for solving within seconds and in less than a gigabyte.
_LARGEST, _MOST_NUMBERS = 1000, 20_000_000


class Samples(NamedTuple):
    """Samples of a convex problem, in groups with different solutions.

    Attributes:
      kind: "ridge" or "logistic".
      features: a, float32 [N, d].
      targets: b, float32 [N]; +1 or -1 for logistic regression.
      groups: int32 [N], the group of each sample, by which samples are partitioned.
      penalty: p, the coefficient of |x|^2 / 2.
    """

    kind: Kind
    features: np.ndarray
    targets: np.ndarray
    groups: np.ndarray
    penalty: float


def make_samples(
    kind: Kind = "ridge",
    *,
    dimension: int = 20,
    samples: int = 1000,
    condition: float = 10.0,
    noise: float = 0.1,
    heterogeneity: float = 1.0,
    groups: int = 10,
    seed: int = 0,
) -> Samples:
    """Generates the samples of a convex problem with a given condition number.

    Args:
      kind: "ridge" or "logistic".
      dimension: d, the number of parameters.
      samples: N, a multiple of `groups`.
      condition: L / mu, above 1. The eigenvalues of the Hessian, or of its bound for logistic regression, are
        evenly spaced on a logarithmic scale.
      noise: the standard deviation of the noise in the targets.
      heterogeneity: the distance between the solutions of the groups; 0 gives all groups the same one.
      groups: the number of groups.
      seed: the seed of a NumPy RandomState.
    """
    checks.choice("kind", kind, CONVEX_KINDS)
    dimension = checks.whole("dimension", dimension, at_least=2, at_most=_LARGEST)
    groups = checks.whole("groups", groups, at_least=1)
    most = _MOST_NUMBERS // dimension
    samples = checks.whole("samples", samples, at_least=max(dimension, groups), at_most=most)
    if samples % groups:
        raise ArgumentError(f"samples must be a multiple of groups = {groups}, got {samples}")
    condition = checks.real("condition", condition, above=1.0)
    noise = checks.real("noise", noise, at_least=0.0)
    heterogeneity = checks.real("heterogeneity", heterogeneity, at_least=0.0)
    random = np.random.RandomState(checks.whole("seed", seed, at_least=0, at_most=2**32 - 1))

    eigenvalues = np.logspace(0, -np.log10(condition), dimension)
    # Far from the origin the logistic loss has no curvature but that of the penalty, so mu is the penalty.
    penalty = eigenvalues[-1] / (2 if kind == "ridge" else 1)
    features = _with_covariance((eigenvalues - penalty) / _CURVATURE[kind], samples, random)
    of_groups = _unit_vectors(1, dimension, random) + heterogeneity * _unit_vectors(groups, dimension, random)
    numbers = random.permutation(np.arange(samples) % groups)
    targets = np.sum(features * of_groups[numbers], axis=1) + noise * random.normal(size=samples)
    if kind == "logistic":
        targets = np.where(targets >= 0, 1.0, -1.0)
    return Samples(
        kind,
        features.astype(np.float32),
        targets.astype(np.float32),
        numbers.astype(np.int32),
        float(penalty),
    )


@functools.wraps(make_samples, assigned=())  # it takes the same options
def load_convex(**options: Any) -> Dataset:
    """Generates a convex problem; by default ridge regression in 20 dimensions on 1,000 samples.

    The metrics are distances to the known optimum, see `saddle_jax.tasks.convex`, so the test samples are the
    training samples. The options are those of `make_samples`.
    """
    made = make_samples(**options)
    penalty = np.full(len(made.targets), made.penalty, np.float32)  # per sample, like the rest of its loss
    samples = {"inputs": made.features, "targets": made.targets, "penalty": penalty}
    return Dataset(
        name="convex",
        train=samples,
        test=samples,
        class_names=tuple(f"group {number}" for number in range(made.groups.max() + 1)),
        partition_labels=made.groups,
        outputs=1,
        objective=made.kind,
        model="linear",
        source="made from a fixed seed",
    )


def _with_covariance(eigenvalues: np.ndarray, samples: int, random: np.random.RandomState) -> np.ndarray:
    """Draws features A [N, d] such that A^T A / N has these eigenvalues, with random eigenvectors."""
    dimension = len(eigenvalues)
    orthonormal, _ = np.linalg.qr(random.normal(size=(samples, dimension)))
    rotation, _ = np.linalg.qr(random.normal(size=(dimension, dimension)))
    scales: np.ndarray = np.sqrt(samples * np.maximum(eigenvalues, 0))
    result: np.ndarray = orthonormal * scales @ rotation.T
    return result


def _unit_vectors(count: int, dimension: int, random: np.random.RandomState) -> np.ndarray:
    vectors = random.normal(size=(count, dimension))
    lengths: np.ndarray = np.linalg.norm(vectors, axis=1, keepdims=True)
    result: np.ndarray = vectors / lengths
    return result


@dataclasses.dataclass(frozen=True, eq=False)
class Loss:
    """A convex loss sum_j w_j phi(a_j . x, b_j) + p/2 |x|^2 in float64, with its derivatives.

    Attributes:
      kind: "ridge" or "logistic".
      features: a, float64 [N, d].
      targets: b, float64 [N].
      weights: w, float64 [N], which sum to one.
      penalty: p, the coefficient of |x|^2 / 2.
    """

    kind: Kind
    features: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    penalty: float

    def value(self, x: np.ndarray) -> float:
        """Returns the loss of one model [d]."""
        products = self.features @ x
        if self.kind == "ridge":
            each = 0.5 * np.square(products - self.targets)
        else:
            each = np.logaddexp(0, -self.targets * products)
        return float(self.weights @ each + 0.5 * self.penalty * (x @ x))

    def gap(self, x: np.ndarray, least: np.ndarray) -> float:
        """Returns the loss at x minus the loss at its minimiser `least`, both [d].

        Subtracting two losses would cancel the digits that they share. The gradient at the minimiser is zero,
        so the first-order terms are left out sample by sample.
        """
        way = x - least
        if self.kind == "ridge":
            each = 0.5 * np.square(self.features @ way)
        else:
            before, change = -self.targets * (self.features @ least), -self.targets * (self.features @ way)
            share = _sigmoid(before)
            near = np.log1p(share * np.expm1(np.minimum(change, 30)))  # a larger exp may overflow
            far = np.logaddexp(0, before + change) - np.logaddexp(0, before)
            each = np.where(change < 30, near, far) - share * change
        return float(self.weights @ each + 0.5 * self.penalty * (way @ way))

    def gradients(self, x: np.ndarray) -> np.ndarray:
        """Returns the gradient on each sample at one model, penalty included: [N, d]."""
        products = self.features @ x
        if self.kind == "ridge":
            slopes = products - self.targets
        else:
            slopes = -self.targets * _sigmoid(-self.targets * products)
        result: np.ndarray = slopes[:, None] * self.features + self.penalty * x
        return result

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """Returns the gradient of the loss at one model, [d]."""
        gradient: np.ndarray = self.weights @ self.gradients(x)
        return gradient

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """Returns the Hessian of the loss at one model, [d, d]."""
        products = self.features @ x
        curvatures = np.ones(len(products))
        if self.kind == "logistic":
            curvatures = _sigmoid(products) * _sigmoid(-products)
        return self._curved(curvatures)

    def bound(self) -> np.ndarray:
        """Returns a matrix [d, d] that bounds the Hessian at every model; for ridge it is the Hessian."""
        return self._curved(np.full(len(self.targets), _CURVATURE[self.kind]))

    def _curved(self, curvatures: np.ndarray) -> np.ndarray:
        matrix: np.ndarray = (self.features.T * (self.weights * curvatures)) @ self.features
        return matrix + self.penalty * np.eye(self.features.shape[1])

    def minimiser(self) -> np.ndarray:
        """Computes the minimiser [d] by Newton's method with step halving."""
        x = np.zeros(self.features.shape[1])
        for _ in range(_ITERATIONS):
            gradient = self.gradient(x)
            step = np.linalg.solve(self.hessian(x), gradient)
            decrement = float(gradient @ step)
            if decrement <= 1e-30:
                return x
            size = 1.0
            while decrement > 1e-12 and self.value(x - size * step) > self.value(x) - 0.25 * size * decrement:
                size /= 2
            x = x - size * step
        return x


def _sigmoid(z: np.ndarray) -> np.ndarray:
    values: np.ndarray = np.exp(-np.logaddexp(0, -z))
    return values


@dataclasses.dataclass(frozen=True, eq=False)
class Optimum:
    """The optimum of a partitioned convex problem and the constants of the theory there, in float64.

    Attributes:
      point: x*, float64 [d].
      value: F(x*).
      smoothness: L, the largest eigenvalue of the Hessian of F, or a global bound.
      convexity: mu, the smallest eigenvalue of the Hessian of F; for logistic regression the penalty.
      agent_smoothness: the largest L_i of the agents' losses, which limits the learning rate.
      heterogeneity: delta = sqrt(1/A sum_i |grad f_i(x*)|^2).
      noise: sigma, the standard deviation of a sample's gradient around its agent's gradient, at x*.
    """

    point: np.ndarray
    value: float
    smoothness: float
    convexity: float
    agent_smoothness: float
    heterogeneity: float
    noise: float

    @property
    def condition(self) -> float:
        """The condition number kappa = L / mu."""
        return self.smoothness / self.convexity


def agent_losses(samples: Samples, partition: Partition, weight_decay: float = 0.0) -> list[Loss]:
    """Returns each agent's loss f_i, with the weight decay added to the penalty."""
    penalty = samples.penalty + checks.real("weight_decay", weight_decay, at_least=0.0)
    losses = []
    for row, size in zip(partition.samples, partition.sizes, strict=True):
        own = row[:size]
        features, targets = samples.features[own].astype(float), samples.targets[own].astype(float)
        losses.append(Loss(samples.kind, features, targets, np.full(size, 1 / size), penalty))
    return losses


def whole_loss(losses: list[Loss]) -> Loss:
    """Returns F, the mean of the agents' losses."""
    return Loss(
        losses[0].kind,
        np.concatenate([loss.features for loss in losses]),
        np.concatenate([loss.targets for loss in losses]),
        np.concatenate([loss.weights for loss in losses]) / len(losses),
        losses[0].penalty,
    )


def solve(losses: list[Loss]) -> Optimum:
    """Computes the optimum of the agents' mean loss, and the constants there."""
    whole = whole_loss(losses)
    point = whole.minimiser()
    eigenvalues = np.linalg.eigvalsh(whole.bound())
    of_agents = [loss.gradients(point) for loss in losses]
    means = [gradients.mean(axis=0) for gradients in of_agents]
    spreads = [
        np.square(gradients - mean).sum(axis=1).mean()
        for gradients, mean in zip(of_agents, means, strict=True)
    ]
    return Optimum(
        point=point,
        value=whole.value(point),
        smoothness=float(eigenvalues[-1]),
        convexity=float(eigenvalues[0]) if whole.kind == "ridge" else whole.penalty,
        agent_smoothness=max(float(np.linalg.eigvalsh(loss.bound())[-1]) for loss in losses),
        heterogeneity=float(np.sqrt(np.mean(np.square(means).sum(axis=1)))),
        noise=float(np.sqrt(np.mean(spreads))),
    )
