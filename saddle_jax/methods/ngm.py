"""NGM (Aketi et al., 2023): descend along the neighbourhood's mean of cross-gradients. Algorithms 3 and 4.

With g_ij = grad F_j(x_i; d_j), the gradient of agent i's model on neighbour j's data:

    g_i = sum_j w_ij g_ij
    x   = x + gamma (W - I) x - eta d(g)       d: the local momentum

In each step a model goes over each link and a gradient returns. W is doubly stochastic and the graph
undirected. It is not exact on heterogeneous data.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import About, Operator, Params, ScalarOrSchedule, Tree
from saddle_jax.core import trees
from saddle_jax.core.gossip import check_compressor, check_rate, compress_stacked, note_compression
from saddle_jax.core.method import Method, printed
from saddle_jax.core.network import MIXINGS, Message, Mixing
from saddle_jax.core.optax import check_undirected, on_network
from saddle_jax.core.rule import Rule, Step
from saddle_jax.core.topology import Graphs
from saddle_jax.core.trees import tree_map
from saddle_jax.methods.momentum import check_decay, decayed, local_momentum

ABOUT = About("Aketi et al., 2023", requires="undirected")

SelfGradient = Literal["current", "mixed"]
SELF_GRADIENTS = ("current", "mixed")


class NGMState(NamedTuple):
    """State of NGM: the momentum and the errors of compression."""

    m: Any  # momentum [A, ...]; None without momentum
    error: Any  # e_ij, the error feedback of each pair [A, K, ...]; None without a compressor


@printed
def ngm(
    topology: Graphs, learning_rate: ScalarOrSchedule, *,
    beta: Any = 0.9, nesterov: bool = True, weight_decay: Any = 1e-4, self_gradient: SelfGradient = "current",
    gamma: Any = 1.0, compressor: Operator | None = None, mixing: Mixing = "auto",
) -> Method:  # fmt: skip
    """Makes NGM; with a compressor, Comp NGM: cross-gradients are compressed with error feedback.

    The options are those of `sj.dpsgd`, without `order`, and:

    Args:
      weight_decay: coupled L2, added to the mean gradient; it is never compressed.
      compressor: the operator Q on cross-gradients; models are sent as they are. With few bits use a
        contraction: `sj.sign()`, whose sign of zero is 1, or a biased quantizer.
      self_gradient: where self-gradient and weight decay are taken: at the "current" model, as
        printed, or at the "mixed" one x + gamma (W - I) x, as the code of NGM's authors does.

    >>> method, x = sj.ngm(sj.complete(2), 0.1, beta=0.0, weight_decay=0.0), jnp.array([0.0, 2.0])
    >>> method.step(lambda x, d: x * d, x, method.init(x), jnp.array([10.0, 0.0]))[0]  # 1 - 0.1 * 5
    Array([0.5, 0.5], dtype=float32)
    """
    check_undirected(topology)
    rate, weight_decay = checks.schedule(learning_rate), check_decay(weight_decay)
    gamma_at = check_rate(gamma, topology)
    momentum = local_momentum(beta, nesterov)
    checks.choice("self_gradient", self_gradient, SELF_GRADIENTS)
    checks.choice("mixing", mixing, MIXINGS)
    if compressor is not None:
        check_compressor(compressor)

    def init(x: Params) -> NGMState:
        return NGMState(momentum.init(x), None if compressor is None else _no_error(topology, x))

    def step(s: Step, x: Params, state: NGMState) -> tuple[Params, NGMState]:
        eta, error = rate(s.t), state.error
        # 3: the models are sent once, for the gossip (16 / 23) and for the cross-gradients.
        gamma_t, correction = gamma_at(s.t), s.network.correction(x, mixing=mixing)
        mixed = tree_map(lambda x, p: x + gamma_t * p, x, correction)
        own = mixed if self_gradient == "mixed" else None
        if compressor is None:
            g = s.cross_gradient_mean(x, own, sent=())  # 4 to 11
        else:
            pairs = s.cross_gradients(x, own, sent=())  # 4, 12
            delta, error = fed_back(s, compressor, pairs, error)  # 5 to 8, 13 to 16
            g = s.network.average(delta)  # 20
        g = decayed(g, x if own is None else own, weight_decay)
        direction, m = momentum.direction(g, state.m)  # 12 / 21
        new = tree_map(lambda mixed, d: mixed - eta * d, mixed, direction)  # 15, 16 / 22, 23
        return new, NGMState(m, error)

    return Method("ngm", topology, Rule(init, step, requires="doubly"))


def fed_back(s: Step, compressor: Operator, g: Params, error: Params) -> tuple[Params, Params]:
    """Compresses pairs [A, K, ...] with error feedback: delta = Q(g + e), and the new e = g + e - delta."""
    p = jax.tree.map(jnp.add, g, error)
    # A free slot holds no pair: nothing is sent, and its error stays zero.
    p = trees.scale_slices(p, s.network.occupied)
    if s.network.faults is not None and s.network.faults.loses:
        raise ArgumentError(
            f"faults must lose nothing for error feedback, which is kept per link, got {s.network.faults!r}"
        )
    if not s.network.topology.has_fixed_links:
        raise ArgumentError(
            "topology must have the same links in every step for error feedback, which is kept per link, "
            f"got {s.network.topology.name}"
        )
    delta = compress_stacked(compressor, p, s.network.key(), axes=2)
    s.network.returned(Message(delta, compressor))
    note_compression(s, "gradient_", p, delta, s.network.occupied)
    return delta, jax.tree.map(jnp.subtract, p, delta)


class NeighbourhoodMeanState(NamedTuple):
    """State of the neighbourhood's mean: the errors of compression."""

    error: Any  # e_ij, see `NGMState`


def neighbourhood_mean(
    topology: Graphs, compressor: Operator | None = None
) -> optax.GradientTransformationExtraArgs:
    """Makes a transform from cross-gradients [A, K, ...] to their weighted mean [A, ...].

    With a compressor there is error feedback, where e_ij starts at zero (lines 5 to 8, 13 to 16 and 20 of
    Comp NGM):

        p_ij = g_ij + e_ij,   delta_ij = Q(p_ij),   e_ij = p_ij - delta_ij,   g_i = sum_j w_ij delta_ij

    The self-gradient, pair ii, is compressed like the others, as printed.

    Args:
      topology: the communication graph.
      compressor: the operator Q; None averages the gradients as they are. If it draws random numbers, the
        transform's update takes `key=` outside of a method.

    >>> mean = sj.neighbourhood_mean(sj.complete(2))
    >>> mean.update(jnp.array([[1.0, 3.0], [2.0, 4.0]]), mean.init(jnp.zeros(2)))[0]
    Array([2., 3.], dtype=float32)
    """
    check_undirected(topology)
    if compressor is not None:
        check_compressor(compressor)

    def init(x: Params) -> NeighbourhoodMeanState:
        return NeighbourhoodMeanState(None if compressor is None else _no_error(topology, x))

    def update(
        s: Step, pairs: Params, state: NeighbourhoodMeanState, params: Params | None
    ) -> tuple[Params, NeighbourhoodMeanState]:
        del params
        _check_pairs(pairs, s.network.topology.size, s.network.width)
        error = state.error
        if compressor is not None:
            pairs, error = fed_back(s, compressor, pairs, error)
        return s.network.average(pairs), NeighbourhoodMeanState(error)

    return on_network(topology, init, update, pairs=compressor is not None)


def _no_error(topology: Graphs, x: Params) -> Params:
    return trees.zeros_of_pairs(x, topology.slots)


def _check_pairs(updates: Tree, size: int, width: int) -> None:
    for path, leaf in jax.tree.leaves_with_path(updates):
        if leaf.shape[:2] != (size, width):
            raise ArgumentError(
                f"updates{jax.tree_util.keystr(path)} must be gradients of pairs "
                f"[A, K, ...] = [{size}, {width}, ...], got shape {leaf.shape}"
            )
