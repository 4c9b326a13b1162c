"""Workloads of the benchmarks, our step on them, options and jobs."""

import dataclasses
import functools
import importlib
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.measure import Row
from saddle_jax import models
from saddle_jax.base import checks
from saddle_jax.base.types import Array, Params
from saddle_jax.core.comm_cost import passes_per_step
from saddle_jax.core.method import Method
from saddle_jax.core.topology import Graphs, Topology
from saddle_jax.core.trees import replicate
from saddle_jax.devices.placement import place
from saddle_jax.graphs.named import circulant, ring
from saddle_jax.kernels.convolution import CONV_IMPLS, ConvImpl
from saddle_jax.methods import METHODS
from saddle_jax.models.small import CNN, MLP
from saddle_jax.tasks import supervised

# As in the paper but for the learning rate: with 0.1 many steps on random labels would overflow.
OPTIONS = {"learning_rate": 0.01, "rho": 0.1, "beta": 0.9, "weight_decay": 1e-4}
_CLASSES = 10
_NOISE = 0.01  # agents start with different models, so that gossip matters


@dataclasses.dataclass(frozen=True)
class Work:
    """One step of all agents on random images.

    Attributes:
      method: "q_saddle" or "n_saddle".
      model: a model that both sides implement.
      agents: A.
      batch_size: images per agent.
      image_shape: (height, width, channels).
      degree: neighbours of each agent, an even number: 2 is a ring.
      width: a multiplier of the width of the CNN and the MLP.
      conv_impl: the implementation of our convolutions, see `models.convolution`.
      agents_per_call: the number of agents that a device computes at a time, see `policy.group_size`.
    """

    method: str = "q_saddle"
    model: str = "resnet20"
    agents: int = 10
    batch_size: int = 32
    image_shape: tuple[int, int, int] = (32, 32, 3)
    degree: int = 2
    width: int = 1
    conv_impl: ConvImpl = "auto"
    agents_per_call: int = 0

    def __str__(self) -> str:
        model = self.model if self.width == 1 else f"{self.model} x {self.width}"
        size = "x".join(map(str, self.image_shape))
        chosen = "" if self.conv_impl == "auto" else f", conv_impl {self.conv_impl}"
        chosen += f", agents_per_call {self.agents_per_call}" if self.agents_per_call else ""
        return f"{self.method}, {model}, {self.topology.name}, batch {self.batch_size} of {size}{chosen}"

    @property
    def topology(self) -> Topology:
        """Returns a ring, or a circulant graph of a larger degree."""
        if self.degree == 2:
            return ring(self.agents)
        return circulant(self.agents, range(1, self.degree // 2 + 1))

    def network(self, conv_impl: ConvImpl | None = None) -> Any:
        """Returns our model, without its parameters."""
        return _network(self.model, self.width, conv_impl or self.conv_impl)

    def build_method(self, topology: Graphs) -> Method:
        """Builds our method on this graph."""
        return METHODS[self.method](topology, **OPTIONS)

    def params(self) -> Params:
        """Returns the initial models [A, ...], which differ slightly."""
        stacked = replicate(_one_model(self.model, self.width, self.image_shape), self.agents)
        random = np.random.default_rng(1)
        return jax.tree.map(
            lambda x: x + jnp.asarray(_NOISE * random.standard_normal(x.shape, np.float32)), stacked
        )

    def batch(self) -> dict[str, np.ndarray]:
        """Returns inputs [A, B, H, W, C], targets [A, B] and mask [A, B]."""
        random = np.random.default_rng(2)
        shape = (self.agents, self.batch_size)
        return {
            "inputs": random.standard_normal((*shape, *self.image_shape), np.float32),
            "targets": random.integers(0, _CLASSES, shape, np.int32),
            "mask": np.ones(shape, np.float32),
        }

    def flops(self) -> float:
        """Returns the operations of a step's backward passes as XLA counts them, without gossip."""
        batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), self.batch())
        params = _one_model(self.model, self.width, self.image_shape)
        gradient = jax.jit(jax.grad(supervised.cross_entropy(self.network("plain")), has_aux=True))
        costs = gradient.lower(params, batch).cost_analysis()
        assert costs is not None
        passes = passes_per_step(self.build_method(self.topology), replicate(params, self.agents))
        return float(costs["flops"]) * passes * self.agents


def _network(model: str, width: int, conv_impl: ConvImpl = "auto") -> Any:
    if width == 1:
        return models.build(model, _CLASSES, conv_impl=conv_impl)
    if model == "mlp":
        return MLP(_CLASSES, [width * units for units in MLP.hidden])
    return CNN(_CLASSES, [width * channels for channels in CNN.widths], conv_impl=conv_impl)


@functools.cache
def _one_model(model: str, width: int, image_shape: tuple[int, int, int]) -> Params:
    """Initializes one model, cached for both sides and all variants."""
    return models.init(_network(model, width), image_shape, jax.random.key(0))


class OurStep:
    """Our side: `method.step` as in training, compiled once with a donated state; each call takes a step.

    Args:
      work: the workload.
      compiler_options: of XLA; None are those of training.

    Attributes:
      placement: of the agents on devices.
      compile_seconds: the time of tracing, lowering and compiling.
      memory: bytes of the compiled program on all devices: argument, output, temp, alias.
    """

    def __init__(self, work: Work, compiler_options: dict[str, Any] | None = None):
        self.placement = place(work.agents, work.batch_size)
        method = work.build_method(self.placement.graph(work.topology))
        loss_fn = supervised.cross_entropy(work.network())
        self._params = jax.tree.map(self.placement.by_agents, work.params())
        self._batch = jax.tree.map(self.placement.by_agents, work.batch())
        step = jax.jit(
            lambda p, s, b: method.step(loss_fn, p, s, b, agents_per_call=work.agents_per_call),
            donate_argnums=(0, 1),
        )
        with self.placement.active():
            self._state = method.init(self._params)
            started = time.perf_counter()
            self._step = step.lower(self._params, self._state, self._batch).compile(compiler_options)
        self.compile_seconds = time.perf_counter() - started
        self.memory = _memory(self._step, self.placement.devices * self.placement.batch_devices)

    @property
    def params(self) -> Params:
        """Returns the current models [A, ...]."""
        return jax.tree.map(lambda x: x[: self.placement.agents], self._params)

    def __call__(self) -> Array:
        """Takes one step and returns the agents' losses [A]."""
        self._params, self._state, metrics = self._step(self._params, self._state, self._batch)
        return metrics["loss"]


def _memory(compiled: Any, devices: int) -> dict[str, int]:
    analysis = compiled.memory_analysis()  # of each device
    parts = ("argument", "output", "temp", "alias")
    return {part: devices * int(getattr(analysis, f"{part}_size_in_bytes")) for part in parts}


NO_PYTORCH = "PyTorch is not installed: pip install 'saddle_jax[bench]'"


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the benchmarks.

    Attributes:
      quick: tiny sizes, to test that everything works.
      repeats: the number of rounds, of which the median counts.
      conv_impl, agents_per_call: options of our side, see `Work`.
    """

    quick: bool = False
    repeats: int = 5
    conv_impl: ConvImpl = "auto"
    agents_per_call: int = 0

    def __post_init__(self):
        checks.whole("repeats", self.repeats, at_least=1)
        checks.choice("conv_impl", self.conv_impl, CONV_IMPLS)
        checks.whole("agents_per_call", self.agents_per_call, at_least=0)

    def applied(self, works: Sequence[Work]) -> list[Work]:
        """Returns the workloads with these options."""
        return [
            dataclasses.replace(work, conv_impl=self.conv_impl, agents_per_call=self.agents_per_call)
            for work in works
        ]


class Job(NamedTuple):
    """A measurement that gives one row of the table."""

    case: str
    what: str
    run: Callable[[], Row]


def pytorch(module: str) -> ModuleType | None:
    """Imports a module of the PyTorch baseline; returns None if PyTorch is not installed."""
    try:
        return importlib.import_module(f"benchmarks.baselines.pytorch.{module}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return None
