"""How much work a run of the paper is, told from its settings: no data is loaded and no step is compiled."""

import dataclasses
import functools
import time
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax

from saddle_jax.core.ledger import Ledger, open_ledger, passes_per_step
from saddle_jax.data import load, prepared
from saddle_jax.data.sources import TFDS_NAMES, is_builtin
from saddle_jax.models import initialise
from saddle_jax.models.functions import Functions
from saddle_jax.models.layers import Norm
from saddle_jax.models.spelling import make_model
from saddle_jax.papers.saddle.settings import SETTINGS
from saddle_jax.settings.config import Config, build_topology
from saddle_jax.training import build

_TEST = {"cifar10": 10_000, "cifar100": 10_000, "imagenette": 3_925, "imagenet": 50_000}
# What steps reach of a matrix product's speed: ResNets about 0.7, small networks 0.25 (docs/performance.md).
_SHARE = 0.5
_PRODUCT, _SECONDS = 1024, 0.1  # size of the matrices that are multiplied, and for how long
# Settings that change neither what a step computes nor what it sends.
_LIKE: dict[str, Any] = {
    "dataset": "digits", "data_dir": "", "subset": 0, "alpha": 1.0, "seed": 0, "epochs": 1,
    "warmup_epochs": 0, "learning_rate": 0.1, "schedule": "constant", "rho": 0.1, "batch_size": 32,
    "weight_decay": 0.0,
    "gamma": 0.5, "eval_every_epochs": 1, "keep_every_epochs": 0, "log_every_steps": 1,
}  # fmt: skip
HOW = (
    "estimated, not measured: from the operations of the model and the speed of a matrix product here; "
    "expect a factor of two either way"
)


@dataclasses.dataclass(frozen=True)
class Size:
    """The work of one run of an entry."""

    steps: int
    passes: float  # forward and backward passes of an agent's batch per step
    evaluations: float  # the same unit, in the whole run
    bytes_sent: int  # by one agent, in the encodings' exact size
    operations: float  # of one forward and backward pass of all agents' batches


class _Data(NamedTuple):
    samples: int
    test: int
    classes: int
    inputs: Any  # the shape of one


def check_data(config: Config) -> None:
    """Checks that the dataset of a run is here, without reading it; a DataError tells what to do."""
    if not is_builtin(config.dataset):
        folder = prepared.data_dir_or_default(config.data_dir or None)
        prepared.list_records(prepared.find_version(TFDS_NAMES.get(config.dataset, config.dataset), folder))


def size_of(config: Config) -> Size:
    """Returns the size of a run whose dataset is one of the paper's, or embedded."""
    data = _data(config.dataset)
    share = (config.subset or data.samples) // config.agents
    steps = config.epochs * -(-share // config.batch_size)
    model = _model(config.model, data.classes, config.norm)
    passes, ledger = _step(_like(config), model, data.inputs)
    evaluations = max(1, config.epochs // config.eval_every_epochs)
    evaluations += config.agents if config.eval_agents == "end" else 0
    return Size(
        steps=steps,
        passes=passes,
        # An evaluation is a forward pass, a third of a gradient, over the test set.
        evaluations=evaluations * data.test / (config.agents * config.batch_size) / 3,
        bytes_sent=ledger.wire_bytes_per_agent(steps),
        operations=3 * _forward(model, data.inputs) * config.agents * config.batch_size,
    )


def _like(config: Config) -> Config:
    """Returns settings with the same step; on a ring of any length an agent computes and sends the same."""
    shorter: dict[str, Any] = {"agents": 3} if config.topology == "ring" and config.agents > 3 else {}
    return dataclasses.replace(config, **_LIKE, **shorter)


@functools.cache
def _step(config: Config, model: Functions, inputs: Any) -> tuple[float, Ledger]:
    """Traces a step: returns its passes, and the books of what it sends."""
    one = _shapes(model, inputs)
    stacked = jax.tree.map(lambda x: jax.ShapeDtypeStruct((config.agents, *x.shape), x.dtype), one)
    rate = optax.constant_schedule(config.learning_rate)
    method = build.build_method(config, build_topology(config), rate)
    return passes_per_step(method, stacked), open_ledger(method, stacked)


def seconds_of(size: Size) -> float:
    """Returns about how long a run of this size takes here."""
    work = size.operations * (size.steps * size.passes + size.evaluations)
    return work / (_SHARE * operations_per_second())


@functools.cache
def operations_per_second() -> float:
    """Measures, for a tenth of a second, how fast this machine multiplies matrices."""
    product = jax.jit(lambda x: x @ x)
    x = jax.block_until_ready(jnp.full((_PRODUCT, _PRODUCT), 1e-3))
    product(x).block_until_ready()
    times, began = 0, time.perf_counter()
    while time.perf_counter() - began < _SECONDS:
        product(x).block_until_ready()
        times += 1
    return 2 * _PRODUCT**3 * times / (time.perf_counter() - began)


@functools.cache
def _data(name: str) -> _Data:
    if name in SETTINGS:
        known = SETTINGS[name]
        shape = (1, known.image_size, known.image_size, 3)
        return _Data(known.samples, _TEST[name], known.classes, jax.ShapeDtypeStruct(shape, jnp.float32))
    dataset = load(name)
    return _Data(dataset.size, dataset.test_size, dataset.num_outputs, dataset.inputs_of_one)


@functools.cache
def _model(name: str, classes: int, norm: str) -> Functions:
    return make_model(name, classes, cast(Norm, norm), "plain")  # whose operations XLA can count


@functools.cache
def _shapes(model: Functions, inputs: Any) -> Any:
    return jax.eval_shape(lambda: initialise(model, inputs, jax.random.key(0)))


@functools.cache
def _forward(model: Functions, inputs: Any) -> float:
    """Returns the floating-point operations of one forward pass of one sample, as XLA counts them."""
    analysis = jax.jit(model.apply).lower(_shapes(model, inputs), inputs).cost_analysis()
    return float((analysis or {})["flops"])
