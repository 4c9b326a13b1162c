"""The invariants of models: functions of one agent's parameters and inputs."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base.types import Batch, Params
from saddle_jax.core.trees import replicate
from saddle_jax.data.dataset import Dataset
from saddle_jax.data.sources import load
from saddle_jax.models import count, initialise
from saddle_jax.models.functions import Functions, functions, parameters
from saddle_jax.tasks import objectives
from saddle_jax.tasks.objectives import Objective
from saddle_jax.testing.invariants import Invariant, InvariantError, Result, results_of, verify
from saddle_jax.testing.randomness import draws_of
from saddle_jax.testing.trial import compiled

DATASET = "digits"  # the default dataset
_SAMPLES = 4
_CLOSE = 1e-4  # in float32, through a network


class ModelTrial:
    """The model under test with a few samples of a dataset, made on first use."""

    def __init__(self, model: Any, dataset: Dataset | None, options: dict[str, Any]):
        self._thing, self._options = model, options
        self.dataset = dataset or load(DATASET)

    @functools.cached_property
    def model(self) -> Functions:
        """The model as two functions; a class or factory gets `num_classes` if it has that parameter."""
        thing = self._thing
        if not (isinstance(thing, type) or (callable(thing) and not hasattr(thing, "apply"))):
            return functions(thing)
        names = parameters(thing)
        arguments = {"num_classes": self.dataset.num_outputs} if "num_classes" in names else {}
        made = functools.partial(thing, **arguments, **self._options)
        return functions(made if "rngs" in names else made())

    @functools.cached_property
    def objective(self) -> Objective:
        """The dataset's default objective."""
        return objectives.make(self.dataset.objective, self.model)

    def init(self, seed: int = 0) -> Params:
        """Initialises parameters as a run with this seed does."""
        return initialise(self.model, self.dataset.inputs_of_one, jax.random.key(seed))

    @functools.cached_property
    def params(self) -> Params:
        """The parameters of the first seed."""
        return self.init()

    @functools.cached_property
    def batch(self) -> Batch:
        """The first samples of the training data, as a model sees them, [B, ...]."""
        return batch_of(self.dataset, self.objective)

    @functools.cached_property
    def apply(self) -> Callable[[Params, Any], Any]:
        """The model as a compiled function."""
        return compiled(self.model.apply)


def batch_of(dataset: Dataset, objective: Objective) -> Batch:
    """Returns the first training samples as the loss sees them, with a mask if it uses one."""
    few = np.arange(min(_SAMPLES, dataset.size))
    batch = dataset.prepared(jax.tree.map(lambda leaf: jnp.asarray(leaf[few]), dataset.train))
    return {**batch, "mask": jnp.ones(len(few))} if objective.masked else batch


def outputs_fit_what_is_learned(trial: ModelTrial) -> str:
    """Checks the shapes of outputs for one sample and for several, and that parameters are floats."""
    one = trial.dataset.inputs_of_one
    params = jax.eval_shape(lambda: trial.init())
    for path, leaf in jax.tree.leaves_with_path(params):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise InvariantError(
                f"params{jax.tree_util.keystr(path)} must be real to be averaged, got {leaf.dtype}"
            )
    outputs = jax.eval_shape(trial.model.apply, params, one)
    if trial.objective.check is not None:
        trial.objective.check(outputs, trial.dataset)
    many = jax.tree.map(lambda x: jax.ShapeDtypeStruct((3, *x.shape[1:]), x.dtype), one)
    shapes = [tuple(x.shape) for x in jax.tree.leaves(jax.eval_shape(trial.model.apply, params, many))]
    expected = [(3, *x.shape[1:]) for x in jax.tree.leaves(outputs)]
    if shapes != expected:
        raise InvariantError(f"three samples must give outputs {expected}, as one sample does, got {shapes}")
    return f"{count(params):,} parameters, outputs {['B', *shapes[0][1:]]}".replace("'", "")


def agents_are_an_axis_that_vmap_adds(trial: ModelTrial) -> str:
    """Checks that gradients of several agents' models can be computed with vmap."""
    samples = trial.batch
    params, batch = jax.eval_shape(lambda: (replicate(trial.init(), 3), replicate(samples, 3)))
    gradients, _ = jax.eval_shape(jax.vmap(jax.grad(trial.objective.loss, has_aux=True)), params, batch)
    if [x.shape for x in jax.tree.leaves(gradients)] != [x.shape for x in jax.tree.leaves(params)]:
        raise InvariantError("the gradients of three models do not have the shapes of the models")
    return "gradients of three models"


def a_seed_gives_one_model(trial: ModelTrial) -> str:
    """Checks that the initial parameters are a function of the key."""
    if not _same(trial.params, trial.init()):
        raise InvariantError("one seed gives two models: draw from the key alone")
    inputs = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), trial.dataset.inputs_of_one)
    closed = jax.make_jaxpr(trial.model.init)(jax.random.key(0), inputs)
    draws = draws_of(closed, [True] + [False] * len(jax.tree.leaves(inputs)))
    if draws.constant and len(draws.constant) < len(draws.all):
        raise InvariantError(
            f"{', '.join(draws.constant.values())} is drawn from a key that is the same for all seeds"
        )
    return "seeds give models that " + (
        "are all the same" if _same(trial.params, trial.init(1)) else "differ"
    )


def one_input_gives_one_output(trial: ModelTrial) -> str:
    """Checks that a model is deterministic, unlike dropout: evaluations are compared."""
    closed = jax.make_jaxpr(trial.model.apply)(trial.params, _inputs(trial.batch))
    if draws_of(closed, [True] * len(closed.jaxpr.invars)).all:
        raise InvariantError("it draws random numbers when it is used")
    return "it draws nothing"


def samples_of_a_batch_do_not_see_each_other(trial: ModelTrial) -> str:
    """Checks that a sample's output does not depend on the rest of the batch, unlike with batch norm."""
    inputs = _inputs(trial.batch)
    together = trial.apply(trial.params, inputs)
    other = jax.tree.map(lambda x: x.at[1:].set(x[:1]), inputs)
    apart = trial.apply(trial.params, other)
    gap = max(
        float(jnp.abs(a[0] - b[0]).max())
        for a, b in zip(*map(jax.tree.leaves, (together, apart)), strict=True)
    )
    if not gap < _CLOSE:
        raise InvariantError(f"the first output changes by {gap:.1e} if the other samples do")
    return f"{_SAMPLES} samples"


def gradients_are_finite_and_so_are_products_with_the_hessian(trial: ModelTrial) -> str:
    """Checks gradients and Hessian-vector products at the initial parameters."""

    @compiled
    def derivatives(params: Params) -> tuple[Params, Params]:
        def gradient(params: Params) -> Params:
            return jax.grad(trial.objective.loss, has_aux=True)(params, trial.batch)[0]

        return jax.jvp(gradient, (params,), (params,))

    gradient, product = derivatives(trial.params)
    for name, tree in (("the gradient", gradient), ("a product with the Hessian", product)):
        for path, leaf in jax.tree.leaves_with_path(tree):
            if not np.isfinite(leaf).all():
                raise InvariantError(f"{name} is not finite in params{jax.tree_util.keystr(path)}")
    if not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(gradient)):
        raise InvariantError("the gradient is zero everywhere: nothing would be learned")
    return f"{len(jax.tree.leaves(gradient))} tensors"


def _inputs(batch: Batch) -> Any:
    return batch["inputs"] if isinstance(batch, dict) and "inputs" in batch else batch


def _same(one: Params, other: Params) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True))


# These only trace, which is cheap for a large model, too.
SHAPES = (outputs_fit_what_is_learned, agents_are_an_axis_that_vmap_adds)
INVARIANTS = (
    *SHAPES,
    a_seed_gives_one_model,
    one_input_gives_one_output,
    samples_of_a_batch_do_not_see_each_other,
    gradients_are_finite_and_so_are_products_with_the_hessian,
)


def check_model(
    model: Any,
    options: dict[str, Any] | None = None,
    *,
    dataset: Dataset | None = None,
    invariants: Sequence[Invariant] = INVARIANTS,
    tell: Callable[[str], None] | None = None,
) -> list[Result]:
    """Checks every invariant of a model.

    Args:
      model: anything that `models.functions` accepts, or a class or function that makes it, which gets
        `num_classes` if it has that parameter.
      options: further arguments of the class or function.
      dataset: the training data; the digits by default.
      invariants: the invariants to check; if the first fails, the others do not apply.
      tell: called with each invariant before it is checked.
    """
    return verify(results_of(invariants, ModelTrial(model, dataset, options or {}), tell, gates=1))
