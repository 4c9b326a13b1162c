"""The Hessian of ONE model's loss: its largest and smallest eigenvalue, trace and spectral density.

    H q_j = beta_{j-1} q_{j-1} + alpha_j q_j + beta_j q_{j+1}      (Lanczos, 1950)

k products with H from a random start q_1 give a tridiagonal matrix T (alphas, betas). With its
eigenpairs T s_i = theta_i s_i, all quantities here come from the same k products:

- the theta_i converge to the ends of the spectrum first: lambda_max is the largest *signed* eigenvalue,
  where power iteration finds the largest modulus; |beta_k s_ik| = ||H y_i - theta_i y_i|| is the residual;
- the theta_i with weights s_i1^2 are a Gaussian quadrature of the spectral density (Golub and Meurant).

Products are called from Python, one chunk of images after the other: in loops of a compiled program, such
as those of Lanczos written in JAX, XLA's CPU backend runs convolutions more than ten times slower.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array, Batch, Key, LossFn, Params

ITERATIONS = 30
# Points of a density's curve, and its Gaussians' width as a share of the spectrum's.
_POINTS, _WIDTH = 400, 0.01

Product = Callable[[np.ndarray], np.ndarray]  # v [n] -> H v [n]


class Quadrature(NamedTuple):
    """The quadrature of the spectral density from one start vector.

    Attributes:
      nodes: theta_i, float64 [k], ascending.
      weights: s_i1^2, float64 [k]; they sum to one.
      residuals: ||H y_i - theta_i y_i||, float64 [k]; some eigenvalue is at most this far from theta_i.
    """

    nodes: np.ndarray
    weights: np.ndarray
    residuals: np.ndarray


class Spectrum(NamedTuple):
    """Estimates of a Hessian's eigenvalues; not finite if the loss is not.

    Attributes:
      lambda_max: the algebraically largest eigenvalue.
      lambda_min: the algebraically smallest eigenvalue.
      residual: the residual of lambda_max, see `Quadrature`.
      trace: an estimate of the trace.
      trace_error: the standard error of that estimate.
      quadratures: one per probe.
    """

    lambda_max: float
    lambda_min: float
    residual: float
    trace: float
    trace_error: float
    quadratures: tuple[Quadrature, ...]


def hessian(loss_fn: LossFn, params: Params, chunks: Sequence[tuple[float, Batch]]) -> tuple[Product, int]:
    """Returns the Hessian of sum_c weight_c loss_fn(params, batch_c) as a product, and its size n.

    Args:
      loss_fn: (one model's params, batch) -> scalar; differentiable in reverse mode, then in forward mode.
      chunks: weights and batches; a mean over N images is the mean over chunks, weighted by their sizes.
    """
    if not chunks:
        raise ArgumentError("chunks must hold at least one (weight, batch), got none")
    flat, unravel = ravel_pytree(params)

    def product(vector: np.ndarray) -> np.ndarray:
        direction = unravel(jax.numpy.asarray(vector, flat.dtype))
        total = sum(w * _chunk_product(loss_fn, params, direction, batch) for w, batch in chunks)
        return np.asarray(total)

    return product, flat.size


@functools.partial(jax.jit, static_argnums=0)
def _chunk_product(loss_fn: LossFn, params: Params, direction: Params, batch: Batch) -> Array:
    """Computes the derivative of the gradient along a direction, as one vector [n]."""
    _, tangent = jax.jvp(lambda p: jax.grad(loss_fn)(p, batch), (params,), (direction,))
    return ravel_pytree(tangent)[0]


def lanczos(product: Product, start: np.ndarray, iterations: int) -> Quadrature:
    """Runs Lanczos for up to `iterations` steps from a start vector [n], with full reorthogonalization."""
    iterations = min(checks.whole("iterations", iterations, at_least=1), start.size)
    basis = np.zeros((iterations, start.size), start.dtype)
    alphas, betas = np.zeros(iterations), np.zeros(iterations)
    vector = start / np.linalg.norm(start)
    for j in range(iterations):
        basis[j] = vector
        image = product(vector)
        earlier = basis[: j + 1]
        coefficients = earlier @ image
        alphas[j] = coefficients[j]
        scale = np.linalg.norm(image)
        rest = image - coefficients @ earlier
        rest -= (earlier @ rest) @ earlier  # once more: the first time leaves rounding errors of size ||H q||
        betas[j] = np.linalg.norm(rest)
        if betas[j] <= 10 * np.finfo(start.dtype).eps * scale:  # the Krylov space is exhausted
            betas[j] = 0
            iterations = j + 1
            break
        vector = rest / betas[j]
    if not (np.isfinite(alphas).all() and np.isfinite(betas).all()):
        return Quadrature(*np.full((3, iterations), np.nan))
    inner = betas[: iterations - 1]
    tridiagonal = np.diag(alphas[:iterations]) + np.diag(inner, 1) + np.diag(inner, -1)
    nodes, vectors = np.linalg.eigh(tridiagonal)
    rounding = np.finfo(start.dtype).eps * np.abs(nodes).max()  # of the products themselves
    residuals = np.maximum(np.abs(betas[iterations - 1] * vectors[-1]), rounding)
    return Quadrature(nodes, vectors[0] ** 2, residuals)


def spectrum(
    loss_fn: LossFn,
    params: Params,
    chunks: Sequence[tuple[float, Batch]],
    key: Key,
    *,
    iterations: int = ITERATIONS,
    probes: int = 1,
    progress: Callable[[], None] = lambda: None,
) -> Spectrum:
    """Measures the spectrum of one model's Hessian, see `hessian`, by `probes` runs of Lanczos.

    The probes v are uniform on the unit sphere, so that n v'Hv estimates the trace without bias and
    with the variance 2n / (n+2) (||H||_F^2 - tr(H)^2 / n). ||H||_F^2 itself is estimated by n ||Hv||^2, so
    that one probe is enough for the error. The key is consumed; `progress` is called after each product.
    """
    iterations = checks.whole("iterations", iterations, at_least=2)  # ||Hv||^2 needs the first beta
    probes = checks.whole("probes", probes, at_least=1)
    product, size = hessian(loss_fn, params, chunks)

    def counted(vector: np.ndarray) -> np.ndarray:
        image = product(vector)
        progress()
        return image

    dtype = ravel_pytree(params)[0].dtype
    quadratures = tuple(
        lanczos(counted, np.asarray(jax.random.normal(probe, (size,), dtype)), iterations)
        for probe in jax.random.split(key, probes)
    )
    top = max(quadratures, key=lambda q: q.nodes[-1])
    trace = size * float(np.mean([q.weights @ q.nodes for q in quadratures]))
    squares = size * float(np.mean([q.weights @ q.nodes**2 for q in quadratures]))
    variance = 2 * size / (size + 2) * max(squares - trace**2 / size, 0) / probes
    return Spectrum(
        lambda_max=float(top.nodes[-1]),
        lambda_min=min(float(q.nodes[0]) for q in quadratures),
        residual=float(top.residuals[-1]),
        trace=trace,
        trace_error=math.sqrt(variance),
        quadratures=quadratures,
    )


def density(spectrum: Spectrum) -> tuple[np.ndarray, np.ndarray]:
    """Returns the spectral density as a curve, x and y [400]: a Gaussian at each node, averaged over probes.

    y integrates to one; times n it is the density of the number of eigenvalues.
    """
    spread = spectrum.lambda_max - spectrum.lambda_min
    width = _WIDTH * spread or 1e-6  # if all eigenvalues are equal
    x = np.linspace(spectrum.lambda_min - 5 * width, spectrum.lambda_max + 5 * width, _POINTS)
    y = np.zeros_like(x)
    for quadrature in spectrum.quadratures:
        distance = (x[:, None] - quadrature.nodes) / width
        y += np.exp(-(distance**2) / 2) @ quadrature.weights / (width * math.sqrt(2 * math.pi))
    return x, y / len(spectrum.quadratures)
