"""Local momentum and coupled weight decay, which many methods share."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from saddle_jax.base import checks
from saddle_jax.base.types import Params
from saddle_jax.core.trees import tree_map, zeros_like


class Momentum(NamedTuple):
    """Momentum m = beta m + g, with direction m (heavy ball) or g + beta m (Nesterov).

    With beta = 0 there is no state.
    """

    beta: Any
    nesterov: bool

    @property
    def is_none(self) -> bool:
        """Whether beta is zero, so that the direction is the gradient; False if beta is traced."""
        return isinstance(self.beta, float) and self.beta == 0.0

    def init(self, x: Params) -> Params | None:
        """Returns the initial momentum m, zeros [A, ...]; None without momentum."""
        return None if self.is_none else zeros_like(x)

    def direction(self, g: Params, m: Params | None) -> tuple[Params, Params | None]:
        """Returns the direction to descend along and the new m, both [A, ...]."""
        if self.is_none:
            return g, None
        m = tree_map(lambda g, m: self.beta * m + g, g, m)
        return tree_map(lambda g, m: g + self.beta * m, g, m) if self.nesterov else m, m


def local_momentum(beta: Any, nesterov: bool) -> Momentum:
    """Makes the momentum after checking its coefficient."""
    return Momentum(checks.real("beta", beta, at_least=0.0, below=1.0), nesterov)


def decayed(g: Params, x: Params, weight_decay: Any) -> Params:
    """Returns g + weight_decay x, coupled L2 taken at x, leaves [A, ...]."""
    if isinstance(weight_decay, float) and weight_decay == 0.0:
        return g
    return tree_map(lambda g, x: g + weight_decay * x, g, x)


def inverse(eta: Any) -> Any:
    """Returns 1 / eta, or 0 if that is not finite: schedules may begin and end at a learning rate of zero."""
    stands = jnp.abs(eta) < np.finfo(jnp.result_type(eta)).tiny
    return jnp.where(stands, 0.0, 1.0 / jnp.where(stands, 1.0, eta))


def check_decay(weight_decay: Any) -> Any:
    """Checks a coefficient of weight decay and returns it."""
    return checks.real("weight_decay", weight_decay, at_least=0.0)
