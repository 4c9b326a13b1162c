"""Momentum that each agent keeps to itself."""

from typing import Any

import optax

from saddle_jax import checks


def local_momentum(beta: Any, nesterov: bool) -> optax.GradientTransformation:
    """m = beta m + g; direction m (heavy ball) or g + beta m (Nesterov). beta = 0 keeps no state."""
    beta = checks.real("beta", beta, at_least=0.0, below=1.0)
    if isinstance(beta, float) and beta == 0.0:
        return optax.identity()
    return optax.trace(beta, nesterov)
