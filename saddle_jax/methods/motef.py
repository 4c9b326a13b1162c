"""MoTEF (Islamov, Gao, Stich, "Near Optimal Decentralized Optimization with Compression and Momentum
Tracking", 2024): BEER that tracks a momentum instead of the gradient.

    M = (1 - lam) M + lam g                in the first step M = g

and the rest is BEER with M in place of g, see `saddle_jax.methods.beer`; lam = 1 is BEER. The authors' code
for networks starts M at zero: then the mean of V lacks the first gradient in all steps, and the method ends
far from the optimum. Here M starts at g, as in the paper. It sends two compressed messages per link and step.
W is doubly stochastic and the links are fixed. It is exact on heterogeneous data, also with top-k.
"""
# ruff: noqa: N803 (M is the paper's name)

from typing import Any

from saddle_jax.base import checks
from saddle_jax.base.types import About, Operator, Params, ScalarOrSchedule
from saddle_jax.core.method import Method, printed
from saddle_jax.core.network import Mixing
from saddle_jax.core.topology import Graphs
from saddle_jax.core.trees import tree_map
from saddle_jax.methods.beer import beer_rule

ABOUT = About("Islamov et al., 2024", exact=True, requires="fixed links")


@printed
def motef(
    topology: Graphs, learning_rate: ScalarOrSchedule, *,
    compressor: Operator | None = None, gamma: Any = 0.1, lam: Any = 0.9,
    weight_decay: Any = 1e-4, mixing: Mixing = "auto",
) -> Method:  # fmt: skip
    """Makes MoTEF: compressed gradient tracking of a momentum. The options are those of `sj.beer`, and `lam`.

    Args:
      lam: the share of the new gradient in the momentum, in (0, 1]; 1 is BEER.

    >>> method, x = sj.motef(sj.complete(2), 0.1, weight_decay=0.0), jnp.array([0.0, 2.0])
    >>> method.step(lambda x, d: x * d, x, method.init(x), jnp.array([10.0, 0.0]))[0]  # nothing is mixed yet
    Array([-1.,  2.], dtype=float32)
    """
    lam = checks.real("lam", lam, above=0.0, at_most=1.0)

    def estimate(g: Params, M: Params) -> Params:
        return tree_map(lambda g, M: (1 - lam) * M + lam * g, g, M)

    rule = beer_rule(topology, learning_rate, compressor, gamma, weight_decay, mixing, estimate)
    return Method("motef", topology, rule)
