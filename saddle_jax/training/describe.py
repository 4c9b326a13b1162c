"""A run in words: what is about to happen, and how it ended."""

import importlib.metadata
import pathlib
from collections.abc import Callable
from typing import Any

import jax

from saddle_jax import models
from saddle_jax.core.ledger import passes_per_step, readable
from saddle_jax.core.trees import layer_names
from saddle_jax.data import others
from saddle_jax.devices import hosts
from saddle_jax.graphs.recorded import to_record
from saddle_jax.graphs.spelling import is_ours
from saddle_jax.kernels import native
from saddle_jax.runs.run_folder import read_about
from saddle_jax.settings.config import Config
from saddle_jax.settings.sweep import name_of
from saddle_jax.tasks.objectives import Objective
from saddle_jax.training import computed, phrases
from saddle_jax.training.build import Replica
from saddle_jax.training.program import Program
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
    shapes = jax.eval_shape(program.replica.first_params)
    several = program.config.has_replicas
    return {
        "versions": versions(),
        "devices": [f"{device.platform}:{device.device_kind}" for device in jax.devices()],
        "dataset": {
            **({"samples": program.replica.parts.dataset.fingerprint} if _may_change(program) else {}),
            "source": program.replica.dataset.source,
            "train": program.replica.dataset.size,
            "class_names": list(program.replica.dataset.class_names),
        },
        **({"computes": computes} if (computes := computed.fingerprint(program)) else {}),
        "objective": {**program.replica.objective.record(), **_facts(program.replica)},
        "partition": _about(program.replica),
        **({"partitions": [_about(one) for one in program.replicas]} if several else {}),
        "topology": _about_graph(program),
        "parameters": models.count(shapes) // program.config.agents,
        "layers": layer_names(shapes),  # what the _by_layer metrics are of, in their order
        "steps": program.replica.steps,
        "passes_per_step": passes_per_step(program.method, program.shapes_of_one.params),
    }


def _may_change(program: Program) -> bool:
    """Tells whether data of the same name may be others another time: those of files, programs, objects."""
    return others.is_other(program.config.dataset)


def _facts(replica: Replica) -> dict[str, Any]:
    """Returns what is known of the task itself, such as its constants."""
    facts = replica.objective.facts
    return {} if facts is None else {"facts": facts(replica.ground)}


def _about_graph(program: Program) -> dict[str, Any]:
    topology = program.method.topology
    about = {"name": topology.name, "gap": topology.spectral_gap}
    if is_ours(program.config.topology):
        return about
    return about | {"graphs": to_record(program.replica.topology)}  # for readers who do not import it


def _about(replica: Replica) -> dict[str, Any]:
    partition = replica.partition
    named = {"name": partition.name, "fingerprint": partition.fingerprint}
    if replica.dataset.labels is None:
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
    config, replica, method = program.config, program.replica, program.method
    count = models.count(jax.eval_shape(replica.first_params)) // config.agents
    rate = phrases.of_rate(config)
    per_step = program.ledger.wire_bytes_per_agent(1)
    group = program.group
    taken = "" if group >= program.placement.per_device else f", computed {group} at a time"
    taken += "" if config.lowering == "auto" else f", convolutions: {config.lowering}"
    whose = f" (of seed {replica.config.seed})" if config.seeds else ""
    unless = " if nobody is away" if method.faults is not None and method.faults.has_absences else ""
    rows = {
        "method": phrases.of_method(config, method),
        "graph": str(method.topology),
        "network": phrases.of_faults(config),
        "time": phrases.of_timing(config),
        "data": phrases.of_data(replica),
        "task": phrases.of_task(replica),
        "partition": phrases.of_partition(replica) + whose,
        "model": phrases.of_model(replica, count),
        "devices": f"{program.placement}{taken}",
        "faster": _faster(config, replica),
        "steps": f"{replica.steps:,} ({config.epochs} epochs of {replica.batches.steps_per_epoch}){rate}",
        "traffic": f"each agent sends {readable(per_step)} per step, "
        f"{readable(program.ledger.wire_bytes_per_agent(replica.steps))} in all{unless}",
        "folder": str(workdir),
    }
    if config.has_replicas:
        named = [*([f"seeds {config.seeds}"] if config.seeds else []), *config.sweep.split()]
        rows["replicas"] = f"{len(program.replicas)} in one program: {' x '.join(named)}"
    return "\n".join(phrases.wrapped(name, text) for name, text in rows.items() if text)


def _faster(config: Config, replica: Replica) -> str:
    """Returns what would make the convolutions faster, if there are any and something would."""
    kernels = [leaf for leaf in jax.tree.leaves(jax.eval_shape(replica.first_params)) if leaf.ndim == 5]
    missing = native.missing(config.lowering) if kernels else None
    return f"convolutions would be, with kernels of our own: {missing}" if missing else ""


def progress(epoch: float, found: dict[str, Any], objective: Objective, swept: bool = False) -> str:
    """Returns an evaluation, or a measured curvature, in one line; of replicas with its spread.

    Numbers of different settings have no mean: of those that are swept the line has the lowest and highest.
    """
    if "lambda_max" in found:
        curvature = [f"{name} {phrases.number(found, name, '.4g')}" for name in ("lambda_max", "trace")]
        return f"epoch {epoch:g}: {', '.join(curvature)}"
    metrics = objective.record()["metrics"]
    if swept:
        shown = [f"{metric['title']} {phrases.span(found, metric)}" for metric in metrics]
        return f"epoch {epoch:g}: test {', '.join(shown)}, over all settings"
    shown = [f"{metric['title']} {phrases.score(found, metric)}" for metric in metrics]
    distance = phrases.number(found, "consensus_distance", ".3g")
    return f"epoch {epoch:g}: test {', '.join(shown)}, consensus distance {distance}"


def closing_table(result: dict[str, Any], objective: dict[str, Any]) -> str:
    """Returns the table that says how a run ended; `objective` is what config.json says of its metrics."""
    each = result.get("replicas", [])
    headline, *others = objective["metrics"]
    rows = {"status": result["status"]}
    if each and result["diverged"]:
        rows["status"] += f", {result['diverged']} of {len(each)} replicas diverged"
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
        rows[f"test {headline['title']}"] = f"{phrases.score(result, headline)}  (consensus model{mean})"
    for one in result.get("settings", each):
        name = name_of({key: one[key] for key in ("seed", *result.get("swept", ())) if key in one})
        missing = "diverged" if one.get("diverged") or one.get("status") == "diverged" else "not evaluated"
        known = one.get(f"test_{headline['name']}") is not None
        rows[f"  {name}"] = phrases.score(one, headline) if known else missing
    agents = f"agent_{headline['name']}_mean"
    if agents in result and not swept:
        spread = {"test": result[agents], "test_std": result[f"agent_{headline['name']}_std"]}
        rows["agents"] = f"{phrases.score(spread, headline, 'test')}  (each on its own)"
    for metric in others if not swept else ():
        if f"test_{metric['name']}" in result:
            rows[f"test {metric['title']}"] = phrases.score(
                {**result, f"test_{metric['name']}_std": None}, metric
            )
    if "consensus_distance" in result and not swept:
        alone = {"distance": result["consensus_distance"]}  # replicas show the mean without its spread
        rows["consensus distance"] = phrases.number(alone, "distance", ".4g")
    rows |= _costs(result)
    width = max(20, *map(len, rows))
    return "\n".join(f"{name:<{width}} {text}" for name, text in rows.items())


def _costs(result: dict[str, Any]) -> dict[str, str]:
    """Returns what a run has sent and how long it took, as rows of the closing table."""
    wire, paper = result["bytes_sent_per_agent"], result["paper_bytes_sent_per_agent"]
    rows = {"sent per agent": f"{readable(wire)}  ({readable(paper)} as the paper counts)"}
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
    return rows
