"""What the step of one agent takes, told from shapes: the operations of its kernels, and its memory."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.extend
import numpy as np

from saddle_jax.base.types import Params
from saddle_jax.core.method import Method
from saddle_jax.devices import policy
from saddle_jax.devices.placement import Placement
from saddle_jax.training.build import Replica
from saddle_jax.training.step import Carry

# Of a device's memory; libraries of kernels want some for themselves, which no estimate knows.
_USED = 0.8


def of_agent(
    replicas: Sequence[Replica], method: Method, carry: Carry, placement: Placement, at_once: int
) -> policy.Work:
    """Returns the work of one agent, and the room for it on a device that computes `at_once` runs.

    `carry` has the shapes that one run carries from step to step.
    """
    replica, memory = replicas[0], policy.device_memory()
    if memory is not None:
        gradients = copies(method, carry.params, is_grouped=True) * size_of(carry.params) * at_once
        carried = size_of(carry) * len(replicas)
        held = (gradients + carried) // placement.devices + stored(replicas, placement)
        memory = max(0, int(_USED * memory) - held)
    return policy.Work(
        operations=_mean_operations(replica) / placement.batch_devices,
        memory=kept(replica, method, carry.params, placement),
        room=memory,
    )


def copies(method: Method, params: Params, is_grouped: bool) -> int:
    """Returns how many numbers a step needs for each parameter: gradients, updates, groups' results."""
    pairs = max((_width(method) if kind == "pairs" else 1 for kind in method.asked(params)), default=1)
    return pairs + 1 + is_grouped


def kept(replica: Replica, method: Method, params: Params, placement: Placement) -> int:
    """Returns the bytes that one agent's gradient needs between its forward and its backward pass."""
    is_one = method.ascent.is_linear and policy.joins_neighbours()
    batches = _width(method) if is_one and "mean" in method.asked(params) else 1
    return policy.activations_held() * batches * kept_of_batch(replica) // placement.batch_devices


def kept_of_batch(replica: Replica) -> int:
    """Returns the bytes that a forward pass on one batch keeps for the backward pass."""

    def forward(params: Any, batch: Any) -> Any:
        return jax.vjp(lambda x: replica.loss_fn(x, batch)[0], params)[1]

    return size_of(jax.eval_shape(forward, jax.eval_shape(replica.first_model), replica.batch_shapes()))


def stored(replicas: Sequence[Replica], placement: Placement) -> int:
    """Returns the bytes of the samples on a device: all to train with or, streamed, its agents' batches."""
    leaves = {id(leaf): leaf for one in replicas for leaf in jax.tree.leaves(one.dataset.train)}
    if not replicas[0].dataset.is_streamed:
        return sum(leaf.shape[0] * _bytes_of_sample(leaf) for leaf in leaves.values())
    samples = len(replicas) * placement.per_device * replicas[0].batches.size
    return samples * sum(_bytes_of_sample(leaf) for leaf in jax.tree.leaves(replicas[0].dataset.train))


def _bytes_of_sample(leaf: Any) -> int:
    return math.prod(leaf.shape[1:]) * np.dtype(leaf.dtype).itemsize


def size_of(shapes: Any) -> int:
    """Returns the bytes of all arrays of a tree, of which only the shapes are looked at."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def _width(method: Method) -> int:
    """Returns the number of an agent's neighbours, itself among them, at the most."""
    return int(method.topology.graphs[0].neighbours.shape[1])


def _mean_operations(replica: Replica) -> float:
    """Returns the floating-point operations of one convolution or matrix product of a forward pass."""
    loss = replica.loss_of("plain")
    traced = jax.make_jaxpr(lambda params, batch: loss(params, batch)[0])(
        jax.eval_shape(replica.first_model), replica.batch_shapes()
    )
    found = list(_operations(traced.jaxpr))
    return sum(found) / max(1, len(found))


def _operations(jaxpr: Any) -> Iterator[float]:
    """Yields the operations of each convolution and matrix product, those of inner functions too."""
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name in ("conv_general_dilated", "dot_general"):
            left, right = (operand.aval for operand in equation.invars)
            result = equation.outvars[0].aval
            if name == "dot_general":
                ((contracted, _), _) = equation.params["dimension_numbers"]
                terms = math.prod(left.shape[axis] for axis in contracted)
            else:
                outputs = right.shape[equation.params["dimension_numbers"].rhs_spec[0]]
                terms = right.size // outputs
            yield 2.0 * result.size * terms
        for inner in jax.extend.core.jaxprs_in_params(equation.params):
            yield from _operations(inner)
