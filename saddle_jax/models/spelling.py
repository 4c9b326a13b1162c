"""Models as settings spell them: names of the table, and those that are brought, with or without options."""

import functools
from typing import Any

from saddle_jax import models
from saddle_jax.base import brought
from saddle_jax.base.checks import ArgumentError
from saddle_jax.kernels.convolution import ConvImpl
from saddle_jax.models.functions import Functions, functions, parameters, takes_rngs
from saddle_jax.models.layers import Norm


def make_model(text: str, outputs: int, norm: Norm, conv_impl: ConvImpl) -> Functions:
    """Makes the network that a text names: one of ours, or a class, function or object that is brought.

    What is brought may be a flax module, its class, a pair (init, apply), or a function that returns one of
    these. A class or function is given `num_classes`, `norm` and `conv_impl` if it has parameters of these
    names.
    """
    if not brought.is_brought(text):
        return functions(models.build(text, outputs, norm=norm, conv_impl=conv_impl))
    thing = brought.load("model", text)
    offered = {"num_classes": outputs, "norm": norm, "conv_impl": conv_impl}
    return functions(_made(text, thing, offered))


def _made(text: str, thing: Any, offered: dict[str, Any]) -> Any:
    spelt = brought.parse("model", text)
    if isinstance(thing, tuple | list) or not (isinstance(thing, type) or _is_function(thing)):
        if spelt.options:
            raise ArgumentError(f"model {spelt.head} is made already and takes no options, got {text!r}")
        return thing
    if takes_rngs(thing):
        takes = parameters(thing)
        chosen = {name: value for name, value in offered.items() if name in takes} | spelt.options
        return functools.partial(thing, **chosen)
    return brought.call("model", spelt.head, thing, spelt.options, object, **offered)


def _is_function(thing: Any) -> bool:
    return callable(thing) and not hasattr(thing, "apply")
