"""What a heading says of a run's parts, as far as it has them, and how its numbers are written."""

import math
import re
import textwrap
from collections.abc import Mapping
from typing import Any

from saddle_jax.base import brought, tables
from saddle_jax.core.method import Method
from saddle_jax.models import MODELS
from saddle_jax.settings import network
from saddle_jax.settings.config import Config
from saddle_jax.settings.sweep import parse_sweep
from saddle_jax.tasks.objectives import Objective
from saddle_jax.training import methods
from saddle_jax.training.build import Replica

_SWEPT = "swept"


def of_method(config: Config, method: Method) -> str:
    """Names the method, its ascent and the options that it has, as they are in force."""
    swept = parse_sweep(config.sweep)
    options = {} if brought.is_object(config.method) else methods.in_force(config)

    def number(name: str) -> str:
        return _SWEPT if name in swept else f"{options[name]:g}"

    parts = [config.method]
    if not method.ascent.is_linear:
        name = method.ascent.name
        parts.append(re.sub(r"rho=[^,)]*", f"rho={_SWEPT}", name) if "rho" in swept else name)
    if "beta" in options:
        kind = {True: " (Nesterov)", False: " (heavy ball)", None: ""}[options.get("nesterov")]
        parts.append(f"momentum {number('beta')}{kind}")
    for name, meaning in (("mu", "mu"), ("weight_decay", "weight decay"), ("gamma", "gamma")):
        if name in swept or isinstance(options.get(name), int | float):
            parts.append(f"{meaning} {number(name)}")
    if options.get("local_steps", 1) > 1:
        parts.append(f"gossip in every {_ordinal(options['local_steps'])} step")
    if config.slowmo_every:
        parts.append(f"SlowMo every {config.slowmo_every} steps (momentum {config.slowmo_beta:g})")
    if options.get("compressor") is not None:
        parts.append(config.compressor + (f" ({options['order']} order)" if "order" in options else ""))
    return ", ".join(parts)


def of_data(replica: Replica) -> str:
    """Names the dataset, with how many samples it has and where they are from."""
    dataset = replica.dataset
    what = "images" if dataset.recipe is not None else "samples"
    return f"{dataset.name}, {dataset.size:,} + {dataset.test_size:,} {what}, from {dataset.source}"


def of_task(replica: Replica) -> str:
    """Says what is learned, if it is not classification, and what is known of it."""
    objective = replica.objective
    facts = {} if objective.facts is None else objective.facts(replica.ground)
    if objective.name == "classification" and not facts:
        return ""
    headline = objective.headline
    known = "".join(f", {name} {value:.4g}" for name, value in facts.items())
    return f"{objective.name}, by {headline.record()['title']} ({headline.better} is better){known}"


def of_partition(replica: Replica) -> str:
    """Names the partition, and says how the agents' classes, or numbers of samples, differ."""
    partition = replica.partition
    if replica.dataset.labels is not None:
        classes, whole = partition.skew.classes_per_agent, len(replica.dataset.class_names)
        return f"{partition.name}: an agent has {classes:.1f} of {whole} classes on average"
    least, most = int(partition.sizes.min()), int(partition.sizes.max())
    counts = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    return f"{partition.name}: {counts} samples for each agent"


def of_model(replica: Replica, count: int) -> str:
    """Names the network, with how many parameters it has and, if it is one of ours, how it normalises."""
    config = replica.config
    name = replica.dataset.model if config.model == "auto" else config.model
    norm = f", {config.norm}" if name in MODELS and "norm" in tables.options(MODELS[name]) else ""
    products = "" if config.precision == "float32" else f", products in {config.precision}"
    return f"{name}, {count:,} parameters{norm}{products}"


def of_rate(config: Config) -> str:
    """Says what the learning rate is at first and how it falls; nothing where the method alone knows it."""
    if brought.is_object(config.method):
        return ""
    rate = _SWEPT if "learning_rate" in parse_sweep(config.sweep) else f"{config.learning_rate:g}"
    return f", learning rate {rate} (schedule: {config.schedule})"


def span(found: Mapping[str, Any], metric: Mapping[str, Any], name: str = "") -> str:
    """Writes the lowest and the highest of a metric over all replicas: "12.00 to 95.28 %"."""
    name = name or f"test_{metric['name']}"
    values = [x for x in found.get(f"{name}_by_replica", []) if x is not None and math.isfinite(x)]
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
    """Writes a number of a record, with its spread over replicas if it has one; null was not finite."""
    if found[name] is None:
        return "not finite"
    std = found.get(f"{name}_std")
    spread = "" if std is None else f" +- {scale * std:{digits}}"
    return f"{scale * found[name]:{digits}}{spread}"


def of_faults(config: Config) -> str:
    """Says what goes wrong on the network; an empty text if nothing does."""
    swept, parts = parse_sweep(config.sweep), []

    def share(name: str) -> str:
        return f"a {_SWEPT} share" if name in swept else f"{100 * getattr(config, name):g} %"

    if config.drop or "drop" in swept:
        ways = "both ways" if config.symmetric else "each way by itself"
        bursts = f", {config.burst:g} steps in a row" if config.burst else ""
        parts.append(f"{share('drop')} of messages lost ({ways}{bursts}, {_WEIGHTS[config.missing]})")
    if config.delay:
        parts.append(f"messages {_count(config.delay, 'round')} late")
    if config.offline or "offline" in swept:
        stay = f", {config.absence:g} steps in a row" if config.absence else ""
        parts.append(f"{share('offline')} of agents offline ({_AWAY[config.offline_computes]}{stay})")
    for text, verb in ((config.joins, "joins"), (config.leaves, "leaves")):
        parts += [f"agent {a} {verb} at step {t:,}" for a, t in network.check_steps(verb, text).items()]
    return ", ".join(parts)


def of_timing(config: Config) -> str:
    """Says how long messages and gradients take; an empty text if the settings do not say."""
    spread = f" (log-normal, sigma {config.straggling:g})" if config.straggling else ""
    said = (
        ("latency", network.check_seconds, lambda value: f"latency {_seconds(value)}"),
        ("bandwidth", network.check_bandwidth, _bits),
        ("compute_time", network.check_seconds, lambda value: f"{_seconds(value)} per backward pass"),
    )
    parts = []
    for name, check, words in said:
        if getattr(config, name):
            value = check(name, getattr(config, name))
            parts.append(f"{name} from {value}" if isinstance(value, str) else words(value))
    return ", ".join(parts) + (spread if config.compute_time else "")


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
