"""A run in words: what is about to happen, and how it ended."""

import importlib.metadata
import pathlib
from typing import Any, cast

import jax

from saddle_jax import models
from saddle_jax.agents import group_size
from saddle_jax.experiment import Experiment
from saddle_jax.ledger import readable
from saddle_jax.mixing import Form, mixing_form
from saddle_jax.trees import layer_names
from saddle_jax.version import __version__

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "orbax-checkpoint", "tensorflow-datasets")


def versions() -> dict[str, str]:
    """Of the packages that a run's numbers come from."""
    found = {"saddle_jax": __version__}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def record(experiment: Experiment) -> dict[str, Any]:
    """What config.json says beside the settings."""
    skew = experiment.partition.skew
    shapes = jax.eval_shape(experiment.first_params)
    return {
        "versions": versions(),
        "devices": [f"{device.platform}:{device.device_kind}" for device in jax.devices()],
        "dataset": {
            "source": experiment.dataset.source,
            "train": len(experiment.dataset.train_labels),
            "class_names": list(experiment.dataset.class_names),
        },
        "partition": {
            "name": experiment.partition.name,
            "fingerprint": experiment.partition.fingerprint,
            "classes_per_agent": skew.classes_per_agent,
            "entropy": skew.entropy,
            "earth_movers_distance": skew.earth_movers_distance,
            "class_counts": experiment.partition.class_counts.tolist(),
        },
        "topology": {"name": experiment.method.topology.name, "gap": experiment.method.topology.spectral_gap},
        "parameters": models.count(shapes) // experiment.config.agents,
        "layers": layer_names(shapes),  # what the _by_layer metrics are of, in their order
        "steps": experiment.steps,
    }


def heading(experiment: Experiment, workdir: pathlib.Path) -> str:
    """What is about to run."""
    config, dataset, method = experiment.config, experiment.dataset, experiment.method
    count = models.count(jax.eval_shape(experiment.first_params)) // config.agents
    ascent = method.gradients.ascent
    sam = "" if ascent.is_plain else f", rho {ascent.rho:g}"
    sam += f" in every {ascent.every}th step" if ascent.every > 1 else ""
    kind = "Nesterov" if config.nesterov else "heavy ball"
    order = "" if config.method in ("ngm", "n_saddle") else f" ({config.order} order)"
    compressed = "" if config.compressor == "none" else f", {config.compressor}{order}"
    per_step = experiment.ledger.wire_bytes_per_agent(1)
    group = group_size(experiment.placement.per_device, config.group)
    taken = "" if group == experiment.placement.per_device else f", {group} at a time"
    rows = {
        "method": f"{config.method}{sam}, momentum {config.beta:g} ({kind}), "
        f"weight decay {config.weight_decay:g}, gamma {config.gamma:g}{compressed}",
        "graph": f"{method.topology} (mixing: {mixing_form(method.topology, cast(Form, config.form))})",
        "data": f"{dataset.name}, {len(dataset.train_labels):,} + {len(dataset.test_labels):,} images, "
        f"from {dataset.source}",
        "partition": f"{experiment.partition.name}: {experiment.partition.skew}",
        "model": f"{config.model}, {count:,} parameters, {config.norm}",
        "devices": f"{experiment.placement}{taken}",
        "steps": f"{experiment.steps:,} ({config.epochs} epochs of {experiment.batches.steps_per_epoch}), "
        f"eta {config.learning_rate:g} ({config.schedule})",
        "traffic": f"each agent sends {readable(per_step)} per step, "
        f"{readable(experiment.ledger.wire_bytes_per_agent(experiment.steps))} in all",
        "folder": str(workdir),
    }
    return "\n".join(f"{name:<10} {text}" for name, text in rows.items())


def closing_table(result: dict[str, Any]) -> str:
    """How a run ended."""
    rows = {"status": result["status"]}
    if result["status"] == "diverged":
        last = result.get("last_finite")
        rows["status"] += f" at step {result['diverged_at_step']:,}: the loss was not finite"
        if last:
            rows["last finite"] = f"loss {last['train_loss']:.4f} at step {last['step']:,}"
    if "test_accuracy" in result:
        rows["test accuracy"] = f"{100 * result['test_accuracy']:.2f} %  (consensus model)"
    if "agent_accuracy_mean" in result:
        mean, std = 100 * result["agent_accuracy_mean"], 100 * result["agent_accuracy_std"]
        rows["agents"] = f"{mean:.2f} +- {std:.2f} %  (each on its own)"
    if "test_loss" in result:
        rows["test loss"] = f"{result['test_loss']:.4f}"
        rows["consensus distance"] = f"{result['consensus_distance']:.4g}"
    wire, paper = result["bytes_sent_per_agent"], result["paper_bytes_sent_per_agent"]
    rows["sent per agent"] = f"{readable(wire)}  ({readable(paper)} as the paper counts)"
    rows["steps, time"] = f"{result['steps']:,} in {result['seconds']:.1f} s"
    if "profile" in result:
        spent = result["profile"]
        shares = (f"{name} {100 * seconds / sum(spent.values()):.1f} %" for name, seconds in spent.items())
        rows["where it went"] = ", ".join(shares)
    return "\n".join(f"{name:<20} {text}" for name, text in rows.items())
