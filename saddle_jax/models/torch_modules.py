"""Modules of PyTorch as models: torchax traces a module's forward pass as operations of JAX.

    model = sj.from_torch(MyModule)            # or from_torch(module): its own weights are the first
    module = sj.to_torch(MyModule, params)     # and back, through a strict load_state_dict

Parameters have the module's own names; kernels of convolutions and linear layers lie with their outputs last,
as flax's do, and images are [B, H, W, C] outside and [B, C, H, W] inside. What is not trained, which is
buffers and frozen parameters, is a constant of the program: nobody sends or averages it.
"""

import contextlib
import dataclasses
import functools
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base import user_code
from saddle_jax.base.checks import ArgumentError, shown
from saddle_jax.base.types import Array, Key, Params
from saddle_jax.kernels.convolution import ConvImpl, convolve
from saddle_jax.models.functions import Functions
from saddle_jax.models.state_dict import Arrays, check_names, checked

_lock = threading.RLock()  # a forward pass replaces the module's tensors: one trace at a time
_NORMS = "GroupNorm, such as resnet18(norm_layer=lambda channels: nn.GroupNorm(2, channels))"


def from_torch(module: Any, example: Any = None, *, conv_impl: ConvImpl = "auto") -> Functions:
    """Returns a torch module as a model, which `model=` takes.

    Args:
      module: a `torch.nn.Module`, whose weights are the first ones of every seed; or its class, or another
        function without arguments that makes one, which draws weights for every seed.
      example: inputs [B, ...] as the dataset prepares them, images [B, H, W, C] or whole numbers [B, T]: the
        module is checked with them now. None: when it meets its data.
      conv_impl: how convolutions are computed, see `kernels.convolution`.
    """
    nn = _torch().nn
    first = module if isinstance(module, nn.Module) else _make(module, 0)
    layout = Layout(first)
    environment = _environment(conv_impl)
    weights = None if first is not module else layout.pack(first)

    def apply(params: Params, inputs: Any) -> Any:
        trained = layout.in_torch(params)
        rounded = next(iter(trained.values())).dtype  # of a model that computes in bfloat16
        fixed = {
            name: jnp.asarray(a, rounded if rounded == jnp.bfloat16 and a.dtype == np.float32 else a.dtype)
            for name, a in layout.constants.items()
        }
        return _forward(environment, first, layout.tied, trained, fixed, inputs)

    def init(key: Key, inputs: Any) -> Params:
        if weights is not None:
            return {name: jnp.asarray(array) for name, array in weights.items()}
        shapes = {name: jax.ShapeDtypeStruct(a.shape, a.dtype) for name, a in layout.pack(first).items()}
        return jax.pure_callback(
            lambda bits: layout.pack(_make(module, int(bits))), shapes, jax.random.bits(key)
        )

    name = type(first).__name__
    if example is not None:
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), jnp.asarray(x).dtype), example)
        with user_code.failing_as(f"model {name} failed on its example"):
            jax.eval_shape(apply, jax.eval_shape(init, jax.random.key(0), shapes), shapes)
    return Functions(name, init, apply, layout)


def to_torch(module: Any, params: Params) -> Any:
    """Returns a torch module with one agent's trained parameters; a module that is given is changed.

    Args:
      module: what `from_torch` was given.
      params: the parameters of one model, such as `Experiment.model()` returns.
    """
    torch = _torch()
    target = module if isinstance(module, torch.nn.Module) else _make(module, 0)
    arrays = Layout(target).state_dict(params)
    for name, parameter in target.named_parameters():
        if arrays[name].shape != tuple(parameter.shape):
            raise ArgumentError(
                f"params must be those of one agent, got {list(arrays[name].shape)} for {name} of "
                f"{list(parameter.shape)}"
            )
    target.load_state_dict({name: torch.from_numpy(np.array(a)) for name, a in arrays.items()}, strict=True)
    return target


class Layout:
    """Which tensors of a module are trained, and how they lie in our trees: kernels with outputs last.

    Attributes:
      names: the trained parameters, each of several tied ones once.
      tied: the other names of tied parameters, with the name that is trained.
      constants: frozen parameters and buffers.
    """

    def __init__(self, module: Any):
        nn = _torch().nn
        named = dict(module.named_parameters(remove_duplicate=False))
        for name, tensor in named.items():
            _check_tensor(name, tensor)
        for name, part in module.named_modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm) and (
                part.training or part.running_mean is None
            ):
                raise ArgumentError(
                    "model must not depend on a batch's statistics, which agents cannot average, got "
                    f"{type(part).__name__} in {name or 'the module'}: use {_NORMS}, or freeze it by .eval()"
                )
        self.names = [name for name, tensor in module.named_parameters() if tensor.requires_grad]
        if not self.names:
            raise ArgumentError(f"model must have parameters to train, got none in {type(module).__name__}")
        first = {id(named[name]): name for name in self.names}
        self.tied = {
            name: first[id(tensor)]
            for name, tensor in named.items()
            if id(tensor) in first and name not in self.names
        }
        frozen = {name: tensor for name, tensor in named.items() if id(tensor) not in first}
        others = {**frozen, **dict(module.named_buffers(remove_duplicate=False))}
        self.constants = {name: _copy(tensor) for name, tensor in others.items()}
        self._saved = list(module.state_dict())
        last = {
            nn.Linear: (1, 0),
            nn.Conv1d: (2, 1, 0),
            nn.Conv2d: (2, 3, 1, 0),
            nn.Conv3d: (2, 3, 4, 1, 0),
        }
        kinds = {name: type(part) for name, part in module.named_modules()}
        self._axes = {
            name: axes
            for name in self.names
            if (axes := last.get(kinds[name.rpartition(".")[0]])) and len(axes) == named[name].ndim
        }

    def pack(self, module: Any) -> dict[str, np.ndarray]:
        """Returns a module's trained parameters in our layout."""
        return self._turned({name: _copy(tensor) for name, tensor in module.named_parameters()})

    def params(self, arrays: Arrays, like: Params) -> Params:
        """Returns the trained parameters of a state_dict, whose others must be those of the module."""
        check_names({*arrays, *self.tied}, self._saved)
        for name, constant in self.constants.items():
            if name in arrays and not np.array_equal(arrays[name], constant):
                raise ArgumentError(
                    f"file must have {name}, which is not trained, as the module has it: load it there"
                )
        return {name: checked(name, array, like[name]) for name, array in self._turned(arrays).items()}

    def _turned(self, arrays: Arrays) -> dict[str, np.ndarray]:
        return {
            name: np.ascontiguousarray(np.transpose(arrays[name], self._axes.get(name)))
            if name in self._axes
            else arrays[name]
            for name in self.names
        }

    def in_torch(self, params: Params) -> dict[str, Any]:
        """Returns trained parameters in torch's layout."""
        if not isinstance(params, Mapping) or sorted(params) != sorted(self.names):
            raise ArgumentError("params must be those of this module, got others")

        def turned(name: str, array: Any) -> Any:
            axes = self._axes.get(name, ())
            return array.transpose(np.argsort(axes)) if axes and array.ndim == len(axes) else array

        return {name: turned(name, params[name]) for name in self.names}

    def state_dict(self, params: Params) -> dict[str, np.ndarray]:
        """Returns the arrays of a state_dict: trained parameters, and all others as the module has them."""
        arrays = self.in_torch(jax.tree.map(np.asarray, params))
        arrays |= {name: arrays[origin] for name, origin in self.tied.items()}
        arrays |= self.constants
        return {name: arrays[name] for name in self._saved}

    arrays = state_dict  # what any file holds: names of torch mean its layout


def _copy(tensor: Any) -> np.ndarray:
    """Returns the values of a tensor, which do not change with it."""
    result: np.ndarray = tensor.detach().cpu().numpy().copy()
    return result


def _check_tensor(name: str, tensor: Any) -> None:
    """Refuses parameters without values, and those of few bits, which no method averages."""
    torch = _torch()
    if tensor.is_meta:
        raise ArgumentError(
            f"model must have weights, got {name} on the device meta: use to_empty or load it"
        )
    if tensor.dtype not in (torch.float32, torch.float64):
        raise ArgumentError(
            f"model must have float32 parameters, got {tensor.dtype} in {name}: call float(), and train with "
            "precision=bfloat16"
        )


def _torch() -> Any:
    """Imports torch and torchax, the extra `torch`."""
    try:
        import torch
        import torchax  # noqa: F401  # imported with torch, for one message
    except ImportError as error:
        raise ArgumentError(
            f"modules of PyTorch need the extra torch: pip install 'saddle_jax[torch]' ({error})"
        ) from error
    return torch


def _make(factory: Any, seed: int) -> Any:
    """Makes a module whose weights are drawn from a seed; torch's own random state stays as it is."""
    torch = _torch()
    if not callable(factory):
        raise ArgumentError(
            f"module must be a torch.nn.Module or a function that makes one, got {shown(factory)}"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        with user_code.failing_as("module cannot be made"):
            made = factory()
    if not isinstance(made, torch.nn.Module):
        raise ArgumentError(
            f"module must be a torch.nn.Module or a function that makes one, got {shown(made)}"
        )
    return made


# ---- a forward pass in JAX ----


def _forward(
    environment: Any,
    module: Any,
    tied: Mapping[str, str],
    trained: Mapping[str, Array],
    constants: Mapping[str, Array],
    inputs: Any,
) -> Any:
    """Computes a module's outputs with these parameters."""
    torch = _torch()
    x = jnp.asarray(inputs)
    if x.dtype == jnp.uint8:
        raise ArgumentError("inputs must be numbers as after normalisation, or int32 for tokens, got uint8")
    broadcasts = jax.numpy_rank_promotion("allow")  # as torch does
    with _lock, warnings.catch_warnings(), broadcasts, _refusing(type(module).__name__):
        warnings.simplefilter("ignore")  # torchax tells of what it registers
        x = environment.images.in_torch(x) if x.ndim == 4 else x
        tensors = environment.j2t_iso({**trained, **constants})
        tensors |= {name: tensors[origin] for name, origin in tied.items()}
        try:
            with environment:
                outputs = torch.func.functional_call(
                    module, tensors, (environment.j2t_iso(x),), tie_weights=False
                )
        finally:
            environment.images.clear()
        changed = [name for name, array in constants.items() if tensors[name].jax() is not array]
        if changed:
            raise ArgumentError(
                "model must keep parameters alone, which agents average, got buffers that a forward pass "
                f"changes ({', '.join(changed[:3])})"
            )
        outputs = getattr(outputs, "logits", outputs)  # Hugging Face's models return more
        if not isinstance(outputs, torch.Tensor):
            raise ArgumentError(f"model must return one tensor, got {type(outputs).__name__}")
        return environment.t2j_iso(outputs)


@contextlib.contextmanager
def _refusing(name: str) -> Iterator[None]:
    """Tells in one line what a module does that cannot be traced; gradients of its own are refused."""
    import torch
    from torchax.tensor import OperatorNotFound

    def own_gradient(cls: Any, *inputs: Any) -> Any:
        raise ArgumentError(
            "model must be differentiated by its operations, got the torch.autograd.Function "
            f"{cls.__name__}, whose backward JAX does not see"
        )

    theirs = torch.autograd.Function.__dict__["apply"]
    torch.autograd.Function.apply = classmethod(own_gradient)
    try:
        yield
    except ArgumentError:
        raise
    except jax.errors.ConcretizationTypeError as error:
        raise ArgumentError(
            f"model must not branch on data, which a compiled step does not know, got {name}, which does: "
            "use torch.where"
        ) from error
    except OperatorNotFound as error:
        raise ArgumentError(f"model must use operations that torchax knows, got {name}: {error}") from error
    except AssertionError as error:
        if "mixed math" not in str(error):
            raise
        raise ArgumentError(
            f"model must have its tensors as parameters or buffers, got one in {name} that is neither: use "
            "register_buffer"
        ) from error
    finally:
        torch.autograd.Function.apply = theirs


@functools.cache
def _environment(conv_impl: ConvImpl) -> Any:
    """Returns torchax's environment with our convolutions, few transposes, and without random numbers."""
    import torch
    from torchax import tensor
    from torchax.ops.ops_registry import Operator

    class Environment(tensor.Environment):  # type: ignore[misc]
        """torchax's operations as a step needs them."""

        param: Any = _NoRandom()

        def load_ops(self) -> None:
            super().load_ops()
            self.images = images = Images()
            aten = torch.ops.aten
            theirs = self._ops[aten.convolution].func
            ours = {
                aten.convolution: functools.partial(_convolution, images, conv_impl, theirs),
                aten.native_group_norm: functools.partial(_group_norm, images),
            }
            for packet, run in ours.items():
                for name in (packet, packet.default):
                    self._ops[name] = Operator(name, run, True, True, False, False)  # a function of arrays
            packets = {getattr(aten, name) for name in _POINTWISE}
            for name, operator in self._ops.items():
                if getattr(name, "overloadpacket", name) in packets and operator.is_jax_function:
                    run = functools.partial(images.pointwise, operator.func)
                    self._ops[name] = dataclasses.replace(operator, func=run)

        def dispatch(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            found = super().dispatch(func, types, args, kwargs)
            if torch.is_grad_enabled() or not isinstance(found, tensor.Tensor):
                return found
            found._elem = jax.lax.stop_gradient(found._elem)  # torch.no_grad
            return found

    return Environment()


class _NoRandom:
    """What torchax asks for random keys, of which a forward pass has none."""

    mesh = autocast_dtype = None

    def get_and_rotate_prng_key(self) -> Any:
        raise ArgumentError(
            "model must draw no random numbers, for which a forward pass has no key, got one that does, such "
            "as dropout: set its p to 0, or call .eval()"
        )


# ---- convolutional networks: images stay [B, H, W, C] from one convolution to the next ----

# Operations of single numbers, which do not depend on the order of axes.
_POINTWISE = (
    "abs", "add", "clamp", "clamp_max", "clamp_min", "clone", "div", "elu", "exp", "gelu", "hardtanh",
    "leaky_relu", "log", "mul", "neg", "pow", "relu", "rsqrt", "rsub", "sigmoid", "silu", "softplus", "sqrt",
    "sub", "tanh",
)  # fmt: skip


class Images:
    """The images of a forward pass that are known as [B, H, W, C], by their arrays [B, C, H, W].

    An array that no operation reads as [B, C, H, W] is never computed.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Array, Array]] = {}

    def clear(self) -> None:
        """Forgets all images."""
        self._known.clear()

    def in_torch(self, ours: Array) -> Array:
        """Returns images [B, H, W, C] as [B, C, H, W]."""
        theirs = ours.transpose(0, 3, 1, 2)
        self._known[id(theirs)] = theirs, ours
        return theirs

    def ours(self, theirs: Array) -> Array:
        """Returns images [B, C, H, W] as [B, H, W, C]."""
        known = self._known.get(id(theirs))
        return theirs.transpose(0, 2, 3, 1) if known is None else known[1]

    def pointwise(self, run: Callable[..., Array], *args: Any, **kwargs: Any) -> Array:
        """Runs an operation of single numbers on images as they are known; others may broadcast to them."""
        if not any(id(each) in self._known for each in args):
            return run(*args, **kwargs)

        def turned(each: Any) -> Any:
            if not isinstance(each, jax.Array) or not each.ndim:
                return each
            return self.ours(each if each.ndim == 4 else each.reshape((1,) * (4 - each.ndim) + each.shape))

        return self.in_torch(run(*map(turned, args), **kwargs))


def _convolution(
    images: Images,
    conv_impl: ConvImpl,
    theirs: Callable[..., Array],
    x: Array,
    weight: Array,
    bias: Array | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Array:
    """Convolves images by our own kernels where they do that convolution."""
    is_square = x.ndim == 4 and len({*stride}) == len({*padding}) == 1 and {*dilation} == {1}
    depthwise = x.ndim == 4 and groups == x.shape[1] == weight.shape[0]
    if transposed or not is_square or (groups > 1 and not depthwise):
        return theirs(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    y = convolve(
        images.ours(x),
        weight.transpose(2, 3, 1, 0),
        stride=int(stride[0]),
        padding=int(padding[0]),
        groups=groups,
        conv_impl=conv_impl,
    )
    return images.in_torch(y if bias is None else y + bias)


def _group_norm(
    images: Images,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    batch: int,
    channels: int,
    pixels: int,
    groups: int,
    epsilon: float,
) -> tuple[Array, Array, Array]:
    """Normalises each group of channels of [B, C, ...], whose channels are the last axis meanwhile."""
    last = images.ours(x) if x.ndim == 4 else jnp.moveaxis(x, 1, -1)
    grouped = last.reshape(*last.shape[:-1], groups, channels // groups)
    axes = (*range(1, last.ndim - 1), last.ndim)
    mean = grouped.mean(axes, keepdims=True)
    variance = jnp.square(grouped).mean(axes, keepdims=True) - jnp.square(mean)  # in the same pass
    inverse = jax.lax.rsqrt(jnp.maximum(variance, 0) + epsilon)
    slope = inverse if weight is None else inverse * weight.reshape(groups, -1)
    y = ((grouped - mean) * slope).reshape(last.shape)
    y = y if bias is None else y + bias
    y = images.in_torch(y) if x.ndim == 4 else jnp.moveaxis(y, -1, 1)
    return y, mean.reshape(batch, groups), inverse.reshape(batch, groups)
