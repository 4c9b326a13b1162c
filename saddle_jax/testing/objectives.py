"""The invariants of objectives: one loss of one agent, and metrics that an evaluation finds."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base.types import Batch, Params
from saddle_jax.core.trees import replicate
from saddle_jax.data.dataset import Dataset
from saddle_jax.data.partition import make_partition
from saddle_jax.data.sources import load
from saddle_jax.models import initialise, make_model
from saddle_jax.models.functions import Functions
from saddle_jax.tasks import objectives
from saddle_jax.tasks.objectives import Objective, TaskContext, objective_of
from saddle_jax.testing.invariants import InapplicableError, InvariantError, Result, results_of, verify
from saddle_jax.testing.models import DATASET, ModelTrial, batch_of
from saddle_jax.testing.randomness import draws_of
from saddle_jax.testing.trial import compiled

_CLOSE = 1e-5  # in float32


class ObjectiveTrial:
    """A trial of an objective with a model on a dataset; it is made when the first invariant asks for it."""

    def __init__(self, objective: Any, model: Any, dataset: Dataset | None):
        self._objective = objective
        self.dataset = dataset or load(DATASET)
        self._model = model

    @functools.cached_property
    def model(self) -> Functions:
        """The model that learns: the dataset's own if none was given."""
        if self._model is None:
            return make_model(self.dataset.model, self.dataset.num_outputs, "evonorm", "fast")
        return ModelTrial(self._model, self.dataset, {}).model

    @functools.cached_property
    def objective(self) -> Objective:
        """The objective that is on trial, made for the model."""
        return objective_of(self._objective, self.model)

    @functools.cached_property
    def params(self) -> Params:
        """The model's parameters, as a run begins."""
        return initialise(self.model, self.dataset.inputs_of_one, jax.random.key(0))

    @functools.cached_property
    def batch(self) -> Batch:
        """A few samples as the loss sees them, [B, ...]."""
        return batch_of(self.dataset, self.objective)

    @functools.cached_property
    def loss(self) -> Callable[[Params, Batch], Any]:
        """The loss and its gradient, as a compiled function."""
        return compiled(jax.value_and_grad(self.objective.loss, has_aux=True))


def the_loss_is_one_finite_number_with_a_gradient(trial: ObjectiveTrial) -> str:
    """Checks loss and gradient on a few samples, and that the loss is a function of nothing else."""
    shape, _ = jax.eval_shape(trial.objective.loss, trial.params, trial.batch)
    if shape.shape != ():
        raise InvariantError(f"the loss must be one number, got {list(shape.shape)}")
    (loss, _), gradient = trial.loss(trial.params, trial.batch)
    leaves = jax.tree.leaves(gradient)
    if not np.isfinite(loss) or not all(np.isfinite(leaf).all() for leaf in leaves):
        raise InvariantError(f"the loss is {float(loss):.4g}, and it or its gradient is not finite")
    if not any(np.asarray(leaf).any() for leaf in leaves):
        raise InvariantError("the gradient is zero everywhere: nothing would be learned")
    closed = jax.make_jaxpr(trial.objective.loss)(trial.params, trial.batch)
    if draws_of(closed, [True] * len(closed.jaxpr.invars)).all:
        raise InvariantError("it draws random numbers, for which a loss has no key")
    return f"loss {float(loss):.4g}"


def agents_are_an_axis_that_vmap_adds(trial: ObjectiveTrial) -> str:
    """Checks that the losses of several agents can be computed at once."""
    inputs = trial.params, trial.batch
    stacked = jax.eval_shape(lambda: replicate(inputs, 3))
    losses, _ = jax.eval_shape(jax.vmap(trial.objective.loss), *stacked)
    if losses.shape != (3,):
        raise InvariantError(f"three agents have losses {list(losses.shape)}")
    return "losses of three agents"


def the_order_of_the_samples_does_not_matter(trial: ObjectiveTrial) -> str:
    """Checks that the loss is a mean over samples, whichever comes first."""
    turned = jax.tree.map(lambda leaf: leaf[::-1], trial.batch)
    (one, _), (other, _) = (trial.loss(trial.params, batch)[0] for batch in (trial.batch, turned))
    if abs(float(one - other)) > _CLOSE * max(1.0, abs(float(one))):
        raise InvariantError(
            f"the loss is {float(one):.6g}, and with the samples turned round {float(other):.6g}"
        )
    return "the samples turned round"


def samples_that_the_mask_leaves_out_do_not_count(trial: ObjectiveTrial) -> str:
    """Checks that a batch which is filled up has the loss of the samples that are in it."""
    if not trial.objective.masked:
        raise InapplicableError("it reads no mask: its batches are whole")
    mask = jnp.zeros_like(trial.batch["mask"]).at[0].set(1.0)
    filled = {**trial.batch, "mask": mask}
    other = {**jax.tree.map(lambda leaf: leaf.at[1:].set(leaf[:1]), trial.batch), "mask": mask}
    (one, _), (two, _) = (trial.loss(trial.params, batch)[0] for batch in (filled, other))
    if abs(float(one - two)) > _CLOSE * max(1.0, abs(float(one))):
        raise InvariantError(
            f"the loss of one sample is {float(one):.6g}, and beside others {float(two):.6g}"
        )
    return "one sample of a batch that is filled up"


def an_evaluation_finds_every_metric(trial: ObjectiveTrial) -> str:
    """Checks that the test set gives a finite number for each metric, one of which is the loss."""
    objective, dataset = trial.objective, trial.dataset
    names = [metric.name for metric in objective.metrics]
    if "loss" not in names:
        raise InvariantError(f"one metric must be the loss, got {', '.join(names)}")
    values = objectives.evaluate(objective, trial.params, dataset.test, dataset.recipe)
    if objective.of_model is not None:
        labels = dataset.labels if dataset.labels is not None else np.zeros(dataset.size, np.int32)
        context = TaskContext(dataset, make_partition("iid", labels, 2, seed=0), 0.0)
        values |= {name: float(value) for name, value in objective.of_model(context)(trial.params).items()}
    for name in names:
        if name not in values or not np.isfinite(values[name]):
            raise InvariantError(f"metric {name} is {values.get(name, 'not there')}")
    return ", ".join(f"{name} {values[name]:.4g}" for name in names)


INVARIANTS = (
    the_loss_is_one_finite_number_with_a_gradient,
    agents_are_an_axis_that_vmap_adds,
    the_order_of_the_samples_does_not_matter,
    samples_that_the_mask_leaves_out_do_not_count,
    an_evaluation_finds_every_metric,
)


def check_objective(
    objective: Any,
    *,
    model: Any = None,
    dataset: Dataset | None = None,
    tell: Callable[[str], None] | None = None,
) -> list[Result]:
    """Checks every invariant of an objective.

    Args:
      objective: a name; an Objective; a loss (params, batch); or a function that makes a loss or an Objective
        of the model's `apply`.
      model: what learns, see `check_model`; by default the model that the dataset names.
      dataset: what is learned; the digits by default.
      tell: is called with each invariant before it is tried.
    """
    return verify(results_of(INVARIANTS, ObjectiveTrial(objective, model, dataset), tell, gates=1))
