"""The paper's networks and a few small ones: flax modules of one model, without an agent axis.

A model of your own needs no registration; see `functions` for the kinds that are supported.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.registry import Registry, Spec
from saddle_jax.base.types import Key, Params
from saddle_jax.kernels.convolution import ConvImpl, check_conv_impl
from saddle_jax.models.functions import Functions as Functions
from saddle_jax.models.functions import functions as functions
from saddle_jax.models.functions import is_torch, parameters, takes_rngs
from saddle_jax.models.layers import NORMS, Norm

# A new network is a file in this folder and a line here. It takes `num_classes`, and `norm` and `conv_impl`
# if it has layers that use them.
MODELS = Registry(
    "model",
    {
        "resnet20": "saddle_jax.models.resnet:resnet20",
        "resnet18": "saddle_jax.models.resnet:resnet18",
        "mobilenet_v2": "saddle_jax.models.mobilenet:MobileNetV2",
        "resnet8": "saddle_jax.models.resnet:resnet8",
        "cnn": "saddle_jax.models.small:CNN",
        "strided_cnn": "saddle_jax.models.small:strided_cnn",
        "mlp": "saddle_jax.models.small:MLP",
        "logistic": "saddle_jax.models.small:logistic",
        "linear": "saddle_jax.models.small:Product",
        "causal_mlp": "saddle_jax.models.small:CausalMLP",
        "pretrained": "saddle_jax.models.pretrained:pretrained",
    },
    context=["num_classes", "norm", "conv_impl"],
    group="saddle_jax.models",
)
NAMES = tuple(name for name in MODELS if name != "pretrained")  # which is made of another one


def build(name: str, num_classes: int, *, norm: Norm = "evonorm", conv_impl: ConvImpl = "auto") -> Any:
    """Builds a network: mostly a flax module from images [B, H, W, C] to logits [B, num_classes].

    Args:
      name: one of `NAMES`, with or without options: resnet20 (CIFAR), resnet18 (ImageNet), mobilenet_v2
        (32x32), resnet8 (one block per stage: for studies on a CPU), cnn (small), strided_cnn (a quarter of
        its work), mlp, logistic; linear (for the convex tasks), and causal_mlp, from characters [B, T] to
        logits [B, T, num_classes]. Or one of your own, FILE.py:NAME or module:NAME: a flax or torch module,
        its class, a pair (init, apply), or a function that returns one of these; it is given `num_classes`,
        `norm` and `conv_impl` if it has parameters of these names. Or pretrained(NAME, FILE).
      num_classes: the number of classes, or of other outputs.
      norm: "evonorm" (the paper's, gated by a hard sigmoid), "evonorm_sigmoid", or "groupnorm" with ReLU, as
        in the code that the paper builds on; no table of the paper uses it.
      conv_impl: how convolutions are computed, see `models.convolution`; "plain" can be differentiated in
        every mode and any number of times. The parameters do not depend on it.
    """
    spec = MODELS.parse(name)
    num_classes = checks.whole("num_classes", num_classes, at_least=1)
    checks.choice("norm", norm, NORMS)
    check_conv_impl(conv_impl)
    thing = MODELS.load(spec)
    given = {"num_classes": num_classes, "norm": norm, "conv_impl": conv_impl}
    is_maker = isinstance(thing, type) or (callable(thing) and not hasattr(thing, "apply"))
    if not is_maker:
        if spec.args or spec.kwargs:
            raise ArgumentError(f"model {spec.name} is made already and takes no options, got {name!r}")
        return thing
    if not takes_rngs(thing):
        made = MODELS.call(spec, thing, **given)
        if not is_torch(made):
            return made
        from saddle_jax.models.torch_modules import from_torch

        return from_torch(lambda: MODELS.call(spec, thing, **given), conv_impl=conv_impl)
    takes = parameters(thing)  # a factory of nnx modules, called when there is a key
    chosen = {option: value for option, value in given.items() if option in takes}
    return functools.partial(thing, *spec.args, **chosen | dict(spec.kwargs))


def without_weights(name: str) -> str:
    """Returns the model that `pretrained` begins with weights for: whoever opens a run again has its own."""
    spec = MODELS.parse(name, also=("auto",))
    while spec.name == "pretrained":
        inner = MODELS.given(spec)["model"]
        spec = inner if isinstance(inner, Spec) else Spec(str(inner))
        name = str(spec)
    return name


def make_model(name: str, num_classes: int, norm: Norm, conv_impl: ConvImpl) -> Functions:
    """Builds a network as `build` does, and returns its functions init and apply."""
    return functions(build(name, num_classes, norm=norm, conv_impl=conv_impl))


def init(model: Any, input_shape: Sequence[int], key: Key) -> Params:
    """Draws the initial parameters of one model for float32 inputs of this shape, of images (H, W, C).

    `model` is anything that `functions` takes.
    """
    return initialise(functions(model), jax.ShapeDtypeStruct((1, *input_shape), jnp.float32), key)


def initialise(model: Functions, inputs: Any, key: Key) -> Params:
    """Draws the initial parameters of one model for inputs [1, ...] of these shapes and dtypes."""
    return _initialised(model, key, jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), inputs))


@functools.partial(jax.jit, static_argnums=0)
def _initialised(model: Functions, key: Key, inputs: Any) -> Params:
    """Initialises a model; cached for equal models, because compiling takes seconds."""
    return model.init(key, inputs)


def count(params: Params) -> int:
    """Returns the number of parameters of one model."""
    return sum(int(leaf.size) for leaf in jax.tree.leaves(params))
