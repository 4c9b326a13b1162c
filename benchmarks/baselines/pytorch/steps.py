"""A step of all agents in one PyTorch program: models are a matrix [A, P], one row per agent."""

import concurrent.futures
import dataclasses
import os
from typing import Any, Literal

import torch

from benchmarks.baselines.pytorch.layout import flatten, images_of, labels_of
from benchmarks.baselines.pytorch.methods import METHODS, Gradients, gradient, make_loss, one_by_one
from benchmarks.baselines.pytorch.models import NETWORKS, Layout, Tensor
from benchmarks.work import OPTIONS, Work
from saddle_jax.core.topology import Topology

Agents = Literal["loop", "threads", "vmap"]


@dataclasses.dataclass(frozen=True)
class Variant:
    """One of the ways to write the same step in PyTorch.

    Attributes:
      agents: "loop": one after another, each operation on all cores; "threads": one core per agent,
        as many agents at a time as there are cores; "vmap": `torch.func.vmap` over `torch.func.grad`.
      channels_last: the images' memory format.
      compiled: whether `torch.compile` compiles the loss with its gradient, or for vmap the gradients of all.
    """

    agents: Agents
    channels_last: bool
    compiled: bool = False

    def __str__(self) -> str:
        compiled = ", torch.compile" if self.compiled else ""
        return f"{self.agents}{', channels_last' if self.channels_last else ''}{compiled}"


VARIANTS = tuple(Variant(agents, last) for agents in ("loop", "threads", "vmap") for last in (False, True))


def variants(model: str) -> tuple[Variant, ...]:
    """Returns the variants that differ for a network: one without convolutions flattens its images."""
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
    """Returns a function that is compiled when it is called, as a whole and for these shapes, or fails.

    What was compiled before is forgotten: after a few programs of one function PyTorch would give up.
    """
    torch.compiler.reset()
    return torch.compile(function, fullgraph=True, dynamic=False)


class CannotCompileError(Exception):
    """PyTorch could not compile a step: it needs a C++ compiler, and not every program is one for it."""


def compiled_step(work: Work, variant: Variant) -> "TheirStep":
    """Makes a step that `torch.compile` compiles, and takes the first one, which compiles it.

    Raises:
      CannotCompileError: with PyTorch's own reason.
    """
    step = TheirStep(work, variant)
    try:
        step()
    except (torch._dynamo.exc.TorchDynamoException, torch._dynamo.exc.FailOnRecompileLimitHit) as error:
        reason = error.__cause__ or error
        raise CannotCompileError(f"{type(reason).__name__}: {reason}".splitlines()[0]) from error
    return step


class Table:
    """The gossip of agents that are all here, by the table of neighbours."""

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
        """Computes W's mean of each model's gradients on its neighbours' batches [A, P], and W x."""
        g = torch.zeros_like(x)
        for k in range(self.neighbours.shape[1]):
            senders = self.neighbours[:, k]
            g.addcmul_(gradients(x, images[senders], labels[senders]), self.weights[:, k : k + 1])
        return g, self.mix(x)


class TheirStep:
    """PyTorch's side of the same work; each call is one step further.

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
