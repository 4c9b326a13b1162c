"""What a step measured: arrays by name, each with what its axes mean."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp

# What a metric's axes mean: a number, one per agent, one per pair, one per parameter tensor.
Axes = Literal["", "A", "AK", "L"]


@jax.tree_util.register_pytree_with_keys_class
@dataclasses.dataclass(frozen=True)
class Metrics(Mapping[str, Any]):
    """Metrics are what a step measured, by name; `axes` says of each what its axes mean.

    `aux`, what the loss function returned beside the loss, is a tree of arrays [A, ...].

    >>> method, x = sj.dpsgd(sj.ring(2), 0.1), jnp.array([0.0, 2.0])
    >>> _, _, metrics = method.step(lambda x, d: x * d, x, method.init(x), jnp.array([10.0, 3.0]))
    >>> metrics["loss"], metrics.axes
    (Array([0., 6.], dtype=float32), {'loss': 'A'})
    """

    arrays: dict[str, Any]
    axes: dict[str, Axes]

    def __getitem__(self, name: str) -> Any:
        return self.arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    def adding(self, **numbers: Any) -> "Metrics":
        """Returns these metrics and further numbers []."""
        return Metrics({**self.arrays, **numbers}, {**self.axes, **dict.fromkeys(numbers, "")})

    def tree_flatten_with_keys(self) -> Any:
        """Returns the named values, and as their static part the axes; JAX calls this."""
        names = sorted(self.arrays)
        children = [(jax.tree_util.DictKey(name), self.arrays[name]) for name in names]
        return children, tuple((name, self.axes[name]) for name in names)

    @classmethod
    def tree_unflatten(cls, axes: Any, values: Any) -> "Metrics":
        """Makes the metrics again of axes and values; JAX calls this."""
        return cls({name: value for (name, _), value in zip(axes, values, strict=True)}, dict(axes))


def aligned(branches: Sequence[Callable[[], tuple[Any, Any, Metrics]]]) -> list[Callable[[], Any]]:
    """Makes steps of several kinds return the same metrics, as the branches of one program must.

    Each branch returns (models, state, metrics). What a branch does not measure is NaN there, or -1 where it
    is a whole number.
    """
    measured = [jax.eval_shape(branch)[2] for branch in branches]
    shapes = {name: value for each in measured for name, value in each.items()}
    axes = {name: kind for each in measured for name, kind in each.axes.items()}

    def filled(branch: Callable[[], tuple[Any, Any, Metrics]]) -> Callable[[], Any]:
        def run() -> Any:
            models, state, metrics = branch()
            others = {
                name: jax.tree.map(_nothing, shape) for name, shape in shapes.items() if name not in metrics
            }
            return models, state, Metrics({**metrics.arrays, **others}, axes)

        return run

    return [filled(branch) for branch in branches]


def _nothing(like: Any) -> Any:
    return jnp.full(like.shape, jnp.nan if jnp.issubdtype(like.dtype, jnp.floating) else -1, like.dtype)
