"""The loss landscape of ONE model, on the plane through it that two directions span.

    L(a, b) = loss(x + a d_1 + b d_2)

"filter" directions are those of Li et al. (2018): Gaussian, each filter of d rescaled to the norm of
the model's own, so that models whose weights differ in scale can be compared. "orthogonal" ones are
two orthonormal Gaussian directions, scaled to the norm of the whole model.
"""

import dataclasses
import operator
import pathlib
from collections.abc import Callable, Sequence
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.analysis import sharpness
from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array, Batch, Key, LossFn, Params
from saddle_jax.devices import policy
from saddle_jax.runs.run_folder import read_config
from saddle_jax.training import reopen
from saddle_jax.training.build import Trial
from saddle_jax.training.progress import Screen

Kind = Literal["filter", "orthogonal"]
KINDS = ("filter", "orthogonal")
_MOST_POINTS = 2_001  # along a direction: four million losses


def directions(kind: Kind, params: Params, key: Key) -> tuple[Params, Params]:
    """Draws two directions for one model; with the same key, which is consumed, the same for every model."""
    checks.choice("directions", kind, KINDS)
    first, second = (_gaussian(params, one) for one in jax.random.split(key))
    if kind == "filter":
        return _like_filters(first, params), _like_filters(second, params)
    overlap = _inner(first, second) / _inner(first, first)
    second = jax.tree.map(lambda d, e: e - overlap * d, first, second)
    return _scaled(first, params), _scaled(second, params)


def _gaussian(params: Params, key: Key) -> Params:
    leaves, form = jax.tree.flatten(params)
    keys = jax.random.split(key, len(leaves))
    gaussians = [jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(form, gaussians)


def _like_filters(direction: Params, params: Params) -> Params:
    """Rescales each filter, d <- d ||w|| / ||d||, with the norms over all axes but the last, the outputs.

    Tensors of one axis, biases and the scales of norms, are not perturbed: d is zero there.
    """

    def rescale(d: Array, w: Array) -> Array:
        if w.ndim <= 1:
            return jnp.zeros_like(d)
        axes = tuple(range(w.ndim - 1))
        return d * jnp.sqrt(jnp.sum(w**2, axes, keepdims=True) / jnp.sum(d**2, axes, keepdims=True))

    return jax.tree.map(rescale, direction, params)


def _scaled(direction: Params, params: Params) -> Params:
    factor = jnp.sqrt(_inner(params, params) / _inner(direction, direction))
    return jax.tree.map(lambda d: factor * d, direction)


def _inner(left: Params, right: Params) -> Array:
    result: Array = jax.tree.reduce(operator.add, jax.tree.map(jnp.vdot, left, right))
    return result


def grid(points: int, span: float) -> np.ndarray:
    """Returns an odd number of coordinates from -span to span; the middle one is the model itself."""
    points = checks.whole("points", points, at_least=3, at_most=_MOST_POINTS)
    if points % 2 == 0:
        raise ArgumentError(f"points must be odd, so that the middle is the model itself, got {points}")
    span = checks.real("span", span, above=0.0)
    x = np.linspace(-span, span, points)
    x[points // 2] = 0.0  # linspace may miss it by a rounding error
    return x


def surface(
    loss_fn: LossFn,
    params: Params,
    plane: tuple[Params, Params],
    x: np.ndarray,
    y: np.ndarray,
    chunks: Sequence[tuple[float, Batch]],
    *,
    group: int = 1,
    progress: Callable[[int], None] = lambda count: None,
) -> np.ndarray:
    """Computes sum_c weight_c loss_fn(params + x_i d_1 + y_j d_2, batch_c), float64 [len(x), len(y)].

    Args:
      loss_fn: (one model's params, batch) -> scalar.
      plane: d_1 and d_2.
      chunks: weights and batches, whose weights sum to one.
      group: number of points in one vmapped call; every chunk is a call of its own.
      progress: called with the number of points since the last call.
    """
    group = checks.whole("group", group, at_least=1)

    @jax.jit
    def losses(params: Params, plane: tuple[Params, Params], places: Array, batch: Batch) -> Array:
        def at(place: Array) -> Array:
            shifted = jax.tree.map(lambda w, d, e: w + place[0] * d + place[1] * e, params, *plane)
            result: Array = loss_fn(shifted, batch)
            return result

        return at(places[0])[None] if len(places) == 1 else jax.vmap(at)(places)

    dtype = jax.tree.leaves(params)[0].dtype
    places = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2).astype(dtype)
    values = []
    for start in range(0, len(places), group):
        chosen = places[start : start + group]
        filled = np.pad(chosen, ((0, group - len(chosen)), (0, 0)))  # one shape, so one compilation
        totals = [weight * losses(params, plane, filled, batch) for weight, batch in chunks]
        values.append(np.sum(np.asarray(totals, np.float64), axis=0)[: len(chosen)])
        progress(len(chosen))
    return np.concatenate(values).reshape(len(x), len(y))


# ---- the surfaces around runs' consensus models, on one grid and along the same directions ----


@dataclasses.dataclass(frozen=True)
class Scan:
    """The settings of a loss landscape.

    Attributes:
      kind: the kind of directions, see `landscape.directions`.
      seed: the seed of the directions.
      images: the number of training images that the loss is computed on.
    """

    kind: Kind
    seed: int
    images: int


def open_runs(
    workdirs: Sequence[pathlib.Path],
    data_dir: str | None,
    screen: Screen,
    code: Sequence[str] = (),
    trial: int | None = None,
) -> list[tuple[Trial, int, Params]]:
    """Opens runs at their newest checkpoints; `screen` shows the checkpoints that were skipped.

    `trial` chooses one run of folders with several.
    """
    return [
        reopen.open_run(workdir, screen.warn, data_dir, trial_in(workdir, trial), code)
        for workdir in workdirs
    ]


def trial_in(workdir: pathlib.Path, trial: int | None) -> int | None:
    """Returns the trial to open in a folder of several runs; None in a folder of one run."""
    return trial if read_config(workdir).has_trials else None


def surfaces(
    names: Sequence[str],
    runs: Sequence[tuple[Trial, int, Params]],
    x: np.ndarray,
    scan: Scan,
    screen: Screen,
) -> np.ndarray:
    """Computes the losses of all runs at coordinates `x` [n] along both directions, float64 [runs, n, n]."""
    group = policy.landscape_points()
    losses = []
    screen.start(len(runs) * len(x) ** 2, 0)
    for name, (trial, step, params) in zip(names, runs, strict=True):
        model = reopen.choose(params, None)
        plane = directions(scan.kind, model, jax.random.key(scan.seed))
        chunks = sharpness.training_chunks(trial, scan.images)
        count = min(scan.images, len(np.unique(trial.partition.samples)))
        screen.line(f"{name}: step {step:,}, {count:,} of its training samples, not augmented")
        loss_fn = sharpness.loss_of(trial, "auto")
        loss = surface(loss_fn, model, plane, x, x, chunks, group=group, progress=screen.advance)
        middle = len(x) // 2
        screen.line(f"{name}: loss {loss[middle, middle]:.4f}, up to {np.nanmax(loss):.4f} around it")
        losses.append(loss)
    screen.stop()
    return np.stack(losses)
