"""The settings of a run: one definition of each, with its meaning, default and check."""

import dataclasses
import functools
import json
import math
from collections.abc import Callable
from typing import Any

from saddle_jax.base import checks, tables
from saddle_jax.base.checks import ArgumentError
from saddle_jax.compression.spelling import parse_compressor as parse_compressor
from saddle_jax.core.gossip import ORDERS
from saddle_jax.core.network import FORMS
from saddle_jax.core.topology import Topology, from_matrix
from saddle_jax.data.partition import KINDS
from saddle_jax.data.recipes import AUGMENTATIONS
from saddle_jax.devices import placement
from saddle_jax.graphs import GRAPHS
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
    return dataclasses.field(default=default, metadata={"meaning": meaning, "check": check})


def _one_of(allowed: Any) -> Callable[[str, Any], Any]:
    def check(name: str, value: Any) -> None:
        if value not in allowed:
            hint = checks.did_you_mean(value, allowed)
            raise ArgumentError(f"{name} must be one of {', '.join(allowed)}, got {value!r}{hint}")

    return check


def _whole(at_least: int, at_most: float = math.inf) -> Callable[[str, Any], Any]:
    return lambda name, value: checks.whole(name, value, at_least=at_least, at_most=at_most)


def _real(**bounds: float) -> Callable[[str, Any], Any]:
    return lambda name, value: checks.real(name, value, **bounds)


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that decides the numbers of a run, and how often they are written down."""

    # What is computed
    method: str = _setting("q_saddle", f"one of {', '.join(METHODS)}", _one_of(METHODS))
    topology: str = _setting(
        "ring",
        "ring, torus, torus:5x8, complete, star, chain, hypercube, exponential, isolated, circulant:1,5, "
        "erdos_renyi:0.3, random_regular:4",
        lambda name, value: _topology_kind(value),
    )
    agents: int = _setting(10, "number of agents", _whole(1, 10_000))
    model: str = _setting("cnn", f"one of {', '.join(MODELS)}", _one_of(MODELS))
    norm: str = _setting("evonorm", f"one of {', '.join(NORMS)}", _one_of(NORMS))
    # On which data
    dataset: str = _setting(
        "digits", "digits, synthetic, cifar10, cifar100, imagenette, imagenet, or any of tfds"
    )
    data_dir: str = _setting("", "folder of prepared datasets; empty: TFDS_DATA_DIR or ~/tensorflow_datasets")
    subset: int = _setting(0, "train on a random subset of so many images; 0: on all", _whole(0))
    partition: str = _setting("dirichlet", f"one of {', '.join(KINDS)}", _one_of(KINDS))
    alpha: float = _setting(0.1, "Dirichlet concentration; for sorted, shards per agent", _real(above=0.0))
    augmentation: str = _setting(
        "auto", f"auto (the dataset's own), {', '.join(AUGMENTATIONS)}", _one_of(("auto", *AUGMENTATIONS))
    )
    batch_size: int = _setting(32, "images per agent and step", _whole(1))
    # For how long, how fast
    epochs: int = _setting(25, "passes over an agent's data", _whole(1))
    learning_rate: float = _setting(0.1, "eta at the start", _real(above=0.0))
    schedule: str = _setting(
        "step",
        "step (x0.1 after 50 and 75 % of the epochs), imagenet (33, 67 and 90 %), "
        "exponential (x0.981 per epoch), constant, cosine",
        _one_of(SCHEDULES),
    )
    warmup_epochs: int = _setting(0, "epochs over which eta rises from zero", _whole(0))
    # The method's options
    rho: float = _setting(0.05, "SAM's radius, of the saddle methods", _real(at_least=0.0))
    ascent_every: int = _setting(
        1, "climb in every so-manieth step; 5: the compute-efficient variant", _whole(1)
    )
    ascent_reuse: bool = _setting(False, "between climbs, perturb with the last perturbation")
    beta: float = _setting(
        0.9, "momentum; for D-PSGD as printed, without any: 0", _real(at_least=0.0, below=1.0)
    )
    mu: float = _setting(-1.0, "QGM's moving average; -1: beta", _real(at_least=-1.0, below=1.0))
    nesterov: bool = _setting(True, "Nesterov; false: heavy ball")
    weight_decay: float = _setting(1e-4, "coupled L2", _real(at_least=0.0))
    gamma: float = _setting(1.0, "averaging rate", _real(above=0.0, at_most=1.0))
    compressor: str = _setting(
        "none",
        "none, identity, quantize8, quantize2_biased, top_k0.3, random_k0.3, sign",
        lambda name, value: parse_compressor(value),
    )
    order: str = _setting("choco", f"of compressed gossip: {', '.join(ORDERS)}", _one_of(ORDERS))
    self_gradient: str = _setting("current", f"NGM's: {', '.join(SELF_GRADIENTS)}", _one_of(SELF_GRADIENTS))
    form: str = _setting("auto", f"of mixing: {', '.join(FORMS)}", _one_of(FORMS))
    seed: int = _setting(
        0, "of subset, partition, random graphs, initialisation, batches, compression", _whole(0, 2**32 - 1)
    )
    # Several runs in one program
    seeds: str = _setting(
        "",
        "such as 0,1,2: all at once, each as if alone, in place of seed",
        lambda _, v: replicas.parse_seeds(v),
    )
    sweep: str = _setting(
        "",
        f"such as learning_rate:0.05,0.1 rho:0,0.1: all combinations at once; of {', '.join(replicas.SWEPT)}",
        lambda _, v: replicas.parse_sweep(v),
    )
    # How
    steps_per_dispatch: int = _setting(
        0,
        "steps in one compiled call; 0: 1 on a CPU, where calls cost little, else 5",
        _whole(0),
    )
    # Where
    devices: str = _setting("auto", "auto (all, as far as they are of use) or how many", placement.check)
    group: int = _setting(
        0, "agents of a device computed at a time, of all replicas; 0: all, on a CPU one", _whole(0)
    )
    lowering: str = _setting(
        "fast",
        f"of convolutions and norms: {', '.join(LOWERINGS)}; plain: XLA's own, grouped over agents",
        _one_of(LOWERINGS),
    )
    # What is written down
    eval_every_epochs: int = _setting(5, "evaluate so often, and at the end", _whole(1))
    eval_agents: str = _setting(
        "end", "evaluate every agent's own model: end, always, never", _one_of(("end", "always", "never"))
    )
    log_every_steps: int = _setting(10, "a line in metrics.jsonl so often", _whole(1))
    checkpoint_every_steps: int = _setting(500, "and at the end", _whole(1))
    keep_checkpoints: int = _setting(2, "the newest so many are kept", _whole(1))
    keep_every_epochs: int = _setting(
        0, "and those of every so-manieth epoch, for `saddle sharpness`; 0: only the newest", _whole(0)
    )
    sharpness_every_epochs: int = _setting(
        0, "log the Hessian's lambda_max, lambda_min and trace so often, and at the end; 0: never", _whole(0)
    )
    sharpness_images: int = _setting(1024, "on so many training images", _whole(1))
    diagnostics: bool = _setting(
        False, "log gradient and update norms, compression error, consensus distance"
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
        random = self.topology.partition(":")[0] in _RANDOM
        if random and len(replicas.parse_seeds(self.seeds)) > 1:
            raise ArgumentError(
                f"seeds must be one for topology {self.topology}, which is another graph with every seed, "
                f"got {self.seeds!r}"
            )
        if self.has_replicas:
            self.each()  # which checks its numbers

    @property
    def has_replicas(self) -> bool:
        """Whether these are the settings of several runs in one program."""
        return bool(self.seeds or self.sweep)

    def each(self) -> "list[Config]":
        """The settings of each run by itself; of a single run its own."""
        return [
            dataclasses.replace(self, seeds="", sweep="", **setting)
            for setting in replicas.settings_of(self.seeds, self.sweep)
        ]

    def to_json(self) -> dict[str, Any]:
        """Plain values, in the order above."""
        return dataclasses.asdict(self)


def from_json(settings: dict[str, Any]) -> Config:
    """A Config from plain values; unknown names are refused with the nearest known one."""
    known = [field.name for field in dataclasses.fields(Config)]
    for name in settings:
        if name not in known:
            raise ArgumentError(f"{name!r} is no setting{checks.did_you_mean(name, known)}")
    return Config(**settings)


def differences(one: Config, other: Config) -> list[str]:
    """The settings in which two differ, as text; those that cannot change a number do not count."""
    return [
        f"{name} {json.dumps(value)} -> {json.dumps(other.to_json()[name])}"
        for name, value in one.to_json().items()
        if value != other.to_json()[name] and name not in IRRELEVANT
    ]


# Graphs that are told by the number of agents alone.
_SIMPLE = {name: graph for name, graph in GRAPHS.items() if list(tables.options(graph)) == ["n"]}
_RANDOM = ("erdos_renyi", "random_regular")
_WITH_SETTING = tuple(name for name in GRAPHS if name not in _SIMPLE)


def _topology_kind(text: str) -> str:
    kind, _, setting = text.partition(":")
    _one_of((*_SIMPLE, *_WITH_SETTING))("topology", kind)
    if kind in _SIMPLE and setting:
        raise ArgumentError(f"topology {kind} takes no setting, got {text!r}")
    return kind


def build_topology(config: Config) -> Topology:
    """The graph that `topology`, `agents` and, for random ones, `seed` describe."""
    random = config.topology.partition(":")[0] in _RANDOM
    return _build_topology(config.topology, config.agents, config.seed if random else 0)


# Settings are looked at often, and random graphs are drawn until they are connected.
@functools.lru_cache(maxsize=32)
def _build_topology(text: str, n: int, seed: int) -> Topology:
    kind, _, setting = text.partition(":")
    if n == 1:
        return from_matrix([[1.0]], name="alone")
    try:
        if kind in _SIMPLE and not setting:
            return _SIMPLE[kind](n)
        if kind == "torus" and not setting:
            return GRAPHS["torus"](n)
        if kind == "torus":
            rows, columns = (int(side) for side in setting.split("x"))
            if rows * columns == n:
                return GRAPHS["torus"](rows, columns)
        if kind == "circulant":
            return GRAPHS["circulant"](n, [int(offset) for offset in setting.split(",")])
        if kind == "erdos_renyi":
            return GRAPHS["erdos_renyi"](n, float(setting), seed)
        if kind == "random_regular":
            return GRAPHS["random_regular"](n, int(setting), seed)
    except ValueError as error:
        raise ArgumentError(f"topology {text!r} cannot have {n} agents: {error}") from error
    raise ArgumentError(f"topology {text!r} cannot have {n} agents")
