"""A run in words: what is about to happen, how it goes and how it ended; and what config.json says of it."""

import functools
import hashlib
import importlib.metadata
import math
import pathlib
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from saddle_jax import models
from saddle_jax.base.registry import Spec, is_object, parameters_of
from saddle_jax.core.comm_cost import passes_per_step, readable
from saddle_jax.core.method import Method
from saddle_jax.core.trees import layer_names
from saddle_jax.data import sources
from saddle_jax.devices import hosts
from saddle_jax.graphs import GRAPHS
from saddle_jax.graphs.files import to_record
from saddle_jax.kernels import native
from saddle_jax.methods import METHODS
from saddle_jax.models import MODELS
from saddle_jax.runs.checkpoints import tree_sha256
from saddle_jax.runs.run_folder import read_about
from saddle_jax.settings import network
from saddle_jax.settings.settings import Settings
from saddle_jax.settings.sweep import name_of, options_among, parse_sweep
from saddle_jax.tasks.objectives import Objective, scored
from saddle_jax.training.build import Trial
from saddle_jax.training.program import Program
from saddle_jax.version import __version__

# ---- its parts, as far as it has them, and how numbers are written ----


_SWEPT = "swept"


def of_method(config: Settings, method: Method) -> str:
    """Names the method and its estimator, with the options in force that its text does not give."""
    numbers = parse_sweep(config.sweep)
    swept = {**options_among("method", numbers), **options_among("gradient", numbers)}
    arguments, given = _innermost(method, {} if is_object(config.method) else METHODS.given(config.method))
    if arguments.get("gossip") is not None:
        given = {**given, "gamma": None}  # which the gossip has
    options = {name: value for name, value in arguments.items() if name not in given}
    parts = [config.method]
    if not method.gradient.is_linear:
        name = method.gradient.name
        parts.append(re.sub(r"rho=[^,)]*", f"rho={_SWEPT}", name) if "rho" in swept else name)
    meanings = {"beta": "momentum", "mu": "mu", "weight_decay": "weight decay", "gamma": "gamma"}
    for name, meaning in meanings.items():
        value = _SWEPT if name in swept and arguments == method.arguments else options.get(name)
        if isinstance(value, str | int | float):
            nesterov = options.get("nesterov")
            kind = "" if nesterov is None else " (Nesterov)" if nesterov else " (heavy ball)"
            number = value if isinstance(value, str) else f"{value:g}"
            parts.append(f"{meaning} {number}{kind if name == 'beta' else ''}")
    if options.get("local_steps", 1) > 1:
        parts.append(f"gossip in every {_ordinal(options['local_steps'])} step")
    return ", ".join(parts)


def _innermost(method: Method, given: Mapping[str, Any]) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Returns the arguments of the method within all that wrap it, and those that its text gives."""
    arguments = method.arguments
    while isinstance(inner := arguments.get("method"), Method):
        text = given.get("method")
        arguments, given = inner.arguments, METHODS.given(text) if isinstance(text, Spec) else {}
    return arguments, given


def of_data(trial: Trial) -> str:
    """Names the dataset, with how many samples it has and where they are from."""
    dataset = trial.dataset
    what = "images" if dataset.recipe is not None else "samples"
    return f"{dataset.name}, {dataset.size:,} + {dataset.test_size:,} {what}, from {dataset.source}"


def of_task(trial: Trial) -> str:
    """Says what is learned, if it is not classification, and what is known of it."""
    objective = trial.objective
    facts = {} if objective.facts is None else objective.facts(trial.context)
    if objective.name == "classification" and not facts:
        return ""
    headline = objective.headline
    known = "".join(f", {name} {value:.4g}" for name, value in facts.items())
    return f"{objective.name}, by {headline.record()['title']} ({headline.better} is better){known}"


def of_partition(trial: Trial) -> str:
    """Names the partition, and says how the agents' classes, or numbers of samples, differ."""
    partition = trial.partition
    if trial.dataset.labels is not None:
        classes, whole = partition.skew.classes_per_agent, len(trial.dataset.class_names)
        return f"{partition.name}: an agent has {classes:.1f} of {whole} classes on average"
    least, most = int(partition.sizes.min()), int(partition.sizes.max())
    counts = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    return f"{partition.name}: {counts} samples for each agent"


def of_model(trial: Trial, count: int) -> str:
    """Names the network, with how many parameters it has and, if it is one of ours, how it normalises."""
    config = trial.config
    name = trial.dataset.model if config.model == "auto" else config.model
    norm = f", {config.norm}" if MODELS.is_ours(name) and "norm" in parameters_of(MODELS.load(name)) else ""
    products = "" if config.precision == "float32" else f", products in {config.precision}"
    return f"{name}, {count:,} parameters{norm}{products}"


def of_rate(config: Settings) -> str:
    """Says what the learning rate is at first and how it falls; nothing where the method alone knows it."""
    if is_object(config.method):
        return ""
    rate = _SWEPT if "learning_rate" in parse_sweep(config.sweep) else f"{config.learning_rate:g}"
    return f", learning rate {rate} (schedule: {config.schedule})"


def span(found: Mapping[str, Any], metric: Mapping[str, Any], name: str = "") -> str:
    """Writes the lowest and the highest of a metric over all trials: "12.00 to 95.28 %"."""
    name = name or f"test_{metric['name']}"
    values = [x for x in found.get(f"{name}_by_trial", []) if x is not None and math.isfinite(x)]
    if not values:
        return "-"
    low, high = (score({name: value}, metric, name) for value in (min(values), max(values)))
    return f"{low.removesuffix(' %')} to {high}"


def newest(found: Mapping[str, Any], objective: Objective, swept: bool = False) -> dict[str, str]:
    """Writes the training loss and the headline of the test, as far as a record has them, by short names."""
    headline = objective.record()["metrics"][0]
    shown = {}
    if found.get("train_loss") is not None:
        shown["loss"] = f"{found['train_loss']:.4g}"
    key = f"test_{headline['name']}"
    if found.get(key) is not None:
        shown[headline["title"]] = span(found, headline) if swept else score({key: found[key]}, headline)
    return shown


def wrapped(name: str, text: str) -> str:
    """Lays out a line of a heading, so that it fits a terminal of 80 columns."""
    indent = " " * 11
    return textwrap.fill(
        text, 80, initial_indent=f"{name:<10} ", subsequent_indent=indent, break_on_hyphens=False
    )


def score(found: Mapping[str, Any], metric: Mapping[str, Any], name: str = "") -> str:
    """Writes a metric as people read it, with its spread if it has one: "95.28 +- 0.40 %".

    `metric` is what config.json says of it. Its number stands under `name`, the default being test_NAME.
    """
    name = name or f"test_{metric['name']}"
    if metric["percent"]:
        return f"{number(found, name, '.2f', 100)}{'' if found[name] is None else ' %'}"
    return number(found, name, ".4f" if metric["name"] == "loss" else ".4g")


def number(found: Mapping[str, Any], name: str, digits: str, scale: int = 1) -> str:
    """Writes a number of a record, with its spread over trials if it has one; null was not finite."""
    if found[name] is None:
        return "not finite"
    std = found.get(f"{name}_std")
    spread = "" if std is None else f" +- {scale * std:{digits}}"
    return f"{scale * found[name]:{digits}}{spread}"


def of_faults(config: Settings) -> str:
    """Says what goes wrong on the network; an empty text if nothing does."""
    numbers = {name: values[0] for name, values in parse_sweep(config.sweep).items()}
    swept, parts = options_among("faults", numbers), []
    faults = network.make_faults(config.faults, config.agents, swept)
    if faults is None:
        return ""

    def share(name: str) -> str:
        return f"a {_SWEPT} share" if name in swept else f"{100 * getattr(faults, name):g} %"

    if faults.drop:
        ways = "both ways" if faults.symmetric else "each way by itself"
        bursts = f", {faults.burst:g} steps in a row" if faults.burst else ""
        parts.append(f"{share('drop')} of messages lost ({ways}{bursts}, {_WEIGHTS[faults.lost_weight]})")
    if faults.arrived is not None:
        parts.append("messages lost by a mask")
    if faults.delay:
        parts.append(f"messages {_count(faults.delay, 'round')} late")
    if faults.offline:
        stay = f", {faults.mean_offline:g} steps in a row" if faults.mean_offline else ""
        parts.append(f"{share('offline')} of agents offline ({_AWAY[faults.computes]}{stay})")
    if faults.online is not None:
        parts.append("agents offline by a mask")
    for steps, verb in ((faults.joins, "joins"), (faults.leaves, "leaves")):
        parts += [f"agent {a} {verb} at step {t:,}" for a, t in (steps or {}).items()]
    return ", ".join(parts)


def of_timing(config: Settings) -> str:
    """Says how long messages and gradients take; an empty text if the settings do not say."""
    if config.timing == network.NONE or not network.TIMING.is_ours(config.timing):
        return "" if config.timing == network.NONE else config.timing
    given, parts = network.given_times(config.timing), []
    said: dict[str, Callable[[Any], str]] = {
        "latency": lambda value: f"latency {_seconds(value)}",
        "bandwidth": _bits,
        "compute": lambda value: f"{_seconds(value)} per backward pass",
    }
    for name, words in said.items():
        if name in given:
            value = network.quantity(name, given[name])
            parts.append(f"{name} from {value}" if isinstance(value, str) else words(value))
    sigma = given.get("compute_sigma", 0.0)
    return ", ".join(parts) + (f" (log-normal, sigma {sigma:g})" if sigma else "")


def duration(seconds: float) -> str:
    """Writes a time for people: 738 becomes "12.3 min"."""
    for unit, length in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return _seconds(seconds)


_WEIGHTS = {"self": "weight to self", "renormalise": "the others' weights scaled up"}
_AWAY = {False: "standing still", True: "training alone"}


def _seconds(seconds: float) -> str:
    for unit, length in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:g} s"


def _bits(rate: float) -> str:
    for unit, size in (("Tbit", 1e12), ("Gbit", 1e9), ("Mbit", 1e6), ("kbit", 1e3)):
        if rate >= size:
            return f"{rate / size:g} {unit}/s"
    return f"{rate:g} bit/s"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number // 10 % 10 != 1 else "th"
    return f"{number}{ending}"


_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "orbax-checkpoint", "tensorflow-datasets")


def versions() -> dict[str, str]:
    """Returns the versions of the packages that a run's numbers come from."""
    found = {"saddle_jax": __version__}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def tell_other_versions(workdir: pathlib.Path, tell: Callable[[str], None]) -> None:
    """Tells which packages were others when a run began, from its config.json; nothing if none was."""
    recorded = read_about(workdir).get("versions", {}) if hosts.writes() else {}
    changed = [
        f"{name} {recorded[name]} -> {number}"
        for name, number in versions().items()
        if recorded.get(name, number) != number
    ]
    if changed:
        listed = ", ".join(changed)
        tell(f"this run began with other versions ({listed}): its numbers may differ in the last bits")


def record(program: Program) -> dict[str, Any]:
    """Returns what config.json says beside the settings."""
    shapes = jax.eval_shape(program.trial.first_params)
    several = program.config.has_trials
    return {
        "versions": versions(),
        "devices": [f"{device.platform}:{device.device_kind}" for device in jax.devices()],
        "dataset": {
            **({"samples": program.trial.data.fingerprint} if _may_change(program) else {}),
            "source": program.trial.dataset.source,
            "train": program.trial.dataset.size,
            "class_names": list(program.trial.dataset.class_names),
        },
        **({"computes": computes} if (computes := fingerprint(program)) else {}),
        "objective": {**program.trial.objective.record(), **_facts(program.trial)},
        "partition": _about(program.trial),
        **({"partitions": [_about(one) for one in program.trials]} if several else {}),
        "topology": _about_graph(program),
        "parameters": models.count(shapes) // program.config.agents,
        "layers": layer_names(shapes),  # what the _by_layer metrics are of, in their order
        "steps": program.trial.steps,
        "passes_per_step": passes_per_step(program.method, program.shapes_of_one.params),
    }


def _may_change(program: Program) -> bool:
    """Tells whether data of the same name may be others another time: those of files, programs, objects."""
    return sources.is_other(program.config.dataset) or is_object(program.config.dataset)


def _facts(trial: Trial) -> dict[str, Any]:
    """Returns what is known of the task itself, such as its constants."""
    facts = trial.objective.facts
    return {} if facts is None else {"facts": facts(trial.context)}


def _about_graph(program: Program) -> dict[str, Any]:
    topology = program.method.topology
    about = {"name": topology.name, "gap": topology.spectral_gap}
    if GRAPHS.is_ours(program.config.topology):
        return about
    return about | {"graphs": to_record(program.trial.topology)}  # for readers who do not import it


def _about(trial: Trial) -> dict[str, Any]:
    partition = trial.partition
    named = {"name": partition.name, "fingerprint": partition.fingerprint}
    if trial.dataset.labels is None:
        return {**named, "sizes": partition.sizes.tolist()}
    skew = partition.skew
    return {
        **named,
        "classes_per_agent": skew.classes_per_agent,
        "entropy": skew.entropy,
        "earth_movers_distance": skew.earth_movers_distance,
        "class_counts": partition.class_counts.tolist(),
    }


def heading(program: Program, workdir: pathlib.Path) -> str:
    """Returns the lines that say what is about to run."""
    config, trial, method = program.config, program.trial, program.method
    count = models.count(jax.eval_shape(trial.first_params)) // config.agents
    rate = of_rate(config)
    per_step = program.comm_cost.wire_bytes_per_agent(1)
    agents_per_call = program.agents_per_call
    taken = (
        "" if agents_per_call >= program.placement.per_device else f", computed {agents_per_call} at a time"
    )
    taken += "" if config.conv_impl == "auto" else f", convolutions: {config.conv_impl}"
    whose = f" (of seed {trial.config.seed})" if config.seeds else ""
    unless = " if nobody is away" if method.faults is not None and method.faults.has_absences else ""
    rows = {
        "method": of_method(config, method),
        "graph": str(method.topology),
        "network": of_faults(config),
        "time": of_timing(config),
        "data": of_data(trial),
        "task": of_task(trial),
        "partition": of_partition(trial) + whose,
        "model": of_model(trial, count),
        "devices": f"{program.placement}{taken}",
        "faster": _faster(config, trial),
        "steps": f"{trial.steps:,} ({config.epochs} epochs of {trial.batches.steps_per_epoch}){rate}",
        "traffic": f"each agent sends {readable(per_step)} per step, "
        f"{readable(program.comm_cost.wire_bytes_per_agent(trial.steps))} in all{unless}",
        "folder": str(workdir),
    }
    if config.has_trials:
        named = [*([f"seeds {config.seeds}"] if config.seeds else []), *config.sweep.split()]
        rows["trials"] = f"{len(program.trials)} in one program: {' x '.join(named)}"
    return "\n".join(wrapped(name, text) for name, text in rows.items() if text)


def _faster(config: Settings, trial: Trial) -> str:
    """Returns what would make the convolutions faster, if there are any and something would."""
    kernels = [leaf for leaf in jax.tree.leaves(jax.eval_shape(trial.first_params)) if leaf.ndim == 5]
    missing = native.missing(config.conv_impl) if kernels else None
    return f"convolutions would be, with kernels of our own: {missing}" if missing else ""


def progress(epoch: float, found: dict[str, Any], objective: Objective, swept: bool = False) -> str:
    """Returns an evaluation, or a measured curvature, in one line; of trials with its spread.

    Numbers of different settings have no mean: of those that are swept the line has the lowest and highest.
    """
    if "lambda_max" in found:
        curvature = [f"{name} {number(found, name, '.4g')}" for name in ("lambda_max", "trace")]
        return f"epoch {epoch:g}: {', '.join(curvature)}"
    metrics = objective.record()["metrics"]
    if swept:
        shown = [f"{metric['title']} {span(found, metric)}" for metric in metrics]
        return f"epoch {epoch:g}: test {', '.join(shown)}, over all settings"
    shown = [f"{metric['title']} {score(found, metric)}" for metric in metrics]
    distance = number(found, "consensus_distance", ".3g")
    return f"epoch {epoch:g}: test {', '.join(shown)}, consensus distance {distance}"


def closing_table(result: dict[str, Any], objective: dict[str, Any]) -> str:
    """Returns the table that says how a run ended; `objective` is what config.json says of its metrics."""
    each = result.get("trials", [])
    headline, *others = objective["metrics"]
    rows = {"status": result["status"]}
    if each and result["diverged"]:
        rows["status"] += f", {result['diverged']} of {len(each)} trials diverged"
    elif result["status"] == "diverged":
        last = result.get("last_finite")
        step = result.get("diverged_at_step", result["steps"])
        rows["status"] += f" at step {step:,}: loss or models were not finite"
        if last:
            rows["last finite"] = f"loss {last['train_loss']:.4f} at step {last['step']:,}"
    swept = bool(result.get("swept"))  # numbers of different settings have no mean
    if swept:
        rows[f"test {headline['title']}"] = "of each setting  (consensus model, mean +- std over seeds)"
    elif f"test_{headline['name']}" in result:
        mean = ", mean +- std" if each else ""
        rows[f"test {headline['title']}"] = f"{score(result, headline)}  (consensus model{mean})"
    for one in result.get("settings", each):
        name = name_of({key: one[key] for key in ("seed", *result.get("swept", ())) if key in one})
        missing = "diverged" if one.get("diverged") or one.get("status") == "diverged" else "not evaluated"
        known = one.get(f"test_{headline['name']}") is not None
        rows[f"  {name}"] = score(one, headline) if known else missing
    agents = f"agent_{headline['name']}_mean"
    if agents in result and not swept:
        spread = {"test": result[agents], "test_std": result[f"agent_{headline['name']}_std"]}
        rows["agents"] = f"{score(spread, headline, 'test')}  (each on its own)"
    for metric in others if not swept else ():
        if f"test_{metric['name']}" in result:
            rows[f"test {metric['title']}"] = score({**result, f"test_{metric['name']}_std": None}, metric)
    if "consensus_distance" in result and not swept:
        alone = {"distance": result["consensus_distance"]}  # trials show the mean without its spread
        rows["consensus distance"] = number(alone, "distance", ".4g")
    rows |= _costs(result)
    width = max(20, *map(len, rows))
    return "\n".join(f"{name:<{width}} {text}" for name, text in rows.items())


def _costs(result: dict[str, Any]) -> dict[str, str]:
    """Returns what a run has sent and how long it took, as rows of the closing table."""
    wire, paper = result["bytes_sent_per_agent"], result["paper_bytes_sent_per_agent"]
    rows = {"sent per agent": f"{readable(wire)}  ({readable(paper)} as the paper counts)"}
    if result.get("simulated_seconds") is not None:
        std = result.get("simulated_seconds_std")
        spread = f" +- {duration(std)}" if std else ""
        rows["simulated time"] = f"{duration(result['simulated_seconds'])}{spread}  (on this network)"
    rows["steps, time"] = f"{result['steps']:,} in {result['seconds']:.1f} s"
    if "ready_seconds" in result:
        rows["steps, time"] += f"  (ready in {result['ready_seconds']:.1f} s)"
    if "profile" in result:
        spent = result["profile"]
        shares = (f"{name} {100 * seconds / sum(spent.values()):.1f} %" for name, seconds in spent.items())
        rows["where it went"] = ", ".join(shares)
    return rows


# ---- what a run of Python objects computes: there is no file whose hash would tell ----


def fingerprint(program: Program) -> str | None:
    """Returns the fingerprint of a step, if the settings name objects that no file holds; else None."""
    config = program.config
    named = (config.method, config.model, config.dataset, config.objective, config.topology)
    if not any(map(is_object, named)):
        return None
    trial = program.trial
    method = trial.method_on(trial.topology)
    params = jax.eval_shape(trial.first_params)
    state = jax.eval_shape(method.init, params)
    batch = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((config.agents, *x.shape), x.dtype), trial.batch_shapes()
    )

    def step(params: Any, state: Any, batch: Any, key: Any) -> Any:
        return method.step(trial.loss_fn, params, state, batch, key)[:2]

    digest = hashlib.sha256(tree_sha256(trial.first_model()).encode())
    for traced in (
        jax.make_jaxpr(step)(params, state, batch, jax.random.key(0)),
        jax.make_jaxpr(functools.partial(scored, trial.objective, trial.dataset.recipe))(
            jax.eval_shape(trial.first_model), trial.test_shapes(2)
        ),
    ):
        digest.update(re.sub(r"0x[0-9a-f]+", "", str(traced.jaxpr)).encode())
        for constant in traced.consts:
            array = np.asarray(constant)
            digest.update(f"{array.shape} {array.dtype}".encode() + array.tobytes())
    return digest.hexdigest()[:16]
