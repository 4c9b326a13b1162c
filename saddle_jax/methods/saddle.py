"""SADDLe: any decentralized method with sharpness-aware gradients. The whole paper on one page.

    D-SADDLe = D-PSGD + SAM      Q-SADDLe = QGM + SAM      N-SADDLe = NGM + SAM

and `compressor=` turns each of the six into its Comp version.
"""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import About, ScalarOrSchedule
from saddle_jax.core.gradients import GradientEstimator, plain_gradient
from saddle_jax.core.method import Method, printed
from saddle_jax.core.topology import Graphs
from saddle_jax.methods.dpsgd import dpsgd
from saddle_jax.methods.ngm import ngm
from saddle_jax.methods.qgm import qgm
from saddle_jax.sam.sam import sam

ABOUT = About("Choudhary et al., WACV 2025")


@printed
def saddle(
    method: Method, gradient: GradientEstimator[Any] | float = 0.05, *, name: str | None = None
) -> Method:
    """Makes the SADDLe version of a method: the same rule with sharpness-aware gradients.

    Args:
      method: any method with plain gradients, the paper's or your own.
      gradient: a gradient estimator, such as `sj.sam(0.05, every=5)`; a number rho >= 0 means `sj.sam(rho)`,
        0 is the plain gradient; the default is that of `sj.sam`.
      name: the new method's name (default: the method's name and "+saddle").

    >>> sj.saddle(sj.qgm(sj.ring(10), 0.1), 0.05).name
    'qgm+saddle'
    """
    checks.instance("method", method, Method, "sj.qgm(topology, 0.1)")
    if has_estimator(method):
        raise ArgumentError(
            f"method must be one with plain gradients, such as sj.qgm(topology, 0.1), to which an estimator "
            f"is given once, got {method.name} with {method.gradient}"
        )
    gradient = gradient if isinstance(gradient, GradientEstimator) else sam(gradient)
    return dataclasses.replace(method, gradient=gradient, name=name or f"{method.name}+saddle")


def has_estimator(method: Method) -> bool:
    """Returns whether a method has an estimator other than the plain gradient."""
    return method.gradient.name != plain_gradient().name


def _saddle_version(base: Callable[..., Method], name: str, about: str) -> Callable[..., Method]:
    """Makes a factory (topology, learning_rate, rho, ...) with the base method's options in its signature."""

    def factory(
        topology: Graphs,
        learning_rate: ScalarOrSchedule,
        rho: Any = 0.05,
        *,
        ascent_every: int = 1,
        ascent_reuse: bool = False,
        **options: Any,
    ) -> Method:
        checks.whole("ascent_every", ascent_every, at_least=1)
        return saddle(
            base(topology, learning_rate, **options), sam(rho, ascent_every, ascent_reuse), name=name
        )

    own = list(inspect.signature(factory).parameters.values())[:-1]
    own_names = {parameter.name for parameter in own}
    inherited = [p for p in inspect.signature(base).parameters.values() if p.name not in own_names]
    factory.__name__ = factory.__qualname__ = name
    factory.__wrapped__ = base  # type: ignore[attr-defined]  # inspect.unwrap finds the method within
    factory.__signature__ = inspect.Signature([*own, *inherited], return_annotation=Method)  # type: ignore[attr-defined]
    factory.__doc__ = (
        f"Makes {about}: `sj.saddle` of `sj.{base.__name__}`, whose other options it takes.\n\n"
        "    Args:\n"
        "      rho: radius of SAM's perturbation, >= 0; 0 is the plain gradient.\n"
        "      ascent_every: perturb in every N-th step only, `every` of `sj.sam`.\n"
        "      ascent_reuse: perturb with the last perturbation in between, `reuse` of `sj.sam`.\n\n"
        f"    >>> sj.{name}(sj.ring(10), 0.1).gradient\n    sam(rho=0.05)\n    "
    )
    return printed(factory)


d_saddle = _saddle_version(dpsgd, "d_saddle", "D-SADDLe, the paper's Algorithm 5")
q_saddle = _saddle_version(qgm, "q_saddle", "Q-SADDLe, the paper's Algorithms 1 and 2")
n_saddle = _saddle_version(ngm, "n_saddle", "N-SADDLe, the paper's Algorithms 3 and 4")
