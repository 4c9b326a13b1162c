"""The settings of a run: each with its meaning, default and check, and which of them go together.

They are text and numbers. Nothing that needs JAX is imported before a setting names something that does.
"""

import contextlib
import dataclasses
import functools
import importlib
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from saddle_jax.base import checks, user_code
from saddle_jax.base.checks import ArgumentError, suggestion
from saddle_jax.base.errors import one_line
from saddle_jax.base.registry import Registry
from saddle_jax.compression import COMPRESSORS
from saddle_jax.graphs import GRAPHS, is_random, make_graph
from saddle_jax.methods import METHODS
from saddle_jax.sam import GRADIENTS
from saddle_jax.settings import network
from saddle_jax.settings import sweep as trials
from saddle_jax.tasks import OBJECTIVES

if TYPE_CHECKING:
    from saddle_jax.core.topology import Graphs

# ---- how a setting is declared ----


def setting(default: Any, meaning: str, check: Callable[[str, Any], Any] | None = None) -> Any:
    """Declares a setting; its help is `meaning` and, unless that names it, the default."""
    if "(default" not in meaning:
        value = str(default).lower() if isinstance(default, bool) else default
        meaning = f"{meaning} (default {value})"
    return dataclasses.field(default=default, metadata={"meaning": meaning, "check": check})


def one_of(allowed: Any, *also: str) -> Callable[[str, Any], Any]:
    """Makes a check that a setting is one of the allowed names, or of those of a place "module:NAMES"."""
    return lambda name, value: checks.known(name, value, [*also, *_imported(allowed)])


def spec_of(registry: Any, *also: str) -> Callable[[str, Any], Any]:
    """Makes a check that a setting names what a registry can make, or one of `also`; see `Registry.check`."""
    return lambda _, value: _imported(registry).check(value, also)


def devices(name: str, value: str) -> None:
    """Checks a setting that is either auto or a number of devices."""
    if value != "auto" and not (checks.is_integer_text(value) and int(value) >= 1):
        raise ArgumentError(f"{name} must be auto or a whole number >= 1, got {value!r}")


def dataset(_: str, value: str) -> None:
    """Checks the options of a dataset of the package; other names are looked up when they are loaded."""
    _imported("data.sources:check_name")(value)


@functools.cache
def _place(text: str) -> Any:
    module, _, name = text.partition(":")
    return getattr(importlib.import_module(f"saddle_jax.{module}"), name)


def _imported(thing: Any) -> Any:
    """Returns what stands at a place "module:NAME" of the package; other things are returned as they are."""
    return _place(thing) if isinstance(thing, str) else thing


def whole(at_least: int, at_most: float = math.inf) -> Callable[[str, Any], Any]:
    """Makes a check that a setting is an integer inside the given bounds."""
    return lambda name, value: checks.whole(name, value, at_least=at_least, at_most=at_most)


def real(**bounds: float) -> Callable[[str, Any], Any]:
    """Makes a check that a setting is a number inside the given bounds."""
    return lambda name, value: checks.real(name, value, **bounds)


# ---- which settings go together: one line for each that does not ----


# Options of methods that are those of an estimator of their own.
_OF_OWN_GRADIENT = {"rho", "ascent_every", "ascent_reuse"}
_MOST_RUNS = 4_096  # that one program trains side by side
# Settings whose specs have options that may be set, as --method.beta=0.5, and swept.
_REGISTRIES = {
    "method": METHODS,
    "gradient": GRADIENTS,
    "partition": "data.partition:PARTITIONS",
    "faults": network.FAULTS,
    "timing": network.TIMING,
}


def registry_of(setting: str) -> Registry:
    """Returns the registry of what a setting names with options."""
    registry: Registry = _imported(_REGISTRIES[setting])
    return registry


def check_trials(config: "Settings") -> None:
    """Checks that several runs fit into one program."""
    if config.seeds and config.seed:
        raise ArgumentError(f"seed must not be given beside seeds = {config.seeds}, got {config.seed}")
    sweep = trials.parse_sweep(config.sweep)
    for name in sweep:
        check_swept(config, name)
    if len(trials.parse_seeds(config.seeds)) > 1 and GRAPHS.is_ours(config.topology):
        check_seeds(config)
    if config.has_trials:
        sizes = [len(trials.parse_seeds(config.seeds)) or 1, *map(len, sweep.values())]
        if (count := math.prod(sizes)) > _MOST_RUNS:
            raise ArgumentError(
                f"seeds and sweep must make at most {_MOST_RUNS:,} runs in one program, got {count:,}: "
                "train the others by another command"
            )
        config.each()  # which checks its numbers


def check_seeds(config: "Settings") -> None:
    """Checks that all seeds have the same graph; a graph that is not ours is imported."""
    if is_random(config.topology) and len(trials.parse_seeds(config.seeds)) > 1:
        raise ArgumentError(
            f"seeds must be one for topology {config.topology}, whose graph differs between seeds, "
            f"got {config.seeds!r}"
        )


def check_swept(config: "Settings", name: str) -> None:
    """Checks that one program can vary a number; of options of what is not ours nothing is known here."""
    numbers = [field.name for field in dataclasses.fields(config) if field.type is float]
    if own := trials.own_option(name):
        if registry_of(own[0]).is_ours(getattr(config, own[0])) and lacks(config, name):
            raise unknown_name(config, name)
    elif name not in numbers:
        if name not in Settings.__dataclass_fields__:
            raise unknown_name(config, name)
        raise ArgumentError(
            "sweep must name numbers that one program can try, "
            f"{', '.join(numbers)}, or options such as method.NAME and faults.NAME, got {name!r}"
        )


def lacks(config: "Settings", name: str) -> bool:
    """Returns whether "method.NAME" is no option of the method that is named, which is imported."""
    own = trials.own_option(name)
    if own is None:
        return False
    spec = trials.spec_with_options(own[0], getattr(config, own[0]))
    return spec is None or own[1] not in registry_of(own[0]).options(spec)


def unknown_name(config: "Settings", name: str) -> ArgumentError:
    """Returns the error of a name that is no setting, and no option of what the settings name."""
    if own := trials.own_option(name):
        text = getattr(config, own[0])
        spec = trials.spec_with_options(own[0], text)
        thing, options = (spec.name, registry_of(own[0]).options(spec)) if spec else (text, {})
        takes = f"{own[0]} {thing} takes {', '.join(options) or 'no options'}"
        return ArgumentError(f"{suggestion(own[1], options)}{takes}, got option {own[1]!r}")
    option = option_meant(config, name)
    hint = f"did you mean '{option}'? " if option else suggestion(name, Settings.__dataclass_fields__)
    return ArgumentError(f"{hint}sweep must name a setting, or an option such as method.NAME, got {name!r}")


def option_meant(config: "Settings", name: str) -> str | None:
    """Returns "method.rho" for rho, the first option of what the settings name that is called so."""
    named = (f"{whose}.{checks.ALSO_CALLED.get(name, name)}" for whose in trials.SPEC_SETTINGS)
    return next((each for each in named if not lacks(config, each)), None)


def value_of(config: "Settings", name: str) -> Any:
    """Returns the value of a setting, or of an option such as "faults.drop", as it is in force."""
    own = trials.own_option(name)
    if own is None:
        return getattr(config, name)
    whose, option = own
    text = getattr(config, whose)
    spec, registry = trials.spec_with_options(whose, text) or text, registry_of(whose)
    options = registry.options(spec)
    return registry.given(spec).get(option, options[option].default if option in options else None)


def is_whole(text: str, whose: str, option: str) -> bool:
    """Tells whether an option of a thing is a whole number or a truth, by its default."""
    parameter = registry_of(whose).options(trials.spec_with_options(whose, text) or text)[option]
    return isinstance(parameter.default, int) or parameter.annotation in (int, bool)


def _listed(names: Sequence[str]) -> str:
    return "".join(f", {name}" for name in names)


# Settings that cannot change a number of a run, rounding apart.
IRRELEVANT = (
    "data_dir",
    "devices",
    "agents_per_call",
    "conv_impl",
    "keep_checkpoints",
    "keep_every_epochs",
    "checkpoint_every_steps",
    "loggers",
)
LOGGERS = ("tensorboard", "wandb", "mlflow")
SCHEDULES = ("step", "imagenet", "exponential", "constant", "cosine")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything that decides the numbers of a run, and how often they are written down.

    >>> sj.Settings(method="q_saddle(rho=0.1)", epochs=5).method
    'q_saddle(rho=0.1)'
    """

    # What is computed
    method: str = setting(
        "q_saddle",
        f"learning method: {', '.join(METHODS)}; with options, which `saddle methods NAME` lists, as in "
        "q_saddle(rho=0.1, compressor=quantize(8)), or --method.rho=0.1; compressors are "
        f"{', '.join(COMPRESSORS)}; or your own, FILE.py:NAME or module:NAME",
        spec_of(METHODS),
    )
    gradient: str = setting(
        "auto",
        f"how gradients are taken: {', '.join(GRADIENTS)}, with options as in looksam(every=10); auto is the "
        "method's own, sam for the SADDLe methods and plain for the others; or your own, FILE.py:NAME or "
        "module:NAME",
        spec_of(GRADIENTS, "auto"),
    )
    topology: str = setting(
        "ring",
        "graph: ring, torus, torus(5, 8), complete, star, path, hypercube, exponential, isolated, "
        "circulant([1, 5]), erdos_renyi(0.3), random_regular(4), small_world(4, 0.1), expander(4), karate, "
        "davis, florentine, les_miserables, binary_tree, spanning_tree(karate), equi_static(4), "
        "directed_ring, random_digraph(3); changing in each step: one_peer_exponential, base_graph(1), "
        f"random_matchings(8), equi_dynamic(16){_listed(GRAPHS.installed)}, or any graphs joined by +, as "
        "ring+complete; or your own, FILE.py:NAME, module:NAME, or a file .edges, .graphml or .npy",
        spec_of(GRAPHS),
    )
    agents: int = setting(10, "number of agents", whole(1, 10_000))
    model: str = setting(
        "auto",
        "network of every agent: resnet20, resnet18, mobilenet_v2, resnet8, cnn, strided_cnn, mlp, logistic, "
        "linear, causal_mlp, or your own, FILE.py:NAME or module:NAME, of flax or PyTorch; "
        "pretrained(resnet20, 'FILE') begins with weights from a file .safetensors or .pt; auto is the "
        "dataset's own, mostly cnn",
        spec_of("models:MODELS", "auto"),
    )
    norm: str = setting(
        "evonorm",
        "normalization in the network: evonorm, evonorm_sigmoid, groupnorm",
        one_of("models.layers:NORMS"),
    )
    precision: str = setting(
        "float32",
        "precision of the network's products: float32, tf32, bfloat16",
        one_of("models.precision:PRECISIONS"),
    )
    # On which data
    dataset: str = setting(
        "digits",
        "dataset: digits, synthetic, characters, convex, with options as in convex(kind=logistic), cifar10, "
        "cifar100, imagenette, imagenet, or the tfds name of another; a file .npz or a folder of images by "
        "class; leaf('FOLDER') of LEAF's clients; or your own, FILE.py:NAME or module:NAME",
        dataset,
    )
    objective: str = setting(
        "auto",
        f"what is learned: {', '.join(OBJECTIVES)}, or a loss of your own, FILE.py:NAME or module:NAME; "
        "auto is the dataset's own, mostly classification",
        spec_of(OBJECTIVES, "auto"),
    )
    data_dir: str = setting(
        "", "folder of prepared datasets (default: TFDS_DATA_DIR, or ~/tensorflow_datasets)"
    )
    subset: int = setting(0, "train on a random subset of N images; 0 trains on all of them", whole(0))
    partition: str = setting(
        "auto",
        "how the data is divided among the agents: dirichlet, iid, shards, per_agent_dirichlet, "
        "quantity_skew, with options as in dirichlet(0.1), where less is more skewed, or shards(2); given, "
        "for data that is divided already; or your own, FILE.py:NAME or module:NAME; auto is given for such "
        "data, dirichlet for data with classes, and iid otherwise",
        spec_of("data.partition:PARTITIONS", "auto", "given"),
    )
    augmentation: str = setting(
        "auto",
        "augmentation of training images: auto (the dataset's own), none, flip_crop, resized_crop",
        one_of("data.recipes:AUGMENTATIONS", "auto"),
    )
    batch_size: int = setting(
        32, "samples per agent and step; 0 takes all that an agent has: exact gradients", whole(0)
    )
    # For how long, and how fast
    epochs: int = setting(25, "passes over each agent's data", whole(1, 2**31 - 1))
    learning_rate: float = setting(0.1, "learning rate eta at the start", real(above=0.0))
    schedule: str = setting(
        "step",
        "how the learning rate falls: step (x0.1 after 50 and 75 % of the epochs), imagenet (x0.1 after 33, "
        "67 and 90 %), exponential (x0.981 per epoch), constant, cosine",
        one_of(SCHEDULES),
    )
    warmup_epochs: int = setting(0, "number of epochs over which the learning rate rises from zero", whole(0))
    seed: int = setting(
        0,
        "seed of subset, partition, random graphs, initialisation, batches and compression",
        whole(0, 2**32 - 1),
    )
    # On which network
    faults: str = setting(
        network.NONE,
        "what goes wrong on the network: none, or as in faults(drop=0.1, burst=3), with the options of "
        "sj.Faults; or your own, FILE.py:NAME or module:NAME",
        spec_of(network.FAULTS, network.NONE),
    )
    timing: str = setting(
        network.NONE,
        "how long messages and gradients take: none, or as in timing(latency='10ms', bandwidth='100Mbit', "
        "compute='50ms', compute_sigma=0.3), with units or files .npy; or your own, FILE.py:NAME or "
        "module:NAME",
        lambda _, value: network.check_timing(value),
    )
    # Several runs in one program
    seeds: str = setting(
        "",
        "several seeds, such as 0,1,2, in place of seed: all run in one program, each as if alone "
        "(default: none)",
        lambda _, v: trials.parse_seeds(v),
    )
    sweep: str = setting(
        "",
        "numbers to try, such as learning_rate=0.05,0.1 method.rho=0,0.1: all combinations in one program "
        "(default: none)",
        lambda _, v: trials.parse_sweep(v),
    )
    # How steps are compiled
    steps_per_dispatch: int = setting(
        0,
        "steps per compiled call; 0 chooses 1 on a CPU, where calls cost little, and 5 elsewhere",
        whole(0),
    )
    # On which devices
    devices: str = setting("auto", "number of devices; auto uses as many as help", devices)
    agents_per_call: int = setting(
        0,
        "agents that a device computes at a time, of all trials; 0 chooses one on a CPU, and elsewhere as "
        "many as fill the device and find room",
        whole(0),
    )
    conv_impl: str = setting(
        "auto",
        "how convolutions and norms are compiled: auto, native, fast, each, patches, plain; plain is XLA's "
        "own, grouped over agents; auto is native, kernels of our own, on a CPU with a C++ compiler, and "
        "fast elsewhere",
        one_of("kernels.convolution:CONV_IMPLS"),
    )
    # What is written down
    eval_every_epochs: int = setting(5, "evaluate every N epochs, and at the end", whole(1))
    eval_agents: str = setting(
        "end",
        "when to evaluate every agent's own model: end, always, never",
        one_of(("end", "always", "never")),
    )
    log_every_steps: int = setting(10, "write a line to metrics.jsonl every N steps", whole(1))
    loggers: str = setting(
        "tensorboard",
        f"where metrics go beside metrics.jsonl: {', '.join(LOGGERS)}, joined by commas, or none",
        lambda _, value: parse_loggers(value),
    )
    checkpoint_every_steps: int = setting(500, "write a checkpoint every N steps, and at the end", whole(1))
    keep_checkpoints: int = setting(2, "keep the N newest checkpoints", whole(1))
    keep_every_epochs: int = setting(
        0,
        "also keep the checkpoints of every N-th epoch, for `saddle sharpness`; 0 keeps only the newest",
        whole(0),
    )
    sharpness_every_epochs: int = setting(
        0,
        "log lambda_max, lambda_min and trace of the Hessian every N epochs, and at the end; 0 never does",
        whole(0),
    )
    sharpness_images: int = setting(1024, "number of training images to measure the Hessian on", whole(1))
    diagnostics: bool = setting(
        False, "log gradient and update norms, compression error and consensus distance"
    )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type is float and isinstance(value, int) and not isinstance(value, bool):
                object.__setattr__(self, field.name, float(value))
            check_setting(field.name, value)
        if self.warmup_epochs >= self.epochs:
            raise ArgumentError(
                f"warmup_epochs must be below epochs = {self.epochs}, got {self.warmup_epochs}"
            )
        if GRAPHS.is_ours(self.topology):
            build_topology(self)
        if self.gradient != "auto" and METHODS.is_ours(self.method):
            own = METHODS.given(self.method).keys() & _OF_OWN_GRADIENT
            for option in sorted(own):  # which would mean nothing
                raise ArgumentError(
                    f"{option} must not be given for {self.method} beside gradient {self.gradient}, which "
                    "takes the place of the method's own"
                )
        if network.FAULTS.is_ours(self.faults):
            network.make_faults(self.faults, self.agents)
        check_trials(self)

    @property
    def has_trials(self) -> bool:
        """Tells whether these are the settings of several runs in one program."""
        return bool(self.seeds or self.sweep)

    def each(self) -> "list[Settings]":
        """Returns the settings of each run by itself; of a single run these."""
        if not self.has_trials:
            return [self]
        return [
            dataclasses.replace(self, seeds="", sweep="", **trials.in_settings(vars(self), setting))
            for setting in trials.settings_of(self.seeds, self.sweep)
        ]

    def to_json(self) -> dict[str, Any]:
        """Returns the settings as plain values, in the order above."""
        return dataclasses.asdict(self)


def check_setting(name: str, value: Any) -> None:
    """Checks one setting by itself, apart from whether it goes with the others."""
    field = Settings.__dataclass_fields__[name]
    if field.type is bool and not isinstance(value, bool):
        raise ArgumentError(f"{name} must be true or false, got {value!r}")
    if field.type is str and not isinstance(value, str):
        raise ArgumentError(f"{name} must be text, got {value!r}")
    if field.metadata["check"] and value != field.default:
        field.metadata["check"](name, value)


def parse_loggers(text: str) -> tuple[str, ...]:
    """Returns the loggers in "tensorboard,wandb"; "none" is none."""
    names = () if text in ("", "none") else tuple(name.strip() for name in text.split(","))
    for name in names:
        checks.choice("loggers", name, LOGGERS)
    return names


def from_json(settings: dict[str, Any]) -> Settings:
    """Builds a Settings from plain values; an unknown name is refused with the nearest setting."""
    return Settings(**_known(settings))


def check_each(settings: dict[str, Any]) -> dict[str, Any]:
    """Checks plain values one by one, not whether they go together, and adds those that are not given."""
    for name, value in _known(settings).items():
        check_setting(name, value)
    return {field.name: field.default for field in dataclasses.fields(Settings)} | settings


def _known(settings: dict[str, Any]) -> dict[str, Any]:
    fields = [field.name for field in dataclasses.fields(Settings)]
    for name in settings:
        if name not in fields:
            raise ArgumentError(f"{checks.suggestion(name, fields)}{name!r} is no setting")
    return settings


def build_topology(config: Settings) -> "Graphs":
    """Builds the graph that `topology`, `agents` and, for random graphs, `seed` describe."""
    seed = config.seed if is_random(config.topology) else 0
    return make_graph(config.topology, config.agents, seed)


# ---- settings of a user's file FILE.py[:VARIANT], whose get_config() returns them ----


def load_settings(text: str) -> Settings:
    """Runs the file and returns what its get_config(), or get_config(VARIANT), returns."""
    name, variant = _split(text)
    path = pathlib.Path(name)
    file = user_code.read("config", path)
    try:
        with user_code.folder_on_path(path):  # overlays import their base
            module = user_code.run_file(file)
            config = module.get_config(variant) if variant else module.get_config()
    except (Exception, SystemExit) as error:  # it is the user's own program
        raise ArgumentError(f"config {text}: {type(error).__name__}: {one_line(error)}") from error
    if not isinstance(config, Settings):
        raise ArgumentError(f"{name}: get_config() must return saddle_jax.Settings, got {config!r}")
    return config


def _split(text: str) -> tuple[str, str]:
    """Returns file and variant; a colon may be part of the file's path, too."""
    parts = text.split(":")
    for count in range(len(parts), 0, -1):
        name = ":".join(parts[:count])
        with contextlib.suppress(ValueError):  # a name that no file can have
            if pathlib.Path(name).is_file():
                return name, ":".join(parts[count:])
    raise ArgumentError(f"config must be a file FILE.py[:VARIANT], got {text!r}")
