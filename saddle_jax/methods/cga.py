"""CGA (Esfandiari et al., "Cross-Gradient Aggregation for Decentralized Learning from Non-IID Data", ICML
2021): a quadratic program weighs the cross-gradients that NGM averages.

For each tensor of agent i, with the rows M_j = w_ij g_ij of its neighbours and its own g = w_ii g_ii:

    v = argmin 1/2 v'(M M' + 1e-12 I) v + (M g)'v   subject to   v >= margin
    g_agg = g + M'v
    x = x + gamma (W - I) x - eta d(g_agg)             d: the local momentum

The paper's program has margin 0, the authors' code 0.5; v = 1 is NGM. With a compressor it is CompCGA: the
cross-gradients are compressed with error feedback before the program, as in Comp NGM. In each step a model
goes over each link and a gradient returns. W is doubly stochastic and the graph undirected. It is not exact
on heterogeneous data.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import About, Array, Operator, Params, ScalarOrSchedule
from saddle_jax.core import trees
from saddle_jax.core.gossip import check_optional_compressor, check_rate
from saddle_jax.core.method import Method, printed
from saddle_jax.core.network import MIXINGS, Mixing
from saddle_jax.core.optax import check_undirected
from saddle_jax.core.rule import Rule, Step
from saddle_jax.core.topology import Graphs
from saddle_jax.core.trees import tree_map
from saddle_jax.devices.lifting import on_shards
from saddle_jax.methods import cga_program
from saddle_jax.methods.momentum import check_decay, decayed, local_momentum
from saddle_jax.methods.ngm import SELF_GRADIENTS, SelfGradient, fed_back

ABOUT = About("Esfandiari et al., ICML 2021", requires="undirected")

_RIDGE = 1e-12  # makes the solution unique if rows are linearly dependent


class CGAState(NamedTuple):
    """State of CGA: the momentum and the errors of compression."""

    m: Any  # momentum [A, ...]; None without momentum
    error: Any  # e_ij, the error feedback of each pair [A, K, ...]; None without a compressor


@printed
def cga(
    topology: Graphs, learning_rate: ScalarOrSchedule, *,
    beta: Any = 0.9, nesterov: bool = True, weight_decay: Any = 1e-4, margin: Any = 0.5,
    self_gradient: SelfGradient = "current", gamma: Any = 1.0, compressor: Operator | None = None,
    mixing: Mixing = "auto",
) -> Method:  # fmt: skip
    """Makes CGA; with a compressor, CompCGA. The options are those of `sj.ngm`, and `margin`.

    Args:
      weight_decay: coupled L2, added to the aggregated gradient.
      margin: the least weight v >= 0 of a neighbour's gradient beside w_ij; 0.5 in the authors' code, 0 in
        the paper.
      self_gradient: as of `sj.ngm`: at the "current" model or at the "mixed" one.
      compressor: the operator Q on cross-gradients, `sj.sign()` in CompCGA; models are sent as they are.

    >>> method, x = sj.cga(sj.complete(2), 0.1, beta=0.0, weight_decay=0.0), jnp.array([0.0, 2.0])
    >>> method.step(lambda x, d: x * d, x, method.init(x), jnp.array([10.0, -5.0]))[0]  # 1 - 0.1 * 0
    Array([1., 1.], dtype=float32)
    """
    check_undirected(topology)
    _check_degree(topology)
    rate, weight_decay = checks.schedule(learning_rate), check_decay(weight_decay)
    gamma_at = check_rate(gamma, topology)
    momentum, margin = local_momentum(beta, nesterov), checks.real("margin", margin, at_least=0.0)
    checks.choice("self_gradient", self_gradient, SELF_GRADIENTS)
    checks.choice("mixing", mixing, MIXINGS)
    check_optional_compressor(compressor)

    def init(x: Params) -> CGAState:
        error = None if compressor is None else trees.zeros_of_pairs(x, topology.slots)
        return CGAState(momentum.init(x), error)

    def step(s: Step, x: Params, state: CGAState) -> tuple[Params, CGAState]:
        eta, error = rate(s.t), state.error
        # The models are sent once, for the gossip and for the cross-gradients.
        gamma_t, correction = gamma_at(s.t), s.network.correction(x, mixing=mixing)
        mixed = tree_map(lambda x, p: x + gamma_t * p, x, correction)
        own = mixed if self_gradient == "mixed" else None
        pairs = s.cross_gradients(x, own, sent=())
        if compressor is not None:
            pairs, error = fed_back(s, compressor, pairs, error)
        g = aggregated(trees.scale_slices(pairs, s.network.weights), margin)
        g = decayed(g, x if own is None else own, weight_decay)
        direction, m = momentum.direction(g, state.m)
        return tree_map(lambda mixed, d: mixed - eta * d, mixed, direction), CGAState(m, error)

    return Method("cga", topology, Rule(init, step, requires="doubly"))


def aggregated(rows: Params, margin: Any) -> Params:
    """Returns g + M'v, [A, ...], from weighted gradients w_ij g_ij [A, K, ...]; slot 0 is the agent's g."""

    def of_a_tensor(rows: Array) -> Array:
        wide = rows.reshape(*rows.shape[:2], -1).astype(jnp.promote_types(rows.dtype, jnp.float32))
        products = jnp.einsum("akd,ald->akl", wide, wide, precision="highest")
        # The row of a free slot is zero: it changes neither the program nor the sum.
        gram = products[:, 1:, 1:] + _RIDGE * jnp.eye(rows.shape[1] - 1, dtype=wide.dtype)[None]
        v = cga_program.solve(gram, products[:, 1:, 0], margin)
        g = wide[:, 0] + jnp.einsum("ak,akd->ad", v, wide[:, 1:], precision="highest")
        return g.reshape(rows.shape[:1] + rows.shape[2:]).astype(rows.dtype)

    return on_shards(lambda rows: jax.tree.map(of_a_tensor, rows))(rows)


def _check_degree(topology: Graphs) -> None:
    if (others := topology.slots - 1) > cga_program.MOST_UNKNOWNS:
        raise ArgumentError(
            f"topology must give each agent at most {cga_program.MOST_UNKNOWNS} neighbours for cga, whose "
            f"program tries every set of them, got {topology.name} with {others}"
        )
