"""How one quantity travels: every agent takes a weighted average of its neighbours' models.

    x_i  <-  x_i + gamma sum_j (w_ij - I_ij) x_j          gamma = 1:  x_i <- sum_j w_ij x_j

`exact` sends it whole. `choco` sends compressed differences to public copies (Koloskova et al.,
"Decentralized deep learning with arbitrary communication compression", 2020; lines 7 and 10 to 12 of the
paper's Algorithm 2). A method may use several of them, one for each quantity that travels.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple

import jax
import jax.numpy as jnp

from saddle_jax.base import checks
from saddle_jax.base.types import Key, Operator, State, Tree
from saddle_jax.core import trees
from saddle_jax.core.messages import Message
from saddle_jax.core.mixing import MIXINGS, Mixing
from saddle_jax.core.trees import tree_map
from saddle_jax.devices.lifting import on_shards

if TYPE_CHECKING:
    from saddle_jax.core.rule import Step

Order = Literal["choco", "paper"]
ORDERS = ("choco", "paper")


class Gossip(NamedTuple, Generic[State]):
    """A gossip says how one quantity travels; it is a pure pair of functions.

    >>> sj.choco(sj.sign(), gamma=0.5)._fields  # other ways: `sj.exact`
    ('init', 'mix')
    """

    init: Callable[[Tree], State]  # x [A, ...] -> state
    mix: "Callable[[Step, Tree, State], tuple[Tree, State]]"  # (step, x, state) -> (x after the round, state)


def exact(gamma: Any = 1.0, mixing: Mixing = "auto") -> Gossip[tuple[()]]:
    """Makes a round of exact gossip: x becomes x + gamma (W - I) x.

    Args:
      gamma: averaging rate in (0, 1].
      mixing: how W x is computed, "auto", "dense" or "table", see `sj.mixing_form`.

    >>> gossip = sj.exact()
    >>> rule = sj.Rule(gossip.init, gossip.mix)  # gossip and nothing more
    >>> method, x = sj.Method("average", sj.ring(4), rule), jnp.array([0.0, 3.0, 6.0, 3.0])
    >>> method.step(lambda x, d: 0.0, x, method.init(x), jnp.zeros(4))[0]
    Array([2., 3., 4., 3.], dtype=float32)
    """
    gamma = check_rate(gamma)
    checks.choice("mixing", mixing, MIXINGS)

    def mix(step: "Step", x: Tree, state: tuple[()]) -> tuple[Tree, tuple[()]]:
        x = trees.in_memory(x)  # each neighbour reads it
        correction = step.network.correction(x, mixing=mixing)
        return trees.in_memory(tree_map(lambda x, p: x + gamma * p, x, correction)), state

    return Gossip(lambda x: (), mix)


class ChocoState(NamedTuple):
    """CHOCO remembers what the neighbours know of each agent."""

    public: Tree  # x-hat, the copy of each agent's quantity that its neighbours hold too [A, ...]


def choco(
    compressor: Operator, gamma: Any = 1.0, order: Order = "choco", mixing: Mixing = "auto"
) -> Gossip[ChocoState]:
    """Makes a round of compressed gossip. The public copy x-hat starts at zero:

        order "choco"                          order "paper" (as Algorithm 2 is printed)
        q     = Q(x - x-hat)                   x     = x + gamma (W - I) x-hat
        x-hat = x-hat + q                      q     = Q(x - x-hat)
        x     = x + gamma (W - I) x-hat        x-hat = x-hat + q

    "choco" mixes what was just sent: without compression and at gamma = 1 it is exact gossip.
    "paper" mixes what was sent a step ago: its first step mixes nothing, and without compression
    it does not become the uncompressed method. To compare with the code of CHOCO-SGD's authors,
    epfml/ChocoSGD, take "paper": its deep-learning code has that order.

    Args:
      compressor: the operator Q, applied to each tensor of each agent.
      gamma: averaging rate in (0, 1]; strong compression needs a small one (the paper: 0.4 for 30 % top-k).
      order: "choco" or "paper".
      mixing: how W x is computed, "auto", "dense" or "table", see `sj.mixing_form`.

    >>> gossip = sj.choco(sj.top_k(0.5))
    >>> rule = sj.Rule(gossip.init, gossip.mix)  # gossip and nothing more
    >>> method, x = sj.Method("average", sj.complete(2), rule), jnp.array([[0.0, 1.0], [2.0, 0.0]])
    >>> method.step(lambda x, d: 0.0, x, method.init(x), jnp.zeros(2))[1].rule.public
    Array([[0., 1.],
           [2., 0.]], dtype=float32)
    """
    gamma = check_rate(gamma)
    check_compressor(compressor)
    checks.choice("order", order, ORDERS)
    checks.choice("mixing", mixing, MIXINGS)

    def mix(step: "Step", x: Tree, state: ChocoState) -> tuple[Tree, ChocoState]:
        check_one_copy(step)
        public = state.public
        if order == "choco":
            public, sent = publish(step, compressor, x, public)
            correction = step.network.correction(public, sent, mixing)
            return tree_map(lambda x, p: x + gamma * p, x, correction), ChocoState(public)
        # What is mixed now travelled in the step before; what travels now is mixed in the next step.
        correction = step.network.correction(public, (), mixing)
        x = tree_map(lambda x, p: x + gamma * p, x, correction)
        public, sent = publish(step, compressor, x, public)
        step.network.record(sent)
        return x, ChocoState(public)

    return Gossip(lambda x: ChocoState(trees.zeros_like(x)), mix)


def publish(step: "Step", compressor: Operator | None, x: Tree, public: Tree) -> tuple[Tree, Message]:
    """Returns the public copy [A, ...] after x-hat + Q(x - x-hat), and the message that brought it there."""
    q, sent = compressed(step, compressor, jax.tree.map(jnp.subtract, x, public))
    return jax.tree.map(jnp.add, public, q), sent


def compressed(step: "Step", compressor: Operator | None, theta: Tree) -> tuple[Tree, Message]:
    """Returns Q(theta), [A, ...], and the message that carries it; without an operator theta as it is."""
    if compressor is None:
        return theta, Message(theta)
    q = compress_stacked(compressor, theta, step.network.key())
    note_compression(step, "", theta, q, step.network.topology.present)
    return q, Message(q, compressor)


def check_one_copy(step: "Step") -> None:
    """Checks that all neighbours hold the same public copy: every message arrives, and links stay."""
    if step.network.faults is not None and step.network.faults.loses:
        # Whoever missed a message would hold another copy than the one that all are taken to hold.
        raise checks.ArgumentError(
            f"faults must lose nothing for compressed gossip, whose neighbours hold one public copy, got "
            f"{step.network.faults!r}"
        )
    if not step.network.topology.has_fixed_links:
        raise checks.ArgumentError(
            "topology must have the same links in every step for compressed gossip, whose neighbours "
            f"hold one public copy, got {step.network.topology.name}"
        )


def models_gossip(compressor: Operator | None, gamma: Any, order: Order, mixing: Mixing) -> Gossip[Any]:
    """Makes the gossip of a method's models: exact without a compressor, CHOCO with one."""
    checks.choice("order", order, ORDERS)
    return exact(gamma, mixing) if compressor is None else choco(compressor, gamma, order, mixing)


def pair_gossip(compressor: Operator | None, gamma: Any, order: Order, mixing: Mixing) -> Gossip[Any]:
    """Makes the gossip of two quantities (x, y) that a method sends together, each a tree [A, ...].

    Without a compressor they share one message, which arrives or is lost as a whole: one round, and the same
    W for both. With one, each has a public copy of its own.
    """
    one = models_gossip(compressor, gamma, order, mixing)
    if compressor is None:
        return one

    def mix(step: "Step", both: tuple[Tree, Tree], state: Any) -> tuple[tuple[Tree, Tree], Any]:
        x, x_gossip_state = one.mix(step, both[0], state[0])
        y, y_gossip_state = one.mix(step, both[1], state[1])
        return (x, y), (x_gossip_state, y_gossip_state)

    return Gossip(lambda both: (one.init(both[0]), one.init(both[1])), mix)


def compress_stacked(compressor: Operator, tree: Tree, key: Key | None, axes: int = 1) -> Tree:
    """Compresses every tensor of every agent, each with a key of its own.

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


def check_rate(gamma: Any) -> Any:
    """Checks an averaging rate and returns it."""
    return checks.real("gamma", gamma, above=0.0, at_most=1.0)


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


def note_compression(step: "Step", prefix: str, theta: Tree, compressed: Tree, present: Any) -> None:
    """Notes what compression took away, in steps that measure diagnostics.

    These are the norms of theta and of Q(theta) - theta, [A] or [A, K]; their means for each tensor on its
    own, [L]; and the measured contraction of each tensor,
    zeta_l = 1 - ||Q(theta_l) - theta_l||^2 / ||theta_l||^2 [L], the mean over the agents or pairs that had
    something to compress, NaN where none had.

    Args:
      step: the step that takes the notes.
      prefix: what the notes' names begin with.
      theta: what was compressed [A, ...], or of pairs [A, K, ...].
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
