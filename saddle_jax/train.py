"""The training loop: build, step, log, evaluate, save; stop and go on. There is no other."""

import contextlib
import dataclasses
import pathlib
import signal
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax import curvature, hosts, report_text
from saddle_jax.checkpoint import Checkpoints, tree_sha256
from saddle_jax.config import Config
from saddle_jax.experiment import Experiment, build
from saddle_jax.ledger import table
from saddle_jax.profile import Profile
from saddle_jax.rundir import (
    Metrics,
    NoMetrics,
    claim,
    last_evaluation,
    locked,
    read_metrics,
    read_result,
    write_json,
)
from saddle_jax.screen import Screen
from saddle_jax.types import Params


def train(config: Config, workdir: pathlib.Path, screen: Screen, profile: bool = False) -> dict[str, Any]:
    """Trains, or goes on training, in a folder; returns what result.json says.

    The same settings and folder resume an interrupted run, bit for bit, and leave a finished one alone.
    """
    versions = {f"version of {name}": number for name, number in report_text.versions().items()}
    hosts.check_same({**versions, **config.to_json(), "data_dir": None})  # data may lie elsewhere
    with contextlib.ExitStack() as stack:
        with hosts.agreement():
            experiment = build(config)  # first of all: settings that cannot be run leave no trace
            if hosts.writes():
                stack.enter_context(locked(workdir))
        hosts.check_same({"partition": experiment.partition.fingerprint})
        hosts.check_shared(workdir)
        with hosts.agreement():
            if hosts.writes():
                claim(workdir, config, report_text.record(experiment))
        known = hosts.one_for_all(read_result, workdir)
        if known is not None and known["status"] != "interrupted":
            screen.line(f"{workdir} holds this run already: {known['status']}")
            screen.line(report_text.closing_table(known))
            return known
        screen.line(report_text.heading(experiment, workdir))
        run = _Run(experiment, workdir, screen, profile)
        try:
            result = run.go()
        finally:
            run.metrics.close()
        screen.line(report_text.closing_table(result))
        return result


@dataclasses.dataclass
class _Interrupt:
    """Set by Ctrl-C and by SIGTERM; the loop looks at it between two steps."""

    signal: int = 0

    def __enter__(self) -> "_Interrupt":
        self._before = {s: signal.signal(s, self._note) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def _note(self, number: int, _: Any) -> None:
        if self.signal:  # a second Ctrl-C does not wait
            raise KeyboardInterrupt
        self.signal = number

    def __exit__(self, *_: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


class _Run:
    """One run from where it stands to its end."""

    def __init__(self, experiment: Experiment, workdir: pathlib.Path, screen: Screen, profile: bool):
        self.experiment, self.config = experiment, experiment.config
        self.workdir, self.screen = workdir, screen
        self.profile = Profile(workdir) if profile and hosts.writes() else None
        self.keep_every = self.config.keep_every_epochs * experiment.batches.steps_per_epoch
        self.checkpoints = Checkpoints(workdir, self.config.keep_checkpoints, self.keep_every)
        self.carry = experiment.first_carry()
        self.step, self.seconds = 0, 0.0
        restored = self.checkpoints.restore_newest(self.carry, screen.warn, set_aside=True)
        if restored is not None:
            self.step, self.carry, notes = restored
            self.seconds = float(notes.get("seconds", 0.0))
        if (workdir / "metrics.jsonl").exists():
            screen.line(f"going on from step {self.step:,}")
        self.metrics = (
            Metrics(workdir, resume_at=self.step, last_step=experiment.steps)
            if hosts.writes()
            else NoMetrics()
        )
        self.vote = hosts.Vote()
        self.pending: tuple[int, Any] | None = None  # logged, but not yet fetched from the device
        logged = [r for r in read_metrics(workdir) if r.get("train_loss") is not None]
        self.last_finite = {name: logged[-1][name] for name in ("step", "train_loss")} if logged else {}
        self.first_bad = -1  # the step, from zero, whose loss was the first that is not finite
        self.started = time.perf_counter() - self.seconds

    @property
    def params(self) -> Params:
        return self.carry[0]

    def go(self) -> dict[str, Any]:
        """Steps until the end, an interruption or divergence; then result.json."""
        config, steps = self.config, self.experiment.steps
        per_epoch = self.experiment.batches.steps_per_epoch
        self.screen.start(steps, self.step)
        try:
            with _Interrupt() as interrupt:
                status = "finished"
                for inputs, positions in self._inputs():
                    self._advance(inputs, positions)
                    epoch_ended = self.step % per_epoch == 0
                    evaluates = epoch_ended and (self.step // per_epoch) % config.eval_every_epochs == 0
                    measures = epoch_ended and self._measures(self.step // per_epoch)
                    kept = self.keep_every and self.step % self.keep_every == 0
                    saves = kept or self.step % config.checkpoint_every_steps == 0
                    logs = self.step % config.log_every_steps == 0 or self.step == steps
                    if logs:
                        self._log()
                    interrupted = self.vote(interrupt.signal > 0, due=logs)
                    stops = evaluates or measures or saves or self.step == steps or interrupted
                    if stops and self._is_finite():
                        if evaluates and self.step < steps:
                            self._evaluate(every_agent=config.eval_agents == "always")
                        if measures and self.step < steps:
                            self._measure()
                        self._save()
                    if self.first_bad >= 0:
                        status = "diverged"
                        break
                    if interrupted and self.step < steps:
                        status = "interrupted"
                        break
                return self._end(status)
        finally:
            self.screen.stop()
            if self.profile:
                self.profile.stop()

    def _together(self) -> int:
        """How many steps the next call takes: several only if nothing is to be done between them.

        Calls of several steps start at multiples of their number, whether a run was resumed or not:
        that keeps a resumed run the same, bit for bit.
        """
        several = self.experiment.steps_per_dispatch
        config, per_epoch = self.config, self.experiment.batches.steps_per_epoch
        stops = (config.log_every_steps, config.checkpoint_every_steps, per_epoch)
        free = min(stop - self.step % stop for stop in stops)
        return several if self.step % several == 0 and free >= several else 1

    def _inputs(self) -> Iterator[tuple[Any, np.ndarray]]:
        """Images, labels, order and positions of every call from here on; nothing if all is done."""
        experiment, batches = self.experiment, self.experiment.batches
        order, order_epoch = None, -1
        streamed = streamed_inputs(experiment, self.step) if experiment.is_streamed else None
        while self.step < experiment.steps:
            epoch, number = divmod(self.step, batches.steps_per_epoch)
            count = np.arange(self._together(), dtype=np.int32)
            rest = np.stack([np.full_like(count, epoch), number + count, self.step + count], axis=1)
            if streamed is not None:
                yield next(streamed), np.insert(rest, 0, 0, axis=1)
                continue
            if epoch != order_epoch:
                order, order_epoch = experiment.order(epoch), epoch
            yield (*experiment.device_data, order), np.insert(rest, 0, number + count, axis=1)

    def _advance(self, inputs: Any, positions: np.ndarray) -> None:
        climbs = {self.experiment.method.ascends(step) for step in positions[:, 3].tolist()}
        ascend = climbs.pop() if len(climbs) == 1 else None
        with self._clock("steps", key=(len(positions), ascend)):
            self.carry, self.newest = self.experiment.take_steps(self.carry, *inputs, positions, ascend)
            if self.profile:
                jax.block_until_ready(self.carry)
        self.step += len(positions)
        self.screen.advance(len(positions))

    def _log(self) -> None:
        """Notes this step's metrics; those noted before, which are ready by now, are written."""
        self._flush()
        self.pending = (self.step, self.newest)

    def _flush(self) -> None:
        if self.pending is None:
            return
        step, metrics = self.pending
        self.pending = None
        occupied = self.experiment.method.topology.occupied[: self.config.agents]
        values = {
            name: _number(name, value, occupied) for name, value in jax.device_get(_flat(metrics)).items()
        }
        self.first_bad = int(values.pop("first_bad"))
        record = {"step": step, "epoch": step / self.experiment.batches.steps_per_epoch, **values}
        record["bytes_sent_per_agent"] = self.experiment.ledger.wire_bytes_per_agent(step)
        self.metrics.write(record)
        if np.isfinite(values["train_loss"]):
            self.last_finite = {"step": step, "train_loss": values["train_loss"]}

    def _is_finite(self) -> bool:
        """Whether losses and models are; a model may blow up in a step whose loss was still finite."""
        self._flush()
        self.first_bad = int(self.carry[2])
        if self.first_bad < 0 and not bool(self.experiment.placement.pull(_all_finite, self.params)):
            self.first_bad = self.step
        return self.first_bad < 0

    def _evaluate(self, every_agent: bool) -> dict[str, Any]:
        with self._clock("evaluation"):
            pull = self.experiment.placement.pull
            score = self.experiment.evaluate(self.experiment.consensus(self.params))
            found: dict[str, Any] = {
                "test_accuracy": score.accuracy,
                "test_loss": score.loss,
                "consensus_distance": float(self.experiment.consensus_distance(self.params)),
            }
            if every_agent:
                agents = [
                    self.experiment.evaluate(pull(_one_agent, self.params, i)).accuracy
                    for i in range(self.config.agents)
                ]
                found["agent_accuracy_mean"] = float(np.mean(agents))
                found["agent_accuracy_std"] = float(np.std(agents))
                found["agent_accuracies"] = agents
        found = hosts.one_for_all(lambda: found)  # what is decided on must not differ by a rounding
        epoch = self.step / self.experiment.batches.steps_per_epoch
        self.metrics.write({"step": self.step, "epoch": epoch, **found})
        self.screen.line(
            f"epoch {epoch:g}: test accuracy {100 * score.accuracy:.2f} %, loss {score.loss:.4f}, "
            f"consensus distance {found['consensus_distance']:.3g}"
        )
        return found

    def _measures(self, epoch: int) -> bool:
        every = self.config.sharpness_every_epochs
        return every > 0 and epoch % every == 0

    def _measure(self) -> None:
        with self._clock("evaluation"):
            found = curvature.metrics(self.experiment, self.experiment.consensus(self.params))
        epoch = self.step / self.experiment.batches.steps_per_epoch
        self.metrics.write({"step": self.step, "epoch": epoch, **found})
        self.screen.line(f"epoch {epoch:g}: lambda_max {found['lambda_max']:.4g}, trace {found['trace']:.4g}")

    def _save(self) -> None:
        if self.step in hosts.one_for_all(self.checkpoints.steps):  # resumed here, and nothing has changed
            return
        self._flush()
        self.seconds = time.perf_counter() - self.started
        with self._clock("saving"):
            self.checkpoints.save(self.step, self.carry, {"seconds": self.seconds})

    def _hash(self) -> str:
        """Of all agents' models, idle rows apart, wherever they were computed."""
        agents, pull = self.config.agents, self.experiment.placement.pull
        return tree_sha256(jax.tree.map(lambda x: np.asarray(pull(_whole, x))[:agents], self.params))

    @contextlib.contextmanager
    def _clock(self, what: str, key: Any = None) -> Iterator[None]:
        with self.profile.clock(what, key) if self.profile else contextlib.nullcontext():
            yield

    def _end(self, status: str) -> dict[str, Any]:
        self._flush()
        result: dict[str, Any] = {"status": status, "steps": self.step}
        if status == "finished":
            found = self._evaluate(every_agent=self.config.eval_agents != "never")
            if np.isfinite([found["test_loss"], found["consensus_distance"]]).all():
                result |= found
                if self.config.sharpness_every_epochs:
                    self._measure()
            else:  # the last step was too much, though its own loss came out
                result["status"], self.first_bad = "diverged", self.step
        else:
            result |= last_evaluation(self.workdir)
        if result["status"] == "diverged":
            result |= {"diverged_at_step": self.first_bad + 1, "last_finite": self.last_finite}
        self.seconds = time.perf_counter() - self.started
        result |= table(self.experiment.ledger, self.step)
        result |= {"seconds": self.seconds, "params_sha256": self._hash()}
        if self.profile:
            result["profile"] = self.profile.shares()
        if hosts.writes():
            write_json(self.workdir / "result.json", result)
        return result


def streamed_inputs(experiment: Experiment, step: int) -> Iterator[Any]:
    """Images, labels and order of one step after the other, the next one's being decoded meanwhile.

    A device gets the images of its own agents, and a process decodes no others.
    """
    batches, dataset, placement = experiment.batches, experiment.dataset, experiment.placement
    rows = np.array(placement.own_rows)
    rows[rows >= placement.agents] = 0  # idle agents see the first one's

    def start(step: int) -> Any:
        epoch, number = divmod(step, batches.steps_per_epoch)
        samples, mask = (np.asarray(part[number]) for part in batches.epoch(epoch))
        own = samples[rows].reshape(-1)
        numbered = np.arange(samples.size, dtype=np.int32).reshape(1, *samples.shape)
        numbered %= placement.per_device * batches.batch_size  # among those of its device
        return dataset.train_images.ahead(own), dataset.train_labels[own], (numbered, mask[None])

    upcoming = start(step)
    while True:
        images, labels, order = upcoming
        step += 1
        if step < experiment.steps:
            upcoming = start(step)
        parts = placement.from_own_rows(images()), placement.from_own_rows(labels)
        yield *parts, experiment.place_order(*order)


def _all_finite(tree: Any) -> Any:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(tree)]))


def _one_agent(params: Params, agent: int) -> Params:
    return jax.tree.map(lambda x: x[agent], params)


def _whole(x: Any) -> Any:
    return x


def _flat(metrics: dict[str, Any]) -> dict[str, Any]:
    """The method's metrics under the names that metrics.jsonl has."""
    renamed = {"loss": "train_loss"}
    flat = {renamed.get(name, name): value for name, value in metrics.items() if name != "aux"}
    return flat | {f"train_{name}": value for name, value in metrics.get("aux", {}).items()}


def _number(name: str, value: np.ndarray, occupied: np.ndarray) -> Any:
    """What metrics.jsonl says: means over agents [A] or real pairs [A, K]; layers [L] stay apart."""
    if name.endswith("_by_layer"):
        return value.tolist()
    return float(np.mean(value[occupied] if value.ndim == 2 else value))
