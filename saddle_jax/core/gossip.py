"""Gossip: every agent moves towards the weighted average of its neighbours.

    x_i  <-  x_i + gamma sum_j (w_ij - I_ij) x_j          gamma = 1:  x_i <- sum_j w_ij x_j

gamma is a number or a function of the step. It may exceed 1 as long as all eigenvalues of I + gamma (W - I)
lie above -1: gamma < 2 / (1 - lambda), lambda the smallest eigenvalue of a symmetric W.

`exact` sends x itself. `choco` sends compressed differences to public copies (Koloskova et al.,
"Decentralized deep learning with arbitrary communication compression", 2020; lines 7 and 10 to 12 of the
SADDLe paper's Algorithm 2). A method that sends several quantities has a gossip for each.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Generic, Literal, NamedTuple

import jax
import jax.numpy as jnp

from saddle_jax.base import checks
from saddle_jax.base.types import Key, Operator, State, Tree
from saddle_jax.core import trees
from saddle_jax.core.network import MIXINGS, Message, Mixing
from saddle_jax.core.rule import Step
from saddle_jax.core.topology import Graphs, check_topology
from saddle_jax.core.trees import tree_map
from saddle_jax.devices.lifting import on_shards

Order = Literal["choco", "paper"]
ORDERS = ("choco", "paper")

_ROUNDING = 1e-6  # the rounding error of an eigenvalue of a W in float32


class GossipOptions(NamedTuple):
    """The arguments of `exact` or `choco`."""

    compressor: Operator | None  # None: exact gossip
    gamma: Any
    order: Order
    mixing: Mixing


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Gossip(Generic[State]):
    """One round of gossip on x [A, ...], as a pair of pure functions; see `sj.exact` and `sj.choco`.

    Attributes:
      init: x [A, ...] -> state.
      mix: (step, x, state) -> (x after the round, state).
      options: the arguments it was made with; None for one of your own.

    >>> sj.qgm(sj.ring(8), 0.1, gossip=sj.choco(sj.top_k(0.5), gamma=0.4))
    qgm(ring(8), learning_rate=0.1, gossip=choco(top_k(0.5), gamma=0.4))
    """

    init: Callable[[Tree], State]
    mix: Callable[[Step, Tree, State], tuple[Tree, State]]
    options: GossipOptions | None = None

    def pair(self) -> "Gossip[Any]":
        """Returns the gossip of two quantities (x, y), each a tree [A, ...], that a method sends together.

        Exact gossip sends them in one message, which arrives or is lost as a whole: one round, and the same W
        for both. Any other gossip takes a round for each, with a state for each.
        """
        if self.options is not None and self.options.compressor is None:
            return self

        def mix(step: Step, both: tuple[Tree, Tree], states: Any) -> tuple[tuple[Tree, Tree], Any]:
            x, x_state = self.mix(step, both[0], states[0])
            y, y_state = self.mix(step, both[1], states[1])
            return (x, y), (x_state, y_state)

        return Gossip(lambda both: (self.init(both[0]), self.init(both[1])), mix)

    def scaled(self, factor: float) -> "Gossip[Any]":
        """Returns the same gossip with gamma times `factor`."""
        compressor, gamma, order, mixing = known_options(self)

        def at(t: Any) -> Any:
            return gamma(t) * factor

        scaled = at if callable(gamma) else gamma * factor
        return exact(scaled, mixing) if compressor is None else choco(compressor, scaled, order, mixing)

    def __repr__(self) -> str:
        if self.options is None:
            return "Gossip(...)"
        compressor, gamma, order, mixing = self.options
        named = {"gamma": (gamma, 1.0), "order": (order, "choco"), "mixing": (mixing, "auto")}
        words = [] if compressor is None else [checks.argument_text(compressor)]
        words += [
            f"{name}={checks.argument_text(value)}"
            for name, (value, usual) in named.items()
            if checks.is_array(value) or value != usual
        ]
        return f"{'exact' if compressor is None else 'choco'}({', '.join(words)})"


def exact(gamma: Any = 1.0, mixing: Mixing = "auto") -> Gossip[tuple[()]]:
    """Exact gossip: x <- x + gamma (W - I) x.

    Args:
      gamma: averaging rate, a number > 0 or a function of the step; above 1 if gossip with W stays stable.
      mixing: how W x is computed, "auto", "dense" or "table", see `sj.mixing_form`.

    >>> gossip = sj.exact()
    >>> rule = sj.Rule(gossip.init, gossip.mix)  # gossip and nothing more
    >>> method, x = sj.Method("average", sj.ring(4), rule), jnp.array([0.0, 3.0, 6.0, 3.0])
    >>> method.step(lambda x, d: 0.0, x, method.init(x), jnp.zeros(4))[0]
    Array([2., 3., 4., 3.], dtype=float32)
    """
    rate = checks.schedule(gamma, "gamma")
    checks.choice("mixing", mixing, MIXINGS)

    def mix(step: Step, x: Tree, state: tuple[()]) -> tuple[Tree, tuple[()]]:
        check_stable(gamma, step.network.topology, step.network.faults)
        x = trees.in_memory(x)  # each neighbour reads it
        gamma_t, correction = rate(step.t), step.network.correction(x, mixing=mixing)
        return trees.in_memory(tree_map(lambda x, p: x + gamma_t * p, x, correction)), state

    return Gossip(lambda x: (), mix, GossipOptions(None, gamma, "choco", mixing))


class ChocoState(NamedTuple):
    """State of CHOCO: the public copies."""

    public: Tree  # x-hat, the copy of each agent's x that its neighbours hold too [A, ...]


def choco(
    compressor: Operator, gamma: Any = 1.0, order: Order = "choco", mixing: Mixing = "auto"
) -> Gossip[ChocoState]:
    """Compressed gossip (CHOCO). The public copy x-hat starts at zero:

        order "choco"                          order "paper" (SADDLe's Algorithm 2 as printed)
        q     = Q(x - x-hat)                   x     = x + gamma (W - I) x-hat
        x-hat = x-hat + q                      q     = Q(x - x-hat)
        x     = x + gamma (W - I) x-hat        x-hat = x-hat + q

    "choco" mixes what was just sent: without compression and at gamma = 1 it is exact gossip.
    "paper" mixes what was sent in the step before: its first step mixes nothing, and without compression
    it is not the uncompressed method. Use "paper" to compare with the deep-learning code of CHOCO-SGD's
    authors, epfml/ChocoSGD, which has that order.

    Args:
      compressor: the operator Q, applied to each tensor of each agent.
      gamma: averaging rate, as of `sj.exact`; strong compression needs a small one (the paper: 0.4 for 30 %
        top-k).
      order: "choco" or "paper".
      mixing: how W x is computed, "auto", "dense" or "table", see `sj.mixing_form`.

    >>> gossip = sj.choco(sj.top_k(0.5))
    >>> rule = sj.Rule(gossip.init, gossip.mix)  # gossip and nothing more
    >>> method, x = sj.Method("average", sj.complete(2), rule), jnp.array([[0.0, 1.0], [2.0, 0.0]])
    >>> method.step(lambda x, d: 0.0, x, method.init(x), jnp.zeros(2))[1].rule.public
    Array([[0., 1.],
           [2., 0.]], dtype=float32)
    """
    rate = checks.schedule(gamma, "gamma")
    check_compressor(compressor)
    checks.choice("order", order, ORDERS)
    checks.choice("mixing", mixing, MIXINGS)

    def mix(step: Step, x: Tree, state: ChocoState) -> tuple[Tree, ChocoState]:
        check_stable(gamma, step.network.topology, step.network.faults)
        check_one_copy(step)
        gamma_t, public = rate(step.t), state.public
        if order == "choco":
            public, sent = publish(step, compressor, x, public)
            correction = step.network.correction(public, sent, mixing)
            return tree_map(lambda x, p: x + gamma_t * p, x, correction), ChocoState(public)
        # What is mixed now was sent in the step before; what is sent now is mixed in the next step.
        correction = step.network.correction(public, (), mixing)
        x = tree_map(lambda x, p: x + gamma_t * p, x, correction)
        public, sent = publish(step, compressor, x, public)
        step.network.record(sent)
        return x, ChocoState(public)

    options = GossipOptions(compressor, gamma, order, mixing)
    return Gossip(lambda x: ChocoState(trees.zeros_like(x)), mix, options)


def gossip_of(
    topology: Graphs, gossip: Gossip[Any] | None, compressor: Operator | None, gamma: Any
) -> Gossip[Any]:
    """Returns the gossip of a method: `gossip` itself, or `sj.choco(compressor, gamma)` or `sj.exact(gamma)`.

    Raises an ArgumentError for a gamma at which gossip on the graph diverges.
    """
    if gossip is None:
        gossip = exact(gamma) if compressor is None else choco(compressor, gamma)
    else:
        checks.instance("gossip", gossip, Gossip, "sj.choco(sj.top_k(0.5), 0.4)")
        if compressor is not None or checks.is_array(gamma) or gamma != 1.0:
            short = "gamma" if compressor is None else "compressor"
            raise checks.ArgumentError(f"{short} must be left out beside gossip, got gossip={gossip!r}")
    if gossip.options is not None:
        check_stable(gossip.options.gamma, topology)
    return gossip


def known_options(gossip: Gossip[Any]) -> GossipOptions:
    """Returns the arguments a gossip was made with, for methods that need more than its two functions."""
    if gossip.options is None:
        raise checks.ArgumentError(f"gossip must be made by sj.exact or sj.choco here, got {gossip!r}")
    return gossip.options


def publish(step: Step, compressor: Operator | None, x: Tree, public: Tree) -> tuple[Tree, Message]:
    """Returns the new public copy x-hat + Q(x - x-hat), [A, ...], and the message with Q(x - x-hat)."""
    q, sent = compressed(step, compressor, jax.tree.map(jnp.subtract, x, public))
    return jax.tree.map(jnp.add, public, q), sent


def compressed(step: Step, compressor: Operator | None, theta: Tree) -> tuple[Tree, Message]:
    """Returns Q(theta), [A, ...], and the message that carries it; theta itself without a compressor."""
    if compressor is None:
        return theta, Message(theta)
    q = compress_stacked(compressor, theta, step.network.key())
    note_compression(step, "", theta, q, step.network.topology.present)
    return q, Message(q, compressor)


def check_one_copy(step: Step) -> None:
    """Checks that neighbours hold the same public copy: every message arrives, and the links are fixed."""
    if step.network.faults is not None and step.network.faults.loses:
        # An agent that missed a message would hold another copy than its neighbours.
        raise checks.ArgumentError(
            f"faults must lose nothing for compressed gossip, whose neighbours hold one public copy, got "
            f"{step.network.faults!r}"
        )
    if not step.network.topology.has_fixed_links:
        raise checks.ArgumentError(
            "topology must have the same links in every step for compressed gossip, whose neighbours "
            f"hold one public copy, got {step.network.topology.name}"
        )


def compress_stacked(compressor: Operator, tree: Tree, key: Key | None, axes: int = 1) -> Tree:
    """Compresses every tensor of every agent, each with its own key.

    Args:
      compressor: the operator Q.
      tree: leaves [A, ...], or [A, K, ...] with axes=2.
      key: one key, consumed; None for deterministic operators.
      axes: how many leading axes are not part of a tensor.
    """
    leaves, structure = jax.tree.flatten(tree)
    stacked = jax.vmap(jax.vmap(compressor.compress)) if axes == 2 else jax.vmap(compressor.compress)
    compress = on_shards(stacked)
    # A random operator without a key fails in `compress`, with its own message.
    if key is None or not compressor.stochastic:
        return jax.tree.unflatten(structure, [compress(leaf) for leaf in leaves])

    compressed = []
    for position, leaf in enumerate(leaves):
        keys = trees.agent_keys(jax.random.fold_in(key, position), leaf.shape[0])
        if axes == 2:
            keys = jax.vmap(trees.agent_keys, in_axes=(0, None))(keys, leaf.shape[1])
        compressed.append(compress(leaf, keys))
    return jax.tree.unflatten(structure, compressed)


def check_rate(gamma: Any, topology: Graphs) -> Callable[[Any], Any]:
    """Checks an averaging rate, a number or a function of the step, and returns it as a function."""
    rate = checks.schedule(gamma, "gamma")
    check_stable(gamma, topology)
    return rate


def check_stable(gamma: Any, topology: Graphs, faults: Any = None) -> None:
    """Checks that gossip with this rate does not diverge, which a number above 1 may.

    All eigenvalues of I + gamma (W - I) must lie above -1. A rate that varies or is traced is not checked.
    """
    if callable(gamma) or checks.is_array(gamma) or gamma <= 1:
        return
    check_topology(topology)
    if faults is not None or not all(graph.is_symmetric for graph in topology.graphs):
        why = "whose W is not symmetric" if faults is None else f"with {faults!r}"
        raise checks.ArgumentError(f"gamma must be at most 1 on {topology.name}, {why}, got {gamma:g}")
    smallest = topology.smallest_eigenvalue
    if gamma * (1 - smallest) > 2 - _ROUNDING:
        raise checks.ArgumentError(
            f"gamma must be below {2 / (1 - smallest):.6g} on {topology.name}, whose W has the eigenvalue "
            f"{smallest:.3g}: gossip would diverge, got {gamma:g}"
        )


def check_compressor(compressor: Any) -> None:
    """Checks that an argument is a compression operator."""
    if not isinstance(compressor, Operator):
        raise checks.ArgumentError(
            f"compressor must be a Compressor, such as sj.quantize(bits=8), got {compressor!r}"
        )


def check_optional_compressor(compressor: Any) -> None:
    """Checks that an argument is a compression operator, or None where nothing is compressed."""
    if compressor is not None:
        check_compressor(compressor)


def note_compression(step: Step, prefix: str, theta: Tree, compressed: Tree, present: Any) -> None:
    """Adds the error of compression to the step's metrics, if diagnostics are on.

    These are the norms of theta and of Q(theta) - theta, [A] or [A, K]; their means for each tensor, [L]; and
    the measured contraction of each tensor, zeta_l = 1 - ||Q(theta_l) - theta_l||^2 / ||theta_l||^2 [L], the
    mean over the agents or pairs where theta_l is not zero, NaN if there are none.

    Args:
      step: the step whose metrics they are.
      prefix: the prefix of the metrics' names.
      theta: what was compressed [A, ...], or for pairs [A, K, ...].
      compressed: Q(theta).
      present: which agents [A] or pairs [A, K] are real, bool.
    """
    if not step.diagnostics:
        return
    present = jnp.asarray(present)
    axes = present.ndim
    error = jax.tree.map(jnp.subtract, compressed, theta)
    agents_axes: Literal["A", "AK"] = "A" if axes == 1 else "AK"
    step.note(f"{prefix}compression_error", trees.agent_norms(error, axes), agents_axes)
    step.note(f"{prefix}compression_input", trees.agent_norms(theta, axes), agents_axes)
    errors, inputs = trees.layer_norms(error, axes), trees.layer_norms(theta, axes)
    step.note(f"{prefix}compression_error_by_layer", trees.mean_by_layer(errors, present[None]), "L")
    step.note(f"{prefix}compression_input_by_layer", trees.mean_by_layer(inputs, present[None]), "L")
    lost = (errors / jnp.where(inputs > 0, inputs, 1)) ** 2
    step.note(f"{prefix}zeta_by_layer", trees.mean_by_layer(1 - lost, (inputs > 0) & present[None]), "L")
