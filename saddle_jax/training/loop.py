"""The training loop: build, step, log, evaluate, save; stop and go on. There is no other."""

import contextlib
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Params
from saddle_jax.core.ledger import table
from saddle_jax.core.method import Axes
from saddle_jax.core.method import Metrics as StepMetrics
from saddle_jax.devices import hosts
from saddle_jax.training import describe, evaluation, memory, sweep
from saddle_jax.training.checkpoint import Checkpoints
from saddle_jax.training.config import Config
from saddle_jax.training.experiment import Experiment
from saddle_jax.training.interruption import Noted
from saddle_jax.training.profile import Profile
from saddle_jax.training.progress import Screen
from saddle_jax.training.replicated import build
from saddle_jax.training.run_folder import (
    Metrics,
    NoMetrics,
    claim,
    last_evaluation,
    locked,
    read_metrics,
    read_result,
    write_json,
)
from saddle_jax.training.streaming import streamed_inputs

# What is measured of one run's model: (experiment, params) -> numbers by name.
Measure = Callable[[Experiment, Params], dict[str, Any]]


def train(
    config: Config,
    workdir: pathlib.Path,
    screen: Screen,
    profile: bool = False,
    since: float | None = None,
    curvature: Measure | None = None,
) -> dict[str, Any]:
    """Trains, or goes on training, in a folder; returns what result.json says.

    The same settings and folder resume an interrupted run, bit for bit, and leave a finished one alone.
    `since` is when the command began, by time.perf_counter(); None: now. `curvature` measures the consensus
    model where the settings ask for it by `sharpness_every_epochs`: `analysis.sharpness.metrics`.
    """
    if config.sharpness_every_epochs and curvature is None:
        raise ArgumentError(
            f"curvature must be given for sharpness_every_epochs = {config.sharpness_every_epochs}, such as "
            "saddle_jax.analysis.sharpness.metrics, got None"
        )
    since = time.perf_counter() if since is None else since
    versions = {f"version of {name}": number for name, number in describe.versions().items()}
    hosts.check_same({**versions, **config.to_json(), "data_dir": None})  # data may lie elsewhere
    with contextlib.ExitStack() as stack:
        with hosts.agreement():
            experiment = build(config)  # first of all: settings that cannot be run leave no trace
            if warning := memory.check(experiment):
                screen.warn(warning)
            if hosts.writes():
                stack.enter_context(locked(workdir))
        hosts.check_same({"partition": [member.partition.fingerprint for member in experiment.members]})
        hosts.check_shared(workdir)
        with hosts.agreement():
            if hosts.writes():
                claim(workdir, config, describe.record(experiment))
        known = hosts.one_for_all(read_result, workdir)
        if known is not None and known["status"] != "interrupted":
            screen.line(f"{workdir} holds this run already: {known['status']}")
            screen.line(describe.closing_table(known))
            return known
        screen.line(describe.heading(experiment, workdir))
        screen.line("compiling ...")
        run = _Run(experiment, workdir, screen, profile, since, curvature)
        try:
            result = run.go()
        finally:
            run.metrics.close()
        screen.line(describe.closing_table(result))
        return result


class _Run:
    """One run from where it stands to its end; or several, the replicas, in one program."""

    def __init__(
        self,
        experiment: Experiment,
        workdir: pathlib.Path,
        screen: Screen,
        profile: bool,
        since: float,
        curvature: Measure | None,
    ):
        self.curvature = curvature
        self.experiment, self.config = experiment, experiment.config
        self.workdir, self.screen = workdir, screen
        self.profile = Profile(workdir) if profile and hosts.writes() else None
        self.keep_every = self.config.keep_every_epochs * experiment.batches.steps_per_epoch
        self.checkpoints = Checkpoints(
            workdir, self.config.keep_checkpoints, self.keep_every, experiment.agent_axis
        )
        self.step, self.seconds, self.ready_seconds, self.is_ready = 0, 0.0, 0.0, False
        restored = self.checkpoints.restore_newest(experiment.saved, screen.warn, set_aside=True)
        if restored is None:
            self.carry = experiment.first_carry()
        else:
            self.step, saved, notes = restored
            self.carry = experiment.unpacked(saved)
            self.seconds = float(notes.get("seconds", 0.0))
            self.ready_seconds = float(notes.get("ready_seconds", 0.0))
        if (workdir / "metrics.jsonl").exists():
            screen.line(f"going on from step {self.step:,}")
        self.metrics = (
            Metrics(workdir, resume_at=self.step, last_step=experiment.steps)
            if hosts.writes()
            else NoMetrics()
        )
        self.vote = hosts.Vote()
        self.pending: tuple[int, Any] | None = None  # logged, but not yet fetched from the device
        # Of every replica: its last finite loss; the first step, from zero, whose loss is not (-1: none)
        self.last_finite: list[dict[str, Any]] = [{} for _ in experiment.members]
        self.first_bad = experiment.first_bad(self.carry)
        for record in read_metrics(workdir):
            self._note_finite([sweep.of_replica(record, k) for k in range(len(self.first_bad))])
        self.since, self.started = since, since - self.seconds

    def _params(self, number: int) -> Params:
        """All agents' models [A, ...] of one replica."""
        return self.experiment.params_of(self.carry, number)

    def _join(self, records: list[dict[str, Any]]) -> dict[str, Any]:
        """One line of metrics.jsonl from each replica's."""
        return sweep.together(records) if self.config.has_replicas else records[0]

    @property
    def _sound(self) -> np.ndarray:
        """Which replicas have not diverged."""
        return self.first_bad < 0

    def go(self) -> dict[str, Any]:
        """Steps until the end, an interruption or divergence; then result.json."""
        config, steps = self.config, self.experiment.steps
        per_epoch = self.experiment.batches.steps_per_epoch
        self.screen.start(steps, self.step)
        try:
            with Noted() as interrupt:
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
                    if not self._sound.any():
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
        phases = {self.experiment.method.phase(step) for step in positions[:, 3].tolist()}
        phase = phases.pop() if len(phases) == 1 else None
        with self._clock("steps", key=(len(positions), phase)):
            self.carry, self.newest = self.experiment.take_steps(self.carry, *inputs, positions, phase)
            if self.profile:
                jax.block_until_ready(self.carry)
        if not self.is_ready:  # the call returns when it is compiled
            self.is_ready, spent = True, time.perf_counter() - self.since
            self.ready_seconds += spent
            self.screen.line(f"ready in {spent:.1f} s")
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
        occupied = self.experiment.method.topology.at(step - 1).occupied[: self.config.agents]
        records = [_numbers(found, occupied) for found in self.experiment.collect(jax.device_get(metrics))]
        self._note_bad([int(record.pop("first_bad")) for record in records])
        record = {
            "step": step,
            "epoch": step / self.experiment.batches.steps_per_epoch,
            **self._join(records),
        }
        record["bytes_sent_per_agent"] = self.experiment.ledger.wire_bytes_per_agent(step)
        self.metrics.write(record)
        self._note_finite([{"step": step, **record} for record in records])

    def _note_finite(self, records: list[dict[str, Any]]) -> None:
        for number, record in enumerate(records):
            if record.get("train_loss") is not None and np.isfinite(record["train_loss"]):
                self.last_finite[number] = {name: record[name] for name in ("step", "train_loss")}

    def _note_bad(self, first_bad: Sequence[int] | np.ndarray) -> None:
        self.first_bad = np.where(self._sound, first_bad, self.first_bad)

    def _is_finite(self) -> bool:
        """Whether losses and models of any replica are; models may blow up in a step of finite loss."""
        self._flush()
        self._note_bad(self.experiment.first_bad(self.carry))
        for number in np.flatnonzero(self._sound).tolist():
            if not evaluation.is_finite(self.experiment.members[number], self._params(number)):
                self.first_bad[number] = self.step
        return bool(self._sound.any())

    def _of_each(self, measure: Callable[[Experiment, Params], dict[str, Any]]) -> list[dict[str, Any]]:
        """Measures every replica that has not diverged, writes a line, and returns what was found of each."""
        with self._clock("evaluation"):
            found = [
                measure(member, self._params(number)) if self._sound[number] else {}
                for number, member in enumerate(self.experiment.members)
            ]
        found = hosts.one_for_all(lambda: found)  # what is decided on must not differ by a rounding
        epoch = self.step / self.experiment.batches.steps_per_epoch
        record = self._join(found)
        self.metrics.write({"step": self.step, "epoch": epoch, **record})
        self.screen.line(describe.progress(epoch, record))
        return found

    def _evaluate(self, every_agent: bool) -> list[dict[str, Any]]:
        return self._of_each(lambda member, params: evaluation.score(member, params, every_agent))

    def _measures(self, epoch: int) -> bool:
        every = self.config.sharpness_every_epochs
        return every > 0 and epoch % every == 0

    def _measure(self) -> None:
        measure = self.curvature
        assert measure is not None  # which `train` has checked
        self._of_each(lambda member, params: measure(member, member.consensus(params)))

    def _save(self) -> None:
        if self.step in hosts.one_for_all(self.checkpoints.steps):  # resumed here, and nothing has changed
            return
        self._flush()
        self.metrics.flush()
        self.seconds = time.perf_counter() - self.started
        with self._clock("saving"):
            notes = {"seconds": self.seconds, "ready_seconds": self.ready_seconds}
            self.checkpoints.save(self.step, self.experiment.packed(self.carry), notes)

    @contextlib.contextmanager
    def _clock(self, what: str, key: Any = None) -> Iterator[None]:
        with self.profile.clock(what, key) if self.profile else contextlib.nullcontext():
            yield

    def _end(self, status: str) -> dict[str, Any]:
        self._flush()
        if status == "finished":
            found = self._evaluate(every_agent=self.config.eval_agents != "never")
            for k in np.flatnonzero(self._sound).tolist():
                if not np.isfinite([found[k]["test_loss"], found[k]["consensus_distance"]]).all():
                    # The last step was too much, though its own loss came out.
                    found[k], self.first_bad[k] = {}, self.step
            if self.config.sharpness_every_epochs and self._sound.any():
                self._measure()
        else:
            last = last_evaluation(self.workdir)
            found = [sweep.of_replica(last, k) for k in range(len(self.first_bad))]
        ends = []
        for k, member in enumerate(self.experiment.members):
            end = evaluation.ending(status, found[k], int(self.first_bad[k]), self.last_finite[k])
            ends.append({**end, "params_sha256": evaluation.params_sha256(member, self._params(k))})
        self.seconds = time.perf_counter() - self.started
        result: dict[str, Any] = (
            evaluation.summary(self.config, ends) if self.config.has_replicas else ends[0]
        )
        result |= {"steps": self.step, **table(self.experiment.ledger, self.step)}
        result |= {"seconds": self.seconds, "ready_seconds": self.ready_seconds}
        if self.profile:
            result["profile"] = self.profile.shares()
        if hosts.writes():
            write_json(self.workdir / "result.json", result)
        return result


def _numbers(metrics: StepMetrics, occupied: np.ndarray) -> dict[str, Any]:
    """What metrics.jsonl says of a step: means over agents [A] or real pairs [A, K]; a list of layers [L]."""

    def number(value: np.ndarray, axes: Axes) -> Any:
        if axes == "L":
            return value.tolist()
        return float(np.mean(value[occupied] if axes == "AK" else value))

    renamed = {"loss": "train_loss"}
    numbers = {
        renamed.get(name, name): number(value, metrics.axes[name])
        for name, value in metrics.items()
        if name != "aux"
    }
    aux = metrics.get("aux", {})
    return numbers | {f"train_{name}": number(value, metrics.axes["aux"]) for name, value in aux.items()}
