"""What is to be learned, from objects: data, a model, a loss, and how the data is dealt out."""

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import optax

from saddle_jax.base import brought, checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.core.method import Method
from saddle_jax.core.mixing import Graphs
from saddle_jax.data import given, others, sources
from saddle_jax.data.dataset import Dataset
from saddle_jax.models.convolution import Lowering
from saddle_jax.models.functions import Functions, functions
from saddle_jax.models.layers import NORMS, Norm
from saddle_jax.models.spelling import make_model
from saddle_jax.training.config import Config
from saddle_jax.training.named_objectives import objective_of
from saddle_jax.training.objectives import Metric, Objective
from saddle_jax.training.parts import Parts


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """Data, a model and a loss; what each agent has of the data, and how a model is judged.

    >>> x = np.linspace(-1, 1, 80)[:, None]
    >>> line = (lambda key: {"w": jnp.zeros(1)}, lambda params, x: x @ params["w"])
    >>> problem = training.Problem((x, 3 * x[:, 0]), (x, 3 * x[:, 0]), model=line)
    >>> problem.dataset.objective, problem.dataset.size
    ('regression', 80)

    Attributes:
      train: samples to train with: (inputs, targets), or any tree of arrays [N, ...] for a loss of your own;
        a list of these where they are divided already, one for each agent. Or the name of a dataset of ours
        or of tfds, a file .npz, a folder of images by class, a dict of Hugging Face splits, or a
        `data.Dataset`: these bring their own `test`.
      test: samples to test with, of the same kind.
      model: a flax module (linen or nnx), the class of an nnx module, a pair of functions (init, apply), or
        the name of one of ours; None is the data's own, cnn for images and mlp for other inputs.
      loss: "classification", "regression", "language"; a function (params, batch) -> loss, or (loss, aux), of
        one agent; or "auto": what the data are for.
      metrics: metrics of your own, `training.Metric(name, better, function)`; tables show the first.
      partition: how samples are dealt out, as the setting of this name.
      alpha: concentration of the Dirichlet partitions, less is more skewed; for "sorted", shards per agent.
      norm: normalization of a network of ours.
      name: what the data are called; the default is their own name.
      data_dir: folder of datasets that tfds prepared.
    """

    train: Any
    test: Any = None
    model: Any = None
    loss: Any = "auto"
    metrics: Sequence[Metric] = ()
    partition: str = "auto"
    alpha: float = 0.1
    norm: str = "evonorm"
    name: str | None = None
    data_dir: str | os.PathLike | None = None

    def __post_init__(self) -> None:
        checks.choice("norm", self.norm, NORMS)
        if not (callable(self.loss) or isinstance(self.loss, str | Objective)):
            raise ArgumentError(
                "loss must be the name of an objective or a function (params, batch), got "
                f"{brought.shown(self.loss)}"
            )
        if isinstance(self.metrics, Metric):
            raise ArgumentError(f"metrics must be a list of training.Metric, got {self.metrics!r}")
        self.network("auto")  # refuses what is no model
        self.objective(self.network("auto"))  # and what is no loss

    @functools.cached_property
    def dataset(self) -> Dataset:
        """The data, as every run sees them."""
        data = _dataset(self)
        return dataclasses.replace(data, name=self.name) if self.name else data

    @functools.cached_property
    def network(self) -> Callable[[Lowering], Functions]:
        """The model as functions, by the way in which it is compiled; one that is brought has but one."""
        if self.model is not None and not isinstance(self.model, str):
            model = functions(self.model)
            return lambda lowering: model
        name, norm, outputs = (
            self.model or self.dataset.model,
            cast(Norm, self.norm),
            self.dataset.num_outputs,
        )
        return functools.cache(lambda lowering: make_model(name, outputs, norm, lowering))

    @functools.cached_property
    def objective(self) -> Callable[[Functions], Objective]:
        """The loss and metrics for a model."""
        loss = self.dataset.objective if isinstance(self.loss, str) and self.loss == "auto" else self.loss
        return functools.cache(lambda model: objective_of(loss, model, tuple(self.metrics)))

    def settings(self) -> dict[str, Any]:
        """Returns the settings of a run that the problem decides, as config.json has them."""
        by_name = isinstance(self.train, str) and not self.name
        model = self.model if isinstance(self.model, str) else None
        loss = self.loss if isinstance(self.loss, str) else shown(self.objective(self.network("auto")).name)
        return {
            "dataset": self.train if by_name else shown(self.dataset.name),
            "data_dir": str(self.data_dir or ""),
            "model": "auto" if self.model is None else model or shown(self.network("auto").name),
            "norm": self.norm,
            "objective": loss,
            "partition": self.partition,
            "alpha": self.alpha,
        }

    def parts(self, topology: Graphs, method: Callable[..., Method]) -> Parts:
        """Returns the parts of runs on this problem; `method` is a function of the swept numbers."""

        def on_graph(
            config: Config, graph: Graphs, steps_per_epoch: int, numbers: Mapping[str, Any]
        ) -> tuple[Method, optax.Schedule | None]:
            made = method(**{name.removeprefix("method."): value for name, value in numbers.items()})
            return dataclasses.replace(made, topology=graph), None

        return Parts(self.dataset, self.network, self.objective, lambda config: topology, on_graph)


def shown(name: str) -> str:
    """Returns how settings name an object of a program: <NAME>."""
    plain = "".join(letter for letter in name if letter.isprintable() and letter not in "<>")
    return f"<{plain[:80] or 'nameless'}>"


def _dataset(problem: Problem) -> Dataset:
    train, test = problem.train, problem.test
    brings_test = isinstance(train, str | os.PathLike | Dataset) or given.is_huggingface(train)
    if brings_test != (test is None):
        kind = type(train).__name__
        expected = f"must not be given beside a {kind}, which brings it" if brings_test else "must be given"
        raise ArgumentError(f"test {expected}")
    if isinstance(train, str | os.PathLike):
        return sources.load(os.fspath(train), problem.data_dir)
    if test is None:
        return others.dataset_of(train, problem.name or "data")
    objective = problem.loss if isinstance(problem.loss, str) and problem.loss != "auto" else None
    return given.from_samples(train, test, objective=objective)
