"""Q-SADDLe and N-SADDLe in PyTorch on matrices [A, P], one row for each agent of the process.

With Nesterov momentum, coupled weight decay and gamma = 1, like `saddle_jax.q_saddle` and `n_saddle`. A
process has all agents or a single one; its `Gossip` is how agents communicate.
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)

from benchmarks.baselines.pytorch.models import Layout, Network, Tensor

# (model [P], images [B, C, H, W], labels [B]) -> loss
Loss: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]
# (models [A, P], images [A, B, C, H, W], labels [A, B]) -> gradients [A, P]
Gradients: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]

_NORM_FLOOR = 1e-12


def make_loss(network: Network, layout: Layout) -> Loss:
    """Returns the cross-entropy of a batch as a function of one model's parameter vector."""

    def loss(x: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(network(layout.tensors(x), images), labels)

    return loss


def gradient(loss: Loss, x: Tensor, images: Tensor, labels: Tensor) -> Tensor:
    """Computes the gradient [P] of one model by autograd."""
    x = x.detach().requires_grad_()
    (found,) = torch.autograd.grad(loss(x, images, labels), x)
    return found


def one_by_one(loss: Loss) -> Gradients:
    """Returns a function that computes every row's gradient on its own batch, one after another."""
    return lambda x, images, labels: torch.stack(
        [gradient(loss, *row) for row in zip(x, images, labels, strict=True)]
    )


def sharpness_aware(gradients: Gradients, rho: float) -> Gradients:
    """Returns grad F(x + rho g / ||g||), g = grad F(x): two backward passes on the same batch."""

    def run(x: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        g = gradients(x, images, labels)
        scale = rho / (torch.linalg.vector_norm(g, dim=1, keepdim=True) + _NORM_FLOOR)
        return gradients(torch.addcmul(x, g, scale), images, labels)

    return run


class Gossip(Protocol):
    """Communication between agents."""

    def mix(self, x: Tensor) -> Tensor:
        """Computes W x, models [A, P]."""

    def cross(self, gradients: Gradients, x: Tensor, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Averages each model's gradients on its neighbours' batches with W [A, P], and computes W x."""


class Step:
    """A step of a method, with models and momentum [A, P].

    Attributes:
      gradients: computes the gradients; it may be replaced between steps.
    """

    def __init__(
        self,
        gradients: Gradients,
        gossip: Gossip,
        models: Tensor,
        *,
        learning_rate: float,
        rho: float,
        beta: float = 0.9,
        weight_decay: float = 0.0,
    ):
        self.gradients, self.gossip, self.rho = gradients, gossip, rho
        self.models, self.momentum = models.clone(), torch.zeros_like(models)
        self.learning_rate, self.beta, self.weight_decay = learning_rate, beta, weight_decay


class QSaddle(Step):
    """The Q-SADDLe step: QGM with sharpness-aware gradients."""

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        """Takes one step on images [A, B, C, H, W] and returns the new models [A, P]."""
        x, beta = self.models, self.beta
        g = sharpness_aware(self.gradients, self.rho)(x, images, labels).add_(x, alpha=self.weight_decay)
        m = torch.add(g, self.momentum, alpha=beta)
        mixed = self.gossip.mix(torch.add(x, g.add_(m, alpha=beta), alpha=-self.learning_rate))
        d = x.sub_(mixed).div_(self.learning_rate)
        self.momentum.lerp_(d, 1 - beta)
        self.models = mixed
        return mixed


class NSaddle(Step):
    """The N-SADDLe step: NGM with sharpness-aware gradients of each pair of agents."""

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        """Takes one step on images [A, B, C, H, W] and returns the new models [A, P]."""
        x, beta = self.models, self.beta
        g, mixed = self.gossip.cross(sharpness_aware(self.gradients, self.rho), x, images, labels)
        self.momentum.mul_(beta).add_(g.add_(x, alpha=self.weight_decay))
        self.models = mixed.sub_(g.add_(self.momentum, alpha=beta), alpha=self.learning_rate)
        return self.models


METHODS: dict[str, type[QSaddle] | type[NSaddle]] = {"q_saddle": QSaddle, "n_saddle": NSaddle}
