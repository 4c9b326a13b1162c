"""NGM (Aketi et al., 2023): descend along the neighbourhood's mean of cross-gradients. Algorithms 3 and 4."""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from saddle_jax import checks, trees
from saddle_jax.choco import check_compressor, note_compression, stream
from saddle_jax.compression import Compressor, compress_stacked, identity
from saddle_jax.gradients import CrossGradients, check_undirected
from saddle_jax.methods.method import Method
from saddle_jax.methods.momentum import local_momentum
from saddle_jax.mixing import Form, add_gossip, check_gossip, disagreement, gossip
from saddle_jax.topology import Topology
from saddle_jax.types import Key, Metrics, Params, ScalarOrSchedule

SelfGradient = Literal["current", "mixed"]
SELF_GRADIENTS = ("current", "mixed")
_STREAM = 2  # of random numbers, see `choco.stream`


class NeighbourhoodMeanState(NamedTuple):
    """State of `neighbourhood_mean`."""

    error: Params  # e_ij, what compression has held back of each pair [A, K, ...]; None without it


def neighbourhood_mean(
    topology: Topology, compressor: Compressor | None = None
) -> optax.GradientTransformationExtraArgs:
    """Pairs of gradients [A, K, ...] to their weighted mean [A, ...], compressed with error feedback.

    For each pair, with e_ij starting at zero (lines 5 to 8, 13 to 16 and 20 of Comp NGM):

        p_ij = g_ij + e_ij,   delta_ij = Q(p_ij),   e_ij = p_ij - delta_ij,   g_i = sum_j w_ij delta_ij

    The self-gradient, pair ii, is compressed like the others, as printed.

    Args:
      topology: who hears whom.
      compressor: the operator Q; None averages the gradients as they are.

    Returns:
      A transform. Its update takes `key=` when the compressor draws random numbers, and notes
      gradient_compression_error = ||Q(p) - p|| and gradient_compression_input = ||p||, each [A, K]
      with zeros in the free slots of an irregular graph, in `metrics=` when given, and the same and
      zeta for each tensor, see `choco.note_compression`.
    """
    check_undirected(topology)
    if compressor is not None:
        check_compressor(compressor)
    width = topology.neighbours.shape[1]

    def init_fn(params: Params) -> NeighbourhoodMeanState:
        trees.check_params(params, topology.size)
        return NeighbourhoodMeanState(None if compressor is None else trees.zeros_of_pairs(params, width))

    def update_fn(
        updates,
        state,
        params=None,
        *,
        key: Key | None = None,
        metrics: Metrics | None = None,
        **extra_args,
    ):
        del params, extra_args
        _check_pairs(updates, topology.size, width)
        error = state.error
        if compressor is not None:
            p = jax.tree.map(jnp.add, updates, error)
            # A free slot holds no pair: nothing is sent there and nothing is remembered.
            p = trees.scale_slices(p, jnp.asarray(topology.occupied))
            updates = compress_stacked(compressor, p, stream(key, _STREAM), axes=2)
            error = jax.tree.map(jnp.subtract, p, updates)
            note_compression(metrics, "gradient_", p, updates, topology.occupied)
        weighted = trees.scale_slices(updates, jnp.asarray(topology.weights))
        mean = jax.tree.map(lambda g: jnp.sum(g, axis=1), weighted)
        return mean, NeighbourhoodMeanState(error)

    return optax.GradientTransformationExtraArgs(init_fn, update_fn)


def ngm(
    topology: Topology,
    learning_rate: ScalarOrSchedule,
    *,
    beta: Any = 0.9,
    nesterov: bool = True,
    weight_decay: Any = 0.0,
    gamma: Any = 1.0,
    compressor: Compressor | None = None,
    self_gradient: SelfGradient = "current",
    form: Form = "auto",
) -> Method:
    """NGM; with a compressor, Comp NGM: cross-gradients compressed with error feedback.

    Args:
      topology: who hears whom.
      learning_rate: eta, a number or an optax schedule.
      beta: momentum coefficient in [0, 1).
      nesterov: direction g + beta m, as the paper's hyper-parameters say; False is the printed
        heavy ball, direction m.
      weight_decay: coupled L2, added to the mean gradient: never compressed.
      gamma: averaging rate in (0, 1].
      compressor: the operator Q on cross-gradients (models are always sent whole); None sends
        them as they are. With few bits use a contracting one: `sj.sign()`, or a biased quantizer.
      self_gradient: where self-gradient and weight decay are taken: at the "current" model, as
        printed, or at the "mixed" one x + gamma (W - I) x, as the code of NGM's authors does.
      form: of mixing, "auto", "dense" or "table", see `sj.mixing_form`.
    """
    gamma = check_gossip(topology, gamma)
    checks.choice("self_gradient", self_gradient, SELF_GRADIENTS)

    def mixed(params: Params) -> Params:
        return add_gossip(params, disagreement(topology, params, form), gamma)

    at_mixed = self_gradient == "mixed"
    compressed = compressor is not None
    gradients = CrossGradients(
        topology=topology,
        mean=not compressed,
        self_point=mixed if at_mixed else None,
    )
    decay = optax.add_decayed_weights(checks.real("weight_decay", weight_decay, at_least=0.0))
    transform = optax.chain(
        neighbourhood_mean(topology, compressor) if compressed else optax.identity(),  # 11 / 20
        _at(mixed, decay) if at_mixed else decay,
        local_momentum(beta, nesterov),  # 12 / 21
        optax.scale_by_learning_rate(checks.learning_rate(learning_rate)),  # 15 / 22: x_{t+1/2} - x_t
        gossip(topology, gamma, of="current", form=form),  # 16 / 23
    )
    # Models go out whole, cross-gradients come back.
    return Method(topology, gradients, transform, "ngm", rounds=(identity(), compressor or identity()))


def _at(point: Any, transform: optax.GradientTransformation) -> optax.GradientTransformation:
    """The transform, shown point(params) in place of params."""

    def update_fn(updates, state, params=None):
        return transform.update(updates, state, point(params))

    return optax.GradientTransformation(transform.init, update_fn)


def _check_pairs(updates: Any, size: int, width: int) -> None:
    for path, leaf in jax.tree.leaves_with_path(updates):
        if leaf.shape[:2] != (size, width):
            raise ValueError(
                f"updates{jax.tree_util.keystr(path)} must be gradients of pairs "
                f"[A, K, ...] = [{size}, {width}, ...], got shape {leaf.shape}"
            )
