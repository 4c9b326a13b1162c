"""Q-SADDLe and N-SADDLe of all agents in PyTorch: matrices [A, P], one row per agent.

With Nesterov momentum, coupled weight decay and gamma = 1, as `saddle_jax.q_saddle` and `n_saddle`.
"""

import concurrent.futures
import dataclasses
import os
from collections.abc import Callable
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)

from saddle_jax.bench.opponent.layout import Layout, flatten, images_of, labels_of
from saddle_jax.bench.opponent.models import NETWORKS, Network, Tensor
from saddle_jax.bench.work import OPTIONS, Work
from saddle_jax.core.topology import Topology

# (models [A, P], images [A, B, C, H, W], labels [A, B]) -> gradients [A, P]
Gradients: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]
Agents = Literal["loop", "threads", "vmap"]

_NORM_FLOOR = 1e-12


@dataclasses.dataclass(frozen=True)
class Variant:
    """One of the ways to write the same step in PyTorch.

    Attributes:
      agents: "loop": one after another, each operation on all cores; "threads": one core per agent,
        as many agents at a time as there are cores; "vmap": `torch.func.vmap` over `torch.func.grad`.
      channels_last: the images' memory format.
    """

    agents: Agents
    channels_last: bool

    def __str__(self) -> str:
        return f"{self.agents}{', channels_last' if self.channels_last else ''}"


VARIANTS = tuple(Variant(agents, last) for agents in ("loop", "threads", "vmap") for last in (False, True))


def variants(model: str) -> tuple[Variant, ...]:
    """Returns the variants that differ for a network: one without convolutions flattens its images."""
    return tuple(variant for variant in VARIANTS if model != "mlp" or not variant.channels_last)


def make_gradients(model: str, layout: Layout, variant: Variant) -> Gradients:
    """Returns a function that computes every row's gradient of the cross-entropy on its own batch."""
    network = NETWORKS[model]
    if variant.agents == "vmap":

        def loss(x: Tensor, images: Tensor, labels: Tensor) -> Tensor:
            return F.cross_entropy(network(layout.tensors(x), images), labels)

        return torch.func.vmap(torch.func.grad(loss))
    if variant.agents == "loop":
        return lambda x, images, labels: torch.stack(
            [_gradient(network, layout, *row) for row in zip(x, images, labels, strict=True)]
        )

    cores = os.cpu_count() or 1
    pool = concurrent.futures.ThreadPoolExecutor(cores, initializer=torch.set_num_threads, initargs=(1,))

    def threaded(x: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        rows = pool.map(lambda row: _gradient(network, layout, *row), zip(x, images, labels, strict=True))
        return torch.stack(list(rows))

    return threaded


def _gradient(network: Network, layout: Layout, x: Tensor, images: Tensor, labels: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(F.cross_entropy(network(layout.tensors(x), images), labels), x)
    return gradient


def sharpness_aware(gradients: Gradients, rho: float) -> Gradients:
    """Returns grad F(x + rho g / ||g||), g = grad F(x): two backward passes on the same batch."""

    def run(x: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        g = gradients(x, images, labels)
        scale = rho / (torch.linalg.vector_norm(g, dim=1, keepdim=True) + _NORM_FLOOR)
        return gradients(torch.addcmul(x, g, scale), images, labels)

    return run


class Step:
    """Models and momentum [A, P], and how a step changes them."""

    def __init__(
        self,
        gradients: Gradients,
        topology: Topology,
        models: Tensor,
        *,
        learning_rate: float,
        rho: float,
        beta: float = 0.9,
        weight_decay: float = 0.0,
    ):
        self.gradients = sharpness_aware(gradients, rho)
        self.neighbours = torch.from_numpy(topology.neighbours.copy())
        self.weights = torch.from_numpy(topology.weights.copy()).to(models.dtype)
        self.models, self.momentum = models.clone(), torch.zeros_like(models)
        self.learning_rate, self.beta, self.weight_decay = learning_rate, beta, weight_decay

    def mix(self, x: Tensor) -> Tensor:
        """Computes W x by the table of neighbours."""
        mixed = x * self.weights[:, :1]
        for k in range(1, self.neighbours.shape[1]):
            mixed.addcmul_(x[self.neighbours[:, k]], self.weights[:, k : k + 1])
        return mixed


class QSaddle(Step):
    """The Q-SADDLe step: QGM with sharpness-aware gradients."""

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        """Takes one step on images [A, B, C, H, W] and returns the new models [A, P]."""
        x, beta = self.models, self.beta
        g = self.gradients(x, images, labels).add_(x, alpha=self.weight_decay)
        m = torch.add(g, self.momentum, alpha=beta)
        mixed = self.mix(torch.add(x, g.add_(m, alpha=beta), alpha=-self.learning_rate))
        d = x.sub_(mixed).div_(self.learning_rate)
        self.momentum.lerp_(d, 1 - beta)
        self.models = mixed
        return mixed


class NSaddle(Step):
    """The N-SADDLe step: NGM with sharpness-aware gradients, each pair of agents with its own ascent."""

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        """Takes one step on images [A, B, C, H, W] and returns the new models [A, P]."""
        x, beta = self.models, self.beta
        g = x * self.weight_decay
        for k in range(self.neighbours.shape[1]):
            senders = self.neighbours[:, k]
            g.addcmul_(self.gradients(x, images[senders], labels[senders]), self.weights[:, k : k + 1])
        self.momentum.mul_(beta).add_(g)
        self.models = self.mix(x).sub_(g.add_(self.momentum, alpha=beta), alpha=self.learning_rate)
        return self.models


METHODS: dict[str, type[QSaddle] | type[NSaddle]] = {"q_saddle": QSaddle, "n_saddle": NSaddle}


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
        self._step = METHODS[work.method](gradients, work.topology, models, **OPTIONS)

    def __call__(self) -> Tensor:
        """Takes one step and returns the models [A, P]."""
        return self._step(self._images, self._labels)
