"""A step of all agents in one PyTorch program: models are a matrix [A, P], one row per agent."""

import concurrent.futures
import dataclasses
import math
import os
from collections.abc import Sequence
from typing import Any, Literal

import jax
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)

from benchmarks.baselines.pytorch.methods import METHODS, Gradients, gradient, make_loss, one_by_one
from benchmarks.baselines.pytorch.models import NETWORKS, Layout, Tensor
from benchmarks.work import OPTIONS, Work
from saddle_jax.base.types import Params
from saddle_jax.core.topology import Topology
from saddle_jax.data.recipes import Recipe

# ---- conversion to PyTorch's layout: a flat vector per agent, images [..., C, H, W] ----


def flatten(params: Params, image_shape: Sequence[int]) -> tuple[Layout, Tensor]:
    """Converts stacked flax parameters [A, ...] to one matrix [A, P]; returns it with its layout.

    Args:
      params: a tree of flax parameters with a leading axis A.
      image_shape: (height, width, channels) of the images that the model sees.
    """
    names, shapes, columns = [], [], []
    for path, leaf in jax.tree.leaves_with_path(params):
        name = "/".join(key.key for key in path)
        array = _kernel(np.asarray(leaf), name, image_shape)
        names.append(name)
        shapes.append(array.shape[1:])
        columns.append(array.reshape(len(array), -1))
    matrix = np.ascontiguousarray(np.concatenate(columns, axis=1))
    return Layout(tuple(names), tuple(shapes)), torch.from_numpy(matrix)


def images_of(images: np.ndarray, channels_last: bool) -> Tensor:
    """Converts images [A, B, H, W, C] to [A, B, C, H, W], channels last in memory or not."""
    channels_first = torch.from_numpy(images).permute(0, 1, 4, 2, 3)
    return channels_first if channels_last else channels_first.contiguous()


def labels_of(labels: np.ndarray) -> Tensor:
    """Converts labels to the integers that PyTorch's losses take."""
    return torch.from_numpy(labels).long()


def _kernel(leaf: np.ndarray, name: str, image_shape: Sequence[int]) -> np.ndarray:
    """Converts [A, h, w, C, D] to [A, D, C, h, w] and [A, C, D] to [A, D, C]; leaves vectors alone."""
    if leaf.ndim == 5:
        return leaf.transpose(0, 4, 3, 1, 2)
    if leaf.ndim == 3:
        if name == "hidden1/kernel":  # flattened images: [H, W, C] in JAX, [C, H, W] in PyTorch
            leaf = leaf.reshape(len(leaf), *image_shape, -1).transpose(0, 3, 1, 2, 4)
            leaf = leaf.reshape(len(leaf), math.prod(image_shape), -1)
        return leaf.transpose(0, 2, 1)
    return leaf


@torch.inference_mode()
def evaluate(
    model: str,
    layout: Layout,
    models: Tensor,
    images: Tensor,
    labels: Tensor,
    recipe: Recipe,
    batch_size: int = 500,
) -> dict[str, float]:
    """Computes accuracy and mean loss of the average of models [A, P] on uint8 images [N, C, H, W]."""
    parameters = layout.tensors(models.mean(0))
    mean, std = (torch.tensor(values)[:, None, None] for values in (recipe.mean, recipe.std))
    hits, loss = 0, 0.0
    for chunk, chunk_labels in zip(images.split(batch_size), labels.split(batch_size), strict=True):
        logits = NETWORKS[model](parameters, (chunk / 255 - mean) / std)
        hits += int((logits.argmax(1) == chunk_labels).sum())
        loss += float(F.cross_entropy(logits, chunk_labels, reduction="sum"))
    return {"accuracy": hits / len(labels), "loss": loss / len(labels)}


Agents = Literal["loop", "threads", "vmap"]


@dataclasses.dataclass(frozen=True)
class Variant:
    """A variant of the same step in PyTorch.

    Attributes:
      agents: "loop": one after another, each operation on all cores; "threads": one core per agent, as many
        agents at a time as there are cores; "vmap": `torch.func.vmap` over `torch.func.grad`.
      channels_last: the images' memory format.
      compiled: whether `torch.compile` compiles the gradient of one agent, or with vmap that of all agents.
    """

    agents: Agents
    channels_last: bool
    compiled: bool = False

    def __str__(self) -> str:
        compiled = ", torch.compile" if self.compiled else ""
        return f"{self.agents}{', channels_last' if self.channels_last else ''}{compiled}"


VARIANTS = tuple(Variant(agents, last) for agents in ("loop", "threads", "vmap") for last in (False, True))


def variants(model: str) -> tuple[Variant, ...]:
    """Returns the variants for a model; without convolutions the memory format does not matter."""
    return tuple(variant for variant in VARIANTS if model != "mlp" or not variant.channels_last)


def make_gradients(model: str, layout: Layout, variant: Variant) -> Gradients:
    """Returns a function that computes every row's gradient of the cross-entropy on its own batch."""
    loss = make_loss(NETWORKS[model], layout)
    if variant.agents == "vmap":
        gradients = torch.func.vmap(torch.func.grad(loss))
        return _compiled(gradients) if variant.compiled else gradients
    loss = _compiled(loss) if variant.compiled else loss
    if variant.agents == "loop":
        return one_by_one(loss)

    cores = os.cpu_count() or 1
    pool = concurrent.futures.ThreadPoolExecutor(cores, initializer=torch.set_num_threads, initargs=(1,))

    def threaded(x: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        rows = pool.map(lambda row: gradient(loss, *row), zip(x, images, labels, strict=True))
        return torch.stack(list(rows))

    return threaded


def _compiled(function: Any) -> Any:
    """Compiles a function at its first call, as one graph with static shapes, or fails.

    It clears PyTorch's cache, since PyTorch limits the number of compilations per function.
    """
    torch.compiler.reset()
    return torch.compile(function, fullgraph=True, dynamic=False)


class CannotCompileError(Exception):
    """PyTorch could not compile a step: there is no C++ compiler, or the step is not supported."""


def compiled_step(work: Work, variant: Variant) -> "PyTorchStep":
    """Makes a step with `torch.compile`, and takes the first one, which compiles it.

    Raises:
      CannotCompileError: with PyTorch's own reason.
    """
    step = PyTorchStep(work, variant)
    try:
        step()
    except (torch._dynamo.exc.TorchDynamoException, torch._dynamo.exc.FailOnRecompileLimitHit) as error:
        reason = error.__cause__ or error
        raise CannotCompileError(f"{type(reason).__name__}: {reason}".splitlines()[0]) from error
    return step


class Table:
    """Gossip in one process, by the table of neighbours."""

    def __init__(self, topology: Topology):
        self.neighbours = torch.from_numpy(topology.neighbours.copy())
        self.weights = torch.from_numpy(topology.weights.copy()).float()

    def mix(self, x: Tensor) -> Tensor:
        """Computes W x, models [A, P]."""
        mixed = x * self.weights[:, :1]
        for k in range(1, self.neighbours.shape[1]):
            mixed.addcmul_(x[self.neighbours[:, k]], self.weights[:, k : k + 1])
        return mixed

    def cross(self, gradients: Gradients, x: Tensor, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Averages each model's gradients on its neighbours' batches with W [A, P], and computes W x."""
        g = torch.zeros_like(x)
        for k in range(self.neighbours.shape[1]):
            senders = self.neighbours[:, k]
            g.addcmul_(gradients(x, images[senders], labels[senders]), self.weights[:, k : k + 1])
        return g, self.mix(x)


class PyTorchStep:
    """The PyTorch step of a workload; each call takes one step.

    Attributes:
      layout: where each tensor lies in a row of `models`.
    """

    def __init__(self, work: Work, variant: Variant):
        batch = work.batch()
        self.layout, models = flatten(work.params(), work.image_shape)
        self._images = images_of(batch["inputs"], variant.channels_last)
        self._labels = labels_of(batch["targets"])
        gradients = make_gradients(work.model, self.layout, variant)
        self._step = METHODS[work.method](gradients, Table(work.topology), models, **OPTIONS)

    def __call__(self) -> Tensor:
        """Takes one step and returns the models [A, P]."""
        return self._step(self._images, self._labels)
