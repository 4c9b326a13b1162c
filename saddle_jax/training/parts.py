"""What all runs of a program share: data, model, objective and method, as objects.

Settings name them, and `of_settings` makes them. A program of your own hands its objects over instead; from
there on both are the same.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, cast

import optax

from saddle_jax.base.checks import ArgumentError
from saddle_jax.core.method import Method
from saddle_jax.core.mixing import Graphs
from saddle_jax.data import Dataset, given, load
from saddle_jax.data.recipes import Augmentation
from saddle_jax.kernels.convolution import Lowering
from saddle_jax.models.functions import Functions
from saddle_jax.models.layers import Norm
from saddle_jax.models.spelling import make_model
from saddle_jax.settings.config import Config, build_topology
from saddle_jax.tasks.named_objectives import make_objective
from saddle_jax.tasks.objectives import Objective
from saddle_jax.training import methods

# (settings, graph, steps per epoch, swept numbers) -> method and learning rate, which may be unknown
MethodMaker = Callable[[Config, Graphs, int, Mapping[str, Any]], tuple[Method, optax.Schedule | None]]


@dataclasses.dataclass(frozen=True, eq=False)
class Parts:
    """The parts of runs that differ in the seed, or in numbers of their settings.

    Attributes:
      dataset: the samples of all runs, before a subset is chosen.
      model: lowering -> the network of every agent; see `models.convolution` for the ways to compile one.
      objective: a model -> what it learns.
      topology: settings -> who hears whom, without idle agents.
      method: settings, graph, steps per epoch and swept numbers, which replace settings and may be traced ->
        method and learning rate. The learning rate is None where only the method knows it.
    """

    dataset: Dataset
    model: Callable[[Lowering], Functions]
    objective: Callable[[Functions], Objective]
    topology: Callable[[Config], Graphs]
    method: MethodMaker


def of_settings(config: Config, dataset: Dataset | None = None) -> Parts:
    """Makes the parts that the settings name; the data is loaded, unless what stands in for it is given."""
    dataset = load(config.dataset, config.data_dir or None) if dataset is None else dataset
    if config.objective == "regression":  # of classes, too, which are then numbers
        dataset = dataclasses.replace(dataset, outputs=given.outputs_of(dataset.train))
    objective = dataset.objective if config.objective == "auto" else config.objective
    return Parts(
        dataset=_augmented(dataset, config),
        # The same functions again and again: they are compiled once.
        model=functools.cache(lambda lowering: _network(config, dataset, lowering)),
        objective=functools.cache(lambda model: make_objective(objective, model)),
        topology=build_topology,
        method=methods.with_numbers,
    )


def _augmented(dataset: Dataset, config: Config) -> Dataset:
    if config.augmentation == "auto":
        return dataset
    if dataset.recipe is None:
        raise ArgumentError(
            f"augmentation must be auto for {dataset.name}, which has no images, got {config.augmentation!r}"
        )
    recipe = dataclasses.replace(dataset.recipe, augmentation=cast(Augmentation, config.augmentation))
    return dataclasses.replace(dataset, recipe=recipe)


def _network(config: Config, dataset: Dataset, lowering: Lowering) -> Functions:
    name = dataset.model if config.model == "auto" else config.model
    return make_model(name, dataset.num_outputs, cast(Norm, config.norm), lowering)
