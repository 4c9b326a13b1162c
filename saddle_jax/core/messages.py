"""What travels over a link, and the entry in the books for it."""

from typing import NamedTuple

import jax

from saddle_jax.base.types import Operator, Tree


class Message(NamedTuple):
    """A message says what travels over one link in one round.

    >>> network, x = sj.Network(sj.ring(4)), jnp.ones((4, 1000))
    >>> _ = network.correction(x, sent=sj.Message(x, sj.sign()))  # signs travel in the place of x
    >>> network.rounds[0].wire_bytes
    129
    """

    like: Tree  # has the shapes of the round's own argument, agents and slots included
    packed: Operator | None = None  # the operator whose encoding travels; None: the numbers as they are


class Round(NamedTuple):
    """A round in the books lists the tensors [...] that each link carries, and how each is packed."""

    tensors: tuple[jax.ShapeDtypeStruct, ...]
    packings: tuple[Operator | None, ...]
    everyone: bool = False  # whether all agents take an exact average; then this is the size of one model

    @property
    def wire_bytes(self) -> int:
        """The bytes over one link in the real encodings, with norms, scales, signs and indices."""
        return sum(
            x.size * x.dtype.itemsize if packed is None else packed.bits(x.shape, x.dtype) // 8
            for x, packed in zip(self.tensors, self.packings, strict=True)
        )

    @property
    def paper_bits(self) -> int:
        """The bits over one link as the paper's tables count them: 32 for a number not compressed."""
        return sum(
            32 * x.size if packed is None else packed.paper_bits(x.shape)
            for x, packed in zip(self.tensors, self.packings, strict=True)
        )
