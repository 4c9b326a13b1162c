"""Precision of a model's products: float32, TF32 or bfloat16. Everything else in a step is float32.

    float32    products of float32 numbers, on every kind of hardware
    tf32       float32 numbers, of which NVIDIA's tensor cores multiply the first 11 bits; sums are float32
    bfloat16   parameters, inputs and activations are rounded to 8 bits; norms, sums within a product and the
               loss are float32; a CPU computes these products in float32

JAX's own default for float32 depends on the hardware: it is float32 on a CPU, TF32 on a GPU and bfloat16 on a
TPU. So it is always set here. Parameters, gradients, the method's state, compression and gossip are always
float32: only a model's `apply` computes in another precision.
"""

import contextlib
import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Params, Tree
from saddle_jax.devices import policy
from saddle_jax.models.functions import Functions

Precision = Literal["float32", "tf32", "bfloat16"]
PRECISIONS = ("float32", "tf32", "bfloat16")


def products(precision: Precision = "float32") -> contextlib.AbstractContextManager[Any]:
    """A context in which all products of float32 numbers that are traced have a precision."""
    level = "tensorfloat32" if precision == "tf32" else "highest"
    result: contextlib.AbstractContextManager[Any] = jax.default_matmul_precision(
        None if policy.is_cpu() else level
    )
    return result


@functools.lru_cache(maxsize=64)
def in_precision(model: Functions, precision: Precision) -> Functions:
    """Returns a model whose products have a precision; cached, so that it is compiled once."""

    def apply(params: Params, inputs: Any) -> Any:
        with products(precision):
            if precision != "bfloat16":
                return model.apply(params, inputs)
            outputs = model.apply(_rounded(params, jnp.bfloat16), _rounded(inputs, jnp.bfloat16))
            return _rounded(outputs, jnp.float32)

    return model._replace(apply=apply)


def check_precision(precision: str) -> None:
    """Checks that the hardware has a precision: without TF32 that setting would silently be float32."""
    if precision == "tf32" and not policy.has_tf32():
        raise ArgumentError(
            "precision must be float32 or bfloat16 on this hardware, which has no TF32 (NVIDIA's GPUs have, "
            f"from Ampere on), got {precision!r}"
        )


def _rounded(tree: Tree, dtype: Any) -> Tree:
    """Returns a tree with its floating-point leaves in a dtype; integers, such as characters, stay."""
    return jax.tree.map(lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)
