"""A run in words: what is about to happen, and how it ended."""

import importlib.metadata
import pathlib
from typing import Any, cast

import jax

from saddle_jax import models
from saddle_jax.core.ledger import passes_per_step, readable
from saddle_jax.core.mixing import Form, mixing_form
from saddle_jax.core.trees import layer_names
from saddle_jax.data import Partition
from saddle_jax.training import phrases
from saddle_jax.training.program import Program
from saddle_jax.training.sweep import SWEPT, name_of, parse_sweep
from saddle_jax.version import __version__

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


def record(program: Program) -> dict[str, Any]:
    """Returns what config.json says beside the settings."""
    shapes = jax.eval_shape(program.problem.first_params)
    several = program.config.has_replicas
    return {
        "versions": versions(),
        "devices": [f"{device.platform}:{device.device_kind}" for device in jax.devices()],
        "dataset": {
            "source": program.problem.dataset.source,
            "train": len(program.problem.dataset.train_labels),
            "class_names": list(program.problem.dataset.class_names),
        },
        "partition": _about(program.problem.partition),
        **({"partitions": [_about(one.partition) for one in program.problems]} if several else {}),
        "topology": {"name": program.method.topology.name, "gap": program.method.topology.spectral_gap},
        "parameters": models.count(shapes) // program.config.agents,
        "layers": layer_names(shapes),  # what the _by_layer metrics are of, in their order
        "steps": program.problem.steps,
        "passes_per_step": passes_per_step(program.method, program.shapes_of_one.params),
    }


def _about(partition: Partition) -> dict[str, Any]:
    skew = partition.skew
    return {
        "name": partition.name,
        "fingerprint": partition.fingerprint,
        "classes_per_agent": skew.classes_per_agent,
        "entropy": skew.entropy,
        "earth_movers_distance": skew.earth_movers_distance,
        "class_counts": partition.class_counts.tolist(),
    }


def heading(program: Program, workdir: pathlib.Path) -> str:
    """Returns the lines that say what is about to run."""
    config, problem, method = program.config, program.problem, program.method
    dataset = problem.dataset
    count = models.count(jax.eval_shape(problem.first_params)) // config.agents
    rate = "swept" if "learning_rate" in parse_sweep(config.sweep) else f"{config.learning_rate:g}"
    per_step = program.ledger.wire_bytes_per_agent(1)
    group = program.group
    taken = "" if group >= program.placement.per_device else f", {group} at a time"
    taken += "" if config.lowering == "fast" else f", convolutions: {config.lowering}"
    whose = f" (of seed {problem.config.seed})" if config.seeds else ""
    unless = " if nobody is away" if method.faults is not None and method.faults.has_absences else ""
    rows = {
        "method": phrases.of_method(config, method),
        "graph": f"{method.topology} (mixing: {mixing_form(method.topology, cast(Form, config.form))})",
        "network": phrases.of_faults(config),
        "time": phrases.of_timing(config),
        "data": f"{dataset.name}, {len(dataset.train_labels):,} + {len(dataset.test_labels):,} images, "
        f"from {dataset.source}",
        "partition": f"{problem.partition.name}: {problem.partition.skew}{whose}",
        "model": f"{config.model}, {count:,} parameters, {config.norm}",
        "devices": f"{program.placement}{taken}",
        "steps": f"{problem.steps:,} ({config.epochs} epochs of {problem.batches.steps_per_epoch}), "
        f"eta {rate} ({config.schedule})",
        "traffic": f"each agent sends {readable(per_step)} per step, "
        f"{readable(program.ledger.wire_bytes_per_agent(problem.steps))} in all{unless}",
        "folder": str(workdir),
    }
    if config.has_replicas:
        named = [*([f"seeds {config.seeds}"] if config.seeds else []), *config.sweep.split()]
        rows["replicas"] = f"{len(program.problems)} in one program: {' x '.join(named)}"
    return "\n".join(f"{name:<10} {text}" for name, text in rows.items() if text)


def progress(epoch: float, found: dict[str, Any]) -> str:
    """Returns an evaluation, or a measured curvature, in one line; of replicas with its spread."""

    def text(name: str, digits: str, scale: int = 1) -> str:
        std = found.get(f"{name}_std")
        spread = "" if std is None else f" +- {scale * std:{digits}}"
        return f"{scale * found[name]:{digits}}{spread}"

    if "lambda_max" in found:
        return f"epoch {epoch:g}: lambda_max {text('lambda_max', '.4g')}, trace {text('trace', '.4g')}"
    return (
        f"epoch {epoch:g}: test accuracy {text('test_accuracy', '.2f', 100)} %, "
        f"loss {text('test_loss', '.4f')}, consensus distance {text('consensus_distance', '.3g')}"
    )


def closing_table(result: dict[str, Any]) -> str:
    """Returns the table that says how a run ended."""
    each = result.get("replicas", [])
    rows = {"status": result["status"]}
    if each and result["diverged"]:
        rows["status"] += f", {result['diverged']} of {len(each)} replicas diverged"
    elif result["status"] == "diverged":
        last = result.get("last_finite")
        rows["status"] += f" at step {result['diverged_at_step']:,}: loss or models were not finite"
        if last:
            rows["last finite"] = f"loss {last['train_loss']:.4f} at step {last['step']:,}"
    if "test_accuracy" in result:
        rows["test accuracy"] = f"{_percent(result)}  (consensus model{', mean +- std' if each else ''})"
    for one in result.get("settings", each):
        name = name_of({key: one[key] for key in ("seed", *SWEPT) if key in one})
        missing = "diverged" if one.get("diverged") or one.get("status") == "diverged" else "not evaluated"
        rows[f"  {name}"] = _percent(one) if one.get("test_accuracy") is not None else missing
    if "agent_accuracy_mean" in result:
        mean, std = 100 * result["agent_accuracy_mean"], 100 * result["agent_accuracy_std"]
        rows["agents"] = f"{mean:.2f} +- {std:.2f} %  (each on its own)"
    if "test_loss" in result:
        rows["test loss"] = f"{result['test_loss']:.4f}"
        rows["consensus distance"] = f"{result['consensus_distance']:.4g}"
    wire, paper = result["bytes_sent_per_agent"], result["paper_bytes_sent_per_agent"]
    rows["sent per agent"] = f"{readable(wire)}  ({readable(paper)} as the paper counts)"
    if result.get("simulated_seconds") is not None:
        std = result.get("simulated_seconds_std")
        spread = f" +- {phrases.duration(std)}" if std else ""
        rows["simulated time"] = f"{phrases.duration(result['simulated_seconds'])}{spread}  (on this network)"
    rows["steps, time"] = f"{result['steps']:,} in {result['seconds']:.1f} s"
    if "ready_seconds" in result:
        rows["steps, time"] += f"  (ready in {result['ready_seconds']:.1f} s)"
    if "profile" in result:
        spent = result["profile"]
        shares = (f"{name} {100 * seconds / sum(spent.values()):.1f} %" for name, seconds in spent.items())
        rows["where it went"] = ", ".join(shares)
    width = max(20, *map(len, rows))
    return "\n".join(f"{name:<{width}} {text}" for name, text in rows.items())


def _percent(result: dict[str, Any]) -> str:
    std = result.get("test_accuracy_std")
    return f"{100 * result['test_accuracy']:.2f}{'' if std is None else f' +- {100 * std:.2f}'} %"
