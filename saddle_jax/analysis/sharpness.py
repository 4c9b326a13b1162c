"""The curvature of a run's models: on which images it is measured, and where it is written down.

The images are a fixed random choice from the training data of all agents together, not augmented;
or, for agents with data="own", from their own share.
"""

import functools
import json
import math
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax import models
from saddle_jax.analysis import hessian
from saddle_jax.base.errors import RunError
from saddle_jax.base.types import Batch, LossFn, Params
from saddle_jax.models.convolution import Lowering
from saddle_jax.training import classification
from saddle_jax.training.build import Problem
from saddle_jax.training.run_folder import write_json

DATA = ("train", "own")
FILE = "sharpness.json"
# Images in one compiled call: fewer waste time between calls, more fall out of a CPU's caches.
_CHUNK = 128


def training_chunks(problem: Problem, images: int, agent: int | None = None) -> list[tuple[float, Batch]]:
    """At most `images` training images in batches of one shape, with weights that sum to one.

    They are of all agents' data, or of one agent's. The choice is the same for every model of a run,
    and for every run with the same partition.
    """
    dataset, partition = problem.dataset, problem.partition
    agents = range(partition.agents) if agent is None else [agent]
    held = np.unique(np.concatenate([partition.samples[i][: partition.sizes[i]] for i in agents]))
    chosen = np.sort(np.random.RandomState(0).permutation(held)[:images])
    size = min(_CHUNK, len(chosen))
    chunks = []
    for start in range(0, len(chosen), size):
        samples = chosen[start : start + size]
        filled = np.resize(samples, size)  # the last chunk repeats images, which its mask leaves out
        pixels = jnp.asarray(np.asarray(dataset.train_images[filled]))
        batch = {
            "images": dataset.recipe.for_evaluation(pixels),
            "labels": jnp.asarray(dataset.train_labels[filled]),
            "mask": jnp.asarray(np.arange(size) < len(samples), jnp.float32),
        }
        chunks.append((len(samples) / len(chosen), batch))
    return chunks


def loss_of(problem: Problem, lowering: Lowering) -> LossFn:
    """(params, batch) -> cross-entropy; the same function for runs of the same model: one compilation."""
    config = problem.config
    return _loss(config.model, problem.dataset.num_classes, config.norm, lowering)


@functools.cache
def _loss(name: str, classes: int, norm: Any, lowering: Lowering) -> LossFn:
    with_accuracy = classification.cross_entropy(models.build(name, classes, norm=norm, lowering=lowering))
    return lambda params, batch: with_accuracy(params, batch)[0]


def measure(
    problem: Problem, params: Params, images: int, agent: int | None = None, **options: Any
) -> hessian.Spectrum:
    """One model's Hessian on `training_chunks`; options as of `hessian.spectrum`.

    The start vectors are the same for all models.
    """
    chunks = training_chunks(problem, images, agent)
    return hessian.spectrum(loss_of(problem, "plain"), params, chunks, jax.random.key(0), **options)


def metrics(problem: Problem, params: Params) -> dict[str, float]:
    """What training writes down of its consensus model."""
    found = measure(problem, params, problem.config.sharpness_images)
    return {"lambda_max": found.lambda_max, "lambda_min": found.lambda_min, "trace": found.trace}


def stage(step: int, epoch: float, whose: str | int, found: hessian.Spectrum, curve: bool) -> dict[str, Any]:
    """One entry of sharpness.json's "stages"; what is not finite becomes null."""
    numbers = {
        name: value if math.isfinite(value) else None
        for name in ("lambda_max", "lambda_min", "residual", "trace", "trace_error")
        for value in [getattr(found, name)]
    }
    drawn = None
    if curve and math.isfinite(found.lambda_max):
        x, y = hessian.density(found)
        drawn = {"x": x.tolist(), "y": y.tolist()}
    return {"step": step, "epoch": epoch, "whose": whose, **numbers, "density": drawn}


def read_stages(workdir: pathlib.Path, settings: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """What sharpness.json holds, if it was measured with these settings, or with any for None."""
    path = workdir / FILE
    try:
        content = json.loads(path.read_text())
        if settings is not None and any(content[name] != value for name, value in settings.items()):
            return []
        stages = list(content["stages"])
        for entry in stages:
            missing = {"step", "epoch", "whose", "lambda_max", "density"} - set(entry)
            if missing:
                raise KeyError(", ".join(sorted(missing)))
        return stages
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} cannot be read ({error}): remove it to measure again") from error


def write_stages(workdir: pathlib.Path, settings: dict[str, Any], stages: list[dict[str, Any]]) -> None:
    """Writes sharpness.json: stages in order, the consensus model before the agents."""

    def order(entry: dict[str, Any]) -> tuple[int, int]:
        return entry["step"], -1 if entry["whose"] == "consensus" else entry["whose"]

    write_json(workdir / FILE, {**settings, "stages": sorted(stages, key=order)})
