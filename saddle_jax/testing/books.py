"""What crosses a link, weighed: every message that a network is handed is encoded, and its bytes counted."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from saddle_jax.compression.base import identity
from saddle_jax.core.gradients import Gradients
from saddle_jax.core.messages import Message
from saddle_jax.core.method import Method
from saddle_jax.core.network import Network
from saddle_jax.core.rule import Step
from saddle_jax.testing.trial import Moment, batch_of, key_of, loss_fn

_LINK = (2, 1)  # agent 2, and its first neighbour


class WeighingNetwork(Network):
    """A network that keeps for each round the bytes of its messages, as agent 2 sends them over one link."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._bytes: dict[int, int] = {}

    def charge(self, sent: Message | Sequence[Message], axes: int = 1) -> None:
        """Writes a round into the books, and encodes its messages."""
        super().charge(sent, axes)
        messages = [sent] if isinstance(sent, Message) else list(sent)
        encoded: Any = [
            (each.packed or identity()).encode(leaf[_LINK[:axes]], jax.random.key(1)).data.size  # type: ignore[attr-defined]
            for each in messages
            for leaf in jax.tree.leaves(each.like)
        ]
        self._bytes[id(self.book[-1])] = sum(encoded)

    @property
    def weighed(self) -> int:
        """The bytes of all rounds that stand in the book."""
        return sum(self._bytes[id(entry)] for entry in self.book)


def encoded_bytes(method: Method, moment: Moment, t: int) -> int:
    """Returns the bytes that cross a link in step t, from the encodings of the real messages."""
    weighed = 0

    def take(moment: Moment, key: Any) -> Any:
        nonlocal weighed
        network = WeighingNetwork(method.topology, method.rule.turns(t), key)
        phase = method.ascent.phase(t)
        oracle = Gradients(
            loss_fn, method.ascent, batch_of(t), network, jnp.int32(t), list(moment.state.ascent), phase
        )
        step = Step(jnp.int32(t), moment.params, network, oracle, phase=method.rule.phase(t))
        after = method.rule.step(step, moment.params, moment.state.rule)
        weighed = network.weighed
        return after

    jax.eval_shape(take, moment, key_of(t))
    return weighed
