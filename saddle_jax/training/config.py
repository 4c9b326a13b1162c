"""The settings of a run: one definition of each, with its meaning, default and check."""

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.compression.spelling import parse_compressor as parse_compressor
from saddle_jax.core.gossip import ORDERS
from saddle_jax.core.mixing import FORMS
from saddle_jax.core.topology import Topology
from saddle_jax.data.partition import KINDS
from saddle_jax.data.recipes import AUGMENTATIONS
from saddle_jax.devices import placement
from saddle_jax.graphs.spelling import check_topology, is_random, parse_topology
from saddle_jax.methods import METHODS, options_of
from saddle_jax.methods.ngm import SELF_GRADIENTS
from saddle_jax.models import NAMES as MODELS
from saddle_jax.models.convolution import LOWERINGS
from saddle_jax.models.layers import NORMS
from saddle_jax.training import sweep as replicas

# Settings that cannot change a number of a run, rounding apart.
IRRELEVANT = (
    "data_dir",
    "devices",
    "group",
    "lowering",
    "keep_checkpoints",
    "keep_every_epochs",
    "checkpoint_every_steps",
)
SCHEDULES = ("step", "imagenet", "exponential", "constant", "cosine")


def _setting(default: Any, meaning: str, check: Callable[[str, Any], Any] | None = None) -> Any:
    """Declares a setting; its help is `meaning` and, unless that names it, the default."""
    if "(default" not in meaning:
        value = str(default).lower() if isinstance(default, bool) else default
        meaning = f"{meaning} (default {value})"
    return dataclasses.field(default=default, metadata={"meaning": meaning, "check": check})


def _one_of(allowed: Any) -> Callable[[str, Any], Any]:
    return lambda name, value: checks.known(name, value, allowed)


def _whole(at_least: int, at_most: float = math.inf) -> Callable[[str, Any], Any]:
    return lambda name, value: checks.whole(name, value, at_least=at_least, at_most=at_most)


def _real(**bounds: float) -> Callable[[str, Any], Any]:
    return lambda name, value: checks.real(name, value, **bounds)


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that decides the numbers of a run, and how often they are written down."""

    # What is computed
    method: str = _setting("q_saddle", f"learning method: {', '.join(METHODS)}", _one_of(METHODS))
    topology: str = _setting(
        "ring",
        "who hears whom: ring, torus, torus:5x8, complete, star, chain, hypercube, exponential, isolated, "
        "circulant:1,5, erdos_renyi:0.3, random_regular:4",
        lambda _, v: check_topology(v),
    )
    agents: int = _setting(10, "number of agents", _whole(1, 10_000))
    model: str = _setting("cnn", f"network of every agent: {', '.join(MODELS)}", _one_of(MODELS))
    norm: str = _setting("evonorm", f"normalization in the network: {', '.join(NORMS)}", _one_of(NORMS))
    # On which data
    dataset: str = _setting(
        "digits",
        "dataset: digits, synthetic, cifar10, cifar100, imagenette, imagenet, or the tfds name of another",
    )
    data_dir: str = _setting(
        "", "folder of prepared datasets (default: TFDS_DATA_DIR, or ~/tensorflow_datasets)"
    )
    subset: int = _setting(0, "train on a random subset of N images; 0 trains on all of them", _whole(0))
    partition: str = _setting(
        "dirichlet", f"how the data is dealt out to the agents: {', '.join(KINDS)}", _one_of(KINDS)
    )
    alpha: float = _setting(
        0.1,
        "concentration of the Dirichlet partitions, where less is more skewed; for the sorted partition, the "
        "number of shards per agent",
        _real(above=0.0),
    )
    augmentation: str = _setting(
        "auto",
        f"augmentation of training images: auto (the dataset's own), {', '.join(AUGMENTATIONS)}",
        _one_of(("auto", *AUGMENTATIONS)),
    )
    batch_size: int = _setting(32, "images per agent and step", _whole(1))
    # For how long, how fast
    epochs: int = _setting(25, "passes over each agent's data", _whole(1))
    learning_rate: float = _setting(0.1, "learning rate eta at the start", _real(above=0.0))
    schedule: str = _setting(
        "step",
        "how the learning rate falls: step (x0.1 after 50 and 75 % of the epochs), imagenet (x0.1 after 33, "
        "67 and 90 %), exponential (x0.981 per epoch), constant, cosine",
        _one_of(SCHEDULES),
    )
    warmup_epochs: int = _setting(
        0, "number of epochs over which the learning rate rises from zero", _whole(0)
    )
    # The method's options
    rho: float = _setting(0.05, "SAM's radius, for the SADDLe methods", _real(at_least=0.0))
    ascent_every: int = _setting(
        1, "compute SAM's perturbation every N steps; the paper's efficient variant has 5", _whole(1)
    )
    ascent_reuse: bool = _setting(
        False, "in the steps between, perturb with the last perturbation instead of none"
    )
    beta: float = _setting(
        0.9, "momentum coefficient; 0 is D-PSGD as printed, without momentum", _real(at_least=0.0, below=1.0)
    )
    mu: float = _setting(
        -1.0,
        "moving-average coefficient of QGM's momentum; -1 takes the value of beta",
        _real(at_least=-1.0, below=1.0),
    )
    nesterov: bool = _setting(True, "Nesterov momentum; false is heavy ball")
    weight_decay: float = _setting(
        1e-4, "coefficient of the L2 penalty, added to the gradients", _real(at_least=0.0)
    )
    gamma: float = _setting(
        1.0, "averaging rate: the share of gossip's correction that is applied", _real(above=0.0, at_most=1.0)
    )
    compressor: str = _setting(
        "none",
        "compressor of messages: none, identity, quantize8, quantize2_biased, top_k0.3, random_k0.3, sign, "
        "natural, ternary, low_rank2",
        lambda _, v: parse_compressor(v),
    )
    order: str = _setting("choco", f"order of compressed gossip: {', '.join(ORDERS)}", _one_of(ORDERS))
    self_gradient: str = _setting(
        "current", f"where NGM takes its own gradient: {', '.join(SELF_GRADIENTS)}", _one_of(SELF_GRADIENTS)
    )
    form: str = _setting("auto", f"how mixing is computed: {', '.join(FORMS)}", _one_of(FORMS))
    seed: int = _setting(
        0,
        "seed of subset, partition, random graphs, initialisation, batches and compression",
        _whole(0, 2**32 - 1),
    )
    # Several runs in one program
    seeds: str = _setting(
        "",
        "several seeds, such as 0,1,2, in place of seed: all run in one program, each as if alone "
        "(default: none)",
        lambda _, v: replicas.parse_seeds(v),
    )
    sweep: str = _setting(
        "",
        "numbers to try, such as learning_rate:0.05,0.1 rho:0,0.1: all combinations run in one program; of "
        f"{', '.join(replicas.SWEPT)} (default: none)",
        lambda _, v: replicas.parse_sweep(v),
    )
    # How
    steps_per_dispatch: int = _setting(
        0,
        "steps per compiled call; 0 chooses 1 on a CPU, where calls cost little, and 5 elsewhere",
        _whole(0),
    )
    # Where
    devices: str = _setting("auto", "number of devices; auto uses as many as help", placement.check)
    group: int = _setting(
        0,
        "agents that a device computes at a time, of all replicas; 0 chooses one on a CPU and all elsewhere",
        _whole(0),
    )
    lowering: str = _setting(
        "fast",
        f"how convolutions and norms are compiled: {', '.join(LOWERINGS)}; plain is XLA's own, grouped over "
        "agents",
        _one_of(LOWERINGS),
    )
    # What is written down
    eval_every_epochs: int = _setting(5, "evaluate every N epochs, and at the end", _whole(1))
    eval_agents: str = _setting(
        "end",
        "when to evaluate every agent's own model: end, always, never",
        _one_of(("end", "always", "never")),
    )
    log_every_steps: int = _setting(10, "write a line to metrics.jsonl every N steps", _whole(1))
    checkpoint_every_steps: int = _setting(500, "write a checkpoint every N steps, and at the end", _whole(1))
    keep_checkpoints: int = _setting(2, "keep the N newest checkpoints", _whole(1))
    keep_every_epochs: int = _setting(
        0,
        "also keep the checkpoints of every N-th epoch, for `saddle sharpness`; 0 keeps only the newest",
        _whole(0),
    )
    sharpness_every_epochs: int = _setting(
        0,
        "log lambda_max, lambda_min and trace of the Hessian every N epochs, and at the end; 0 never does",
        _whole(0),
    )
    sharpness_images: int = _setting(1024, "number of training images to measure the Hessian on", _whole(1))
    diagnostics: bool = _setting(
        False, "log gradient and update norms, compression error and consensus distance"
    )

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type is bool and not isinstance(value, bool):
                raise ArgumentError(f"{field.name} must be true or false, got {value!r}")
            if field.type is float and isinstance(value, int) and not isinstance(value, bool):
                object.__setattr__(self, field.name, float(value))
            if field.type is str and not isinstance(value, str):
                raise ArgumentError(f"{field.name} must be text, got {value!r}")
            if field.metadata["check"]:
                field.metadata["check"](field.name, value)
        if self.warmup_epochs >= self.epochs:
            raise ArgumentError(
                f"warmup_epochs must be below epochs = {self.epochs}, got {self.warmup_epochs}"
            )
        if self.mu != -1.0 and self.mu < 0:
            raise ArgumentError(f"mu must be -1 or a number >= 0 and < 1, got {self.mu}")
        if "self_gradient" not in options_of(self.method) and self.self_gradient != "current":
            raise ArgumentError(
                f"self_gradient must be current for {self.method}, got {self.self_gradient!r}"
            )
        if "compressor" not in options_of(self.method) and self.compressor != "none":
            raise ArgumentError(
                f"compressor must be none for {self.method}, which has none, got {self.compressor!r}"
            )
        build_topology(self)
        self._check_replicas()

    def _check_replicas(self) -> None:
        if self.seeds and self.seed:
            raise ArgumentError(f"seed must not be given beside seeds = {self.seeds}, got {self.seed}")
        if "rho" in replicas.parse_sweep(self.sweep) and "rho" not in options_of(self.method):
            raise ArgumentError(
                f"sweep must not name rho for {self.method}, which has none, got {self.sweep!r}"
            )
        if is_random(self.topology) and len(replicas.parse_seeds(self.seeds)) > 1:
            raise ArgumentError(
                f"seeds must be one for topology {self.topology}, which is another graph with every seed, "
                f"got {self.seeds!r}"
            )
        if self.has_replicas:
            self.each()  # which checks its numbers

    @property
    def has_replicas(self) -> bool:
        """Tells whether these are the settings of several runs in one program."""
        return bool(self.seeds or self.sweep)

    def each(self) -> "list[Config]":
        """Returns the settings of each run by itself; a single run has one."""
        return [
            dataclasses.replace(self, seeds="", sweep="", **setting)
            for setting in replicas.settings_of(self.seeds, self.sweep)
        ]

    def to_json(self) -> dict[str, Any]:
        """Returns the settings as plain values, in the order above."""
        return dataclasses.asdict(self)


def from_json(settings: dict[str, Any]) -> Config:
    """Builds a Config from plain values; an unknown name is refused with the nearest setting."""
    fields = [field.name for field in dataclasses.fields(Config)]
    for name in settings:
        if name not in fields:
            raise ArgumentError(f"{name!r} is no setting{checks.did_you_mean(name, fields)}")
    return Config(**settings)


def differences(one: Config, other: Config) -> list[str]:
    """Lists the settings in which two runs differ, as text, apart from those that cannot change a number."""
    return [
        f"{name} {json.dumps(value)} -> {json.dumps(other.to_json()[name])}"
        for name, value in one.to_json().items()
        if value != other.to_json()[name] and name not in IRRELEVANT
    ]


def build_topology(config: Config) -> Topology:
    """Builds the graph that `topology`, `agents` and, for random graphs, `seed` describe."""
    seed = config.seed if is_random(config.topology) else 0
    return parse_topology(config.topology, config.agents, seed)
