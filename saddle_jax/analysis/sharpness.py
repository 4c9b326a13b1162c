"""The curvature of a run's models: on which images it is measured, and where it is written down.

The images are a fixed random choice from the training data of all agents together, not augmented;
or, for agents with data="own", from their own share.
"""

import functools
import math
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.analysis import hessian
from saddle_jax.base.reading import TOO_LARGE, read_object, reading
from saddle_jax.base.types import Array, Batch, LossFn, Params
from saddle_jax.data.dataset import Dataset
from saddle_jax.kernels.convolution import Lowering
from saddle_jax.models.precision import products
from saddle_jax.runs.run_folder import write_json
from saddle_jax.training.build import Replica

DATA = ("train", "own")
FILE = "sharpness.json"
_NUMBERS = ("lambda_max", "lambda_min", "residual", "trace", "trace_error")
# Images in one compiled call: fewer waste time between calls, more fall out of a CPU's caches.
_CHUNK = 128


def training_chunks(replica: Replica, samples: int, agent: int | None = None) -> list[tuple[float, Batch]]:
    """Returns at most so many training samples in batches, with weights that sum to one.

    They are of all agents' data, or of one agent's. The choice is the same for every model of a run, and for
    every run with the same partition. Batches have one shape if the objective reads a mask; otherwise the
    last one is shorter.
    """
    dataset, partition, masked = replica.dataset, replica.partition, replica.objective.masked
    agents = range(partition.agents) if agent is None else [agent]
    own = np.unique(np.concatenate([partition.samples[i][: partition.sizes[i]] for i in agents]))
    chosen = np.sort(np.random.RandomState(0).permutation(own)[:samples])
    size = min(_CHUNK, len(chosen))
    chunks = []
    for start in range(0, len(chosen), size):
        members = chosen[start : start + size]
        # With a mask the last chunk repeats samples, which it leaves out.
        filled = np.resize(members, size) if masked else members
        batch = dataset.prepared(_stored(dataset, filled))
        if masked:
            batch = {**batch, "mask": jnp.asarray(np.arange(size) < len(members), jnp.float32)}
        chunks.append((len(members) / len(chosen), batch))
    return chunks


def _stored(dataset: Dataset, samples: np.ndarray) -> Batch:
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf[samples])), dataset.train)


def loss_of(replica: Replica, lowering: Lowering) -> LossFn:
    """Returns (params, batch) -> loss; runs of the same model share it, and its compilation."""
    return _without_aux(replica.loss_of(lowering))


@functools.lru_cache(maxsize=16)
def _without_aux(loss: LossFn) -> LossFn:
    def value(params: Params, batch: Batch) -> Array:
        with products():
            return loss(params, batch)[0]

    return value


def measure(
    replica: Replica, params: Params, images: int, agent: int | None = None, **options: Any
) -> hessian.Spectrum:
    """Measures one model's Hessian on `training_chunks`; options are those of `hessian.spectrum`.

    The start vectors are the same for all models.
    """
    chunks = training_chunks(replica, images, agent)
    return hessian.spectrum(loss_of(replica, "plain"), params, chunks, jax.random.key(0), **options)


def metrics(replica: Replica, params: Params) -> dict[str, float]:
    """Returns what training logs about the sharpness of its consensus model."""
    spectrum = measure(replica, params, replica.config.sharpness_images)
    return {name: getattr(spectrum, name) for name in ("lambda_max", "lambda_min", "trace")}


def stage(
    step: int, epoch: float, whose: str | int, spectrum: hessian.Spectrum, curve: bool
) -> dict[str, Any]:
    """Makes one entry of sharpness.json's "stages"; what is not finite becomes null."""
    numbers = {
        name: value if math.isfinite(value) else None
        for name in _NUMBERS
        for value in [getattr(spectrum, name)]
    }
    density = None
    if curve and math.isfinite(spectrum.lambda_max):
        x, y = hessian.density(spectrum)
        density = {"x": x.tolist(), "y": y.tolist()}
    return {"step": step, "epoch": epoch, "whose": whose, **numbers, "density": density}


def file_of(workdir: pathlib.Path, replica: int | None = None) -> pathlib.Path:
    """Returns where measurements are written down; a replica, one run of several in a folder, has its own."""
    return workdir / (FILE if replica is None else f"sharpness-{replica}.json")


def read_stages(path: pathlib.Path, settings: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Reads the stages of sharpness.json, if it was measured with these settings, or with any for None."""
    content = read_object(path)
    if content is None:
        return []
    with reading(path, "remove it to measure again"):
        if settings is not None and any(content[name] != value for name, value in settings.items()):
            return []
        stages = list(content["stages"])
        for entry in stages:
            _check_stage(entry)
        return stages


def _check_stage(entry: Any) -> None:
    """Checks that an entry of a file is what `stage` makes; what is wrong is a ValueError."""
    if missing := {"step", "epoch", "whose", *_NUMBERS, "density"} - set(entry):
        raise ValueError(f"a stage has no {', '.join(sorted(missing))}")
    whole = [entry["step"], *([] if entry["whose"] == "consensus" else [entry["whose"]])]
    density = entry["density"] or {"x": [], "y": []}
    numbers = [entry["epoch"], *(entry[name] or 0.0 for name in _NUMBERS), *density["x"], *density["y"]]
    if any(type(one) is not int for one in whole) or any(
        type(one) not in (int, float) or abs(one) >= TOO_LARGE for one in numbers
    ):
        raise ValueError("a stage must have numbers")


def write_stages(path: pathlib.Path, settings: dict[str, Any], stages: list[dict[str, Any]]) -> None:
    """Writes sharpness.json: stages in order, the consensus model before the agents."""

    def order(entry: dict[str, Any]) -> tuple[int, int]:
        return entry["step"], -1 if entry["whose"] == "consensus" else entry["whose"]

    write_json(path, {**settings, "stages": sorted(stages, key=order)})
