"""SADDLe: any method, fed with sharpness-aware gradients. The whole paper on one page.

    D-SADDLe = D-PSGD + SAM      Q-SADDLe = QGM + SAM      N-SADDLe = NGM + SAM

and `compressor=` turns each of the six into its Comp version.
"""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from saddle_jax import checks
from saddle_jax.methods.dpsgd import dpsgd
from saddle_jax.methods.method import Method
from saddle_jax.methods.ngm import ngm
from saddle_jax.methods.qgm import qgm
from saddle_jax.sam import Ascent
from saddle_jax.topology import Topology
from saddle_jax.types import ScalarOrSchedule

_Factory = TypeVar("_Factory", bound=Callable[..., Method])


def saddle(
    method: Method,
    rho: Any,
    *,
    ascent_every: int = 1,
    ascent_reuse: bool = False,
    name: str | None = None,
) -> Method:
    """The SADDLe version of a method: same direction and gossip, sharpness-aware gradients.

    Args:
      method: any method, the paper's or your own.
      rho: SAM's radius, >= 0; 0 gives the method back.
      ascent_every: climb at each `ascent_every`-th step only; 5 is the paper's compute-efficient
        variant, which costs 6 backward passes in 5 steps instead of 10.
      ascent_reuse: in the steps between, False takes the plain gradient (the paper's one sentence
        on it names no reuse), True perturbs with the last perturbation again.
      name: what to call it.
    """
    checks.instance("method", method, Method, "sj.qgm(topology, 0.1)")
    ascent = Ascent(rho, ascent_every, ascent_reuse)
    stage = dataclasses.replace(method.gradients, ascent=ascent)
    return dataclasses.replace(method, gradients=stage, name=name or f"{method.name}+saddle")


def _with_options_of(base: Callable[..., Method]) -> Callable[[_Factory], _Factory]:
    """Shows the base method's options in the signature, in place of **options: for help and tools."""

    def decorate(factory: _Factory) -> _Factory:
        own = list(inspect.signature(factory).parameters.values())[:-1]
        known = {parameter.name for parameter in own}
        inherited = inspect.signature(base).parameters.values()
        merged = own + [parameter for parameter in inherited if parameter.name not in known]
        factory.__signature__ = inspect.Signature(merged, return_annotation=Method)  # type: ignore[attr-defined]
        return factory

    return decorate


@_with_options_of(dpsgd)
def d_saddle(
    topology: Topology,
    learning_rate: ScalarOrSchedule,
    rho: Any,
    *,
    ascent_every: int = 1,
    ascent_reuse: bool = False,
    **options: Any,
) -> Method:
    """D-SADDLe, the paper's Algorithm 5: `saddle` of `dpsgd`, whose other options it takes."""
    base = dpsgd(topology, learning_rate, **options)
    return saddle(base, rho, ascent_every=ascent_every, ascent_reuse=ascent_reuse, name="d_saddle")


@_with_options_of(qgm)
def q_saddle(
    topology: Topology,
    learning_rate: ScalarOrSchedule,
    rho: Any,
    *,
    ascent_every: int = 1,
    ascent_reuse: bool = False,
    **options: Any,
) -> Method:
    """Q-SADDLe, the paper's Algorithms 1 and 2: `saddle` of `qgm`, whose other options it takes."""
    base = qgm(topology, learning_rate, **options)
    return saddle(base, rho, ascent_every=ascent_every, ascent_reuse=ascent_reuse, name="q_saddle")


@_with_options_of(ngm)
def n_saddle(
    topology: Topology,
    learning_rate: ScalarOrSchedule,
    rho: Any,
    *,
    ascent_every: int = 1,
    ascent_reuse: bool = False,
    **options: Any,
) -> Method:
    """N-SADDLe, the paper's Algorithms 3 and 4: `saddle` of `ngm`, whose other options it takes."""
    base = ngm(topology, learning_rate, **options)
    return saddle(base, rho, ascent_every=ascent_every, ascent_reuse=ascent_reuse, name="n_saddle")


# Every method of the paper by name.
METHODS: dict[str, Callable[..., Method]] = {
    "dpsgd": dpsgd,
    "d_saddle": d_saddle,
    "qgm": qgm,
    "q_saddle": q_saddle,
    "ngm": ngm,
    "n_saddle": n_saddle,
}
