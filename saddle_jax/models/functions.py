"""Any model as two pure functions: `init(key, inputs) -> params` and `apply(params, inputs) -> outputs`.

Modules of flax.linen and flax.nnx and pairs of plain functions are converted here, so that the rest of the
package sees only a tree of parameters, without an agent axis.
"""

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from saddle_jax.base.checks import ArgumentError, shown
from saddle_jax.base.types import Key, Params
from saddle_jax.models.state_dict import TreeLayout

_KINDS = "a flax module (linen or nnx), a torch module, or a pair of functions (init, apply)"


class Functions(NamedTuple):
    """A model of one agent as two pure functions.

    Attributes:
      name: the name of its class or function, for messages.
      init: (key, inputs [1, ...]) -> params, a tree of arrays.
      apply: (params, inputs [B, ...]) -> outputs [B, ...].
      layout: how params are named and laid out in a state_dict of PyTorch.
    """

    name: str
    init: Callable[[Key, Any], Params]
    apply: Callable[[Params, Any], Any]
    layout: Any = TreeLayout()


def functions(model: Any) -> Functions:
    """Returns a model as functions; cached for equal modules, so that they are compiled once.

    Args:
      model: a linen module; an nnx or torch module, whose weights are the initial parameters, or its class,
        which draws weights for every seed, as another function of `rngs` does for nnx; or a pair (init,
        apply), where init is a function of a key, or of a key and inputs.
    """
    if isinstance(model, Functions):
        return model
    if is_torch(model):  # whose weights may have changed since
        from saddle_jax.models.torch_modules import from_torch

        return from_torch(model)
    try:
        hash(model)
    except TypeError:  # not hashable, such as a module with a list among its fields
        return _adapted(model)
    return _kept(model)


@functools.lru_cache(maxsize=64)
def _kept(model: Any) -> Functions:
    return _adapted(model)


def _adapted(model: Any) -> Functions:
    if isinstance(model, tuple | list) and len(model) == 2 and all(map(callable, model)):
        return _of_pair(*model)
    linen, nnx = sys.modules.get("flax.linen"), sys.modules.get("flax.nnx")  # loaded if the model needs them
    if linen is not None and isinstance(model, linen.Module):
        return _of_linen(model)
    if nnx is not None and isinstance(model, nnx.Module):
        return _of_nnx(type(model).__name__, lambda rngs: model)
    if callable(model) and takes_rngs(model):
        return _of_nnx(getattr(model, "__name__", "nnx"), lambda rngs: model(rngs=rngs))
    raise ArgumentError(f"model must be {_KINDS}, got {shown(model)}")


def is_torch(thing: Any) -> bool:
    """Returns whether something is a torch module or a class of them, without importing torch."""
    nn = sys.modules.get("torch.nn")
    if nn is None:
        return False
    return isinstance(thing, nn.Module) or (isinstance(thing, type) and issubclass(thing, nn.Module))


def takes_rngs(factory: Callable[..., Any]) -> bool:
    """Returns whether a class or function makes an nnx module from `rngs`."""
    return "rngs" in parameters(factory)


def parameters(factory: Callable[..., Any]) -> list[str]:
    """Returns the parameters' names of a class or function; of nnx's classes those of __init__."""
    bare: Any = factory.func if isinstance(factory, functools.partial) else factory
    tells = getattr(bare, "__init__", bare) if isinstance(bare, type) else bare
    return list(inspect.signature(tells).parameters)


def _of_pair(init: Callable[..., Params], apply: Callable[[Params, Any], Any]) -> Functions:
    takes_inputs = len(inspect.signature(init).parameters) > 1
    name = getattr(apply, "__name__", "model")
    return Functions(name, init if takes_inputs else lambda key, inputs: init(key), apply)


def _of_linen(module: Any) -> Functions:
    name = type(module).__name__

    def init(key: Key, inputs: Any) -> Params:
        _check_size(module, inputs)
        variables = module.init(key, inputs)
        _refuse_others(name, set(variables) - {"params"})
        return variables.get("params", {})

    def apply(params: Params, inputs: Any) -> Any:
        return module.apply({"params": params}, inputs)

    return Functions(name, init, apply, getattr(module, "torch_layout", TreeLayout()))


def _check_size(module: Any, inputs: Any) -> None:
    """Raises an error for images below the network's `smallest_image`, if it has one."""
    smallest = getattr(module, "smallest_image", 1)
    if getattr(inputs, "ndim", 0) == 4 and min(inputs.shape[1:3]) < smallest:
        _, height, width, _ = inputs.shape
        raise ArgumentError(
            f"{type(module).__name__} needs images of at least {smallest}x{smallest}, got {height}x{width}"
        )


def _of_nnx(name: str, make: Callable[[Any], Any]) -> Functions:
    from flax import nnx

    def parts(key: Key) -> tuple[Any, Any]:
        module = make(nnx.Rngs(key))
        if not isinstance(module, nnx.Module):
            raise ArgumentError(f"model must be {_KINDS}, got {shown(module)} from {name}")
        split: Any = nnx.split(module, nnx.Param, ...)
        definition, state, rest = split
        _refuse_others(name, {type(leaf).__name__ for _, leaf in nnx.to_flat_state(rest)})
        return definition, state

    @functools.cache
    def structure() -> tuple[Any, Any]:
        found: Any = jax.eval_shape(lambda: parts(jax.random.key(0)))
        return found[0], found[1]

    def init(key: Key, inputs: Any) -> Params:
        return nnx.to_pure_dict(parts(key)[1])

    def apply(params: Params, inputs: Any) -> Any:
        definition, shapes = structure()
        state = jax.tree.map(lambda leaf: leaf, shapes)  # a copy, whose values are replaced
        nnx.replace_by_pure_dict(state, params)
        return nnx.merge(definition, state)(inputs)

    return Functions(name, init, apply)


def _refuse_others(name: str, kinds: set[str]) -> None:
    """Raises an error for a model with state besides parameters: running statistics or dropout's keys."""
    if kinds:
        others = ", ".join(sorted(kinds))
        raise ArgumentError(f"model must keep parameters alone, which agents average, got {others} in {name}")
