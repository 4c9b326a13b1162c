"""What a run of Python objects computes, as a fingerprint: there is no file whose hash would tell.

It is that of the traced step, with its operations and constants: of method, ascent, graph, model and loss; of
the traced metrics; and of the model before the first step.
"""

import functools
import hashlib
import re
from typing import Any

import jax
import numpy as np

from saddle_jax.base import brought
from saddle_jax.runs.checkpoints import tree_sha256
from saddle_jax.settings.sweep import parse_sweep
from saddle_jax.tasks.objectives import scored
from saddle_jax.training.program import Program


def fingerprint(program: Program) -> str | None:
    """Returns the fingerprint of a step, if the settings name objects that no file holds; else None."""
    config = program.config
    named = (config.method, config.model, config.dataset, config.objective, config.topology)
    if not any(map(brought.is_object, named)):
        return None
    replica = program.replica
    numbers = {name: values[0] for name, values in parse_sweep(config.sweep).items()}
    method, _ = replica.method_on(replica.topology, numbers)
    params = jax.eval_shape(replica.first_params)
    state = jax.eval_shape(method.init, params)
    batch = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((config.agents, *x.shape), x.dtype), replica.batch_shapes()
    )

    def step(params: Any, state: Any, batch: Any, key: Any) -> Any:
        return method.step(replica.loss_fn, params, state, batch, key)[:2]

    digest = hashlib.sha256(tree_sha256(replica.first_model()).encode())
    for traced in (
        jax.make_jaxpr(step)(params, state, batch, jax.random.key(0)),
        jax.make_jaxpr(functools.partial(scored, replica.objective, replica.dataset.recipe))(
            jax.eval_shape(replica.first_model), replica.test_shapes(2)
        ),
    ):
        digest.update(re.sub(r"0x[0-9a-f]+", "", str(traced.jaxpr)).encode())
        for constant in traced.consts:
            array = np.asarray(constant)
            digest.update(f"{array.shape} {array.dtype}".encode() + array.tobytes())
    return digest.hexdigest()[:16]
