"""The training loop: build, step, log, evaluate, save; stop and go on. There is no other."""

import contextlib
import dataclasses
import json
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base import user_code
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import RunError
from saddle_jax.base.files import atomic_write
from saddle_jax.base.types import Params
from saddle_jax.core.comm_cost import table
from saddle_jax.core.method import Metrics as StepMetrics
from saddle_jax.core.rule import Axes
from saddle_jax.devices import hosts
from saddle_jax.runs import source_files
from saddle_jax.runs.checkpoints import Checkpoints
from saddle_jax.runs.metrics import last_evaluation, read_metrics
from saddle_jax.runs.run_folder import FolderLock, Metrics, NoMetrics, claim, locked, read_config, write_json
from saddle_jax.runs.run_name import differing
from saddle_jax.runs.schema import read_result
from saddle_jax.settings import sweep
from saddle_jax.settings.settings import Settings, parse_loggers
from saddle_jax.training import describe, evaluation, memory
from saddle_jax.training.batches import Feed
from saddle_jax.training.build import Trial
from saddle_jax.training.program import Program, build
from saddle_jax.training.progress import Screen
from saddle_jax.training.signals import Signals

# ---- what is due after which step: logging, evaluating, measuring, saving ----


class Due(NamedTuple):
    """What is to be done after a step."""

    log: bool
    evaluate: bool
    measure: bool  # the curvature of the consensus model
    save: bool
    end: bool  # it was the last step

    @property
    def stop(self) -> bool:
        """Whether the models are looked at, so that a run that diverged is noticed."""
        return self.evaluate or self.measure or self.save or self.end


@dataclasses.dataclass(frozen=True)
class Calendar:
    """When things are due in a run.

    Attributes:
      config: the settings.
      steps: how many steps the run takes.
      steps_per_epoch: how many of them are an epoch.
      steps_per_dispatch: how many one call takes where it can.
    """

    config: Settings
    steps: int
    steps_per_epoch: int
    steps_per_dispatch: int

    @property
    def keep_every(self) -> int:
        """After how many steps a checkpoint is kept for good; 0: never."""
        return self.config.keep_every_epochs * self.steps_per_epoch

    def due(self, step: int) -> Due:
        """Returns what is due once `step` steps are taken."""
        config = self.config
        epoch, within = divmod(step, self.steps_per_epoch)
        is_kept = self.keep_every > 0 and step % self.keep_every == 0
        is_last = step == self.steps
        return Due(
            log=step % config.log_every_steps == 0 or is_last,
            evaluate=within == 0 and epoch % config.eval_every_epochs == 0,
            measure=within == 0
            and config.sharpness_every_epochs > 0
            and epoch % config.sharpness_every_epochs == 0,
            save=is_kept or step % config.checkpoint_every_steps == 0,
            end=is_last,
        )

    def together(self, step: int) -> int:
        """Returns how many steps the next call takes: several only if nothing is to be done between them.

        Calls of several steps start at multiples of their number, whether a run was resumed or not:
        that keeps a resumed run the same, bit for bit.
        """
        several = self.steps_per_dispatch
        stops = (self.config.log_every_steps, self.config.checkpoint_every_steps, self.steps_per_epoch)
        free = min(stop - step % stop for stop in stops)
        return several if step % several == 0 and free >= several else 1


def calendar_of(program: Program) -> Calendar:
    """Returns the calendar of a program's runs, which is the same for all of them."""
    trial = program.trial
    return Calendar(program.config, trial.steps, trial.batches.steps_per_epoch, program.steps_per_dispatch)


# ---- where the time of a session goes ----


# The calls of the step that are traced: after compilation, and few enough to look at.
_TRACE_FROM, _TRACE_TO = 5, 25


class Profile:
    """Clocks for the parts of the loop; the time that none of them covers is the loop itself."""

    def __init__(self, workdir: pathlib.Path):
        self._folder = workdir / "trace"
        self._spent = {
            "start": 0.0,
            "compilation": 0.0,
            "steps": 0.0,
            "evaluation": 0.0,
            "saving": 0.0,
            "trace": 0.0,
        }
        self._seen: set[Any] = set()
        self._calls, self._tracing = 0, False
        self._started = time.perf_counter()

    @contextlib.contextmanager
    def clock(self, what: str, key: Any) -> Iterator[None]:
        """Adds the time of a block to its part. The first step with each `key` counts as compilation.

        The time before the very first step is the start: it makes the first models and compiles that.
        """
        if what == "steps":
            if not self._calls:
                self._spent["start"] = time.perf_counter() - self._started
            if key not in self._seen:
                self._seen.add(key)
                what = "compilation"
            started = time.perf_counter()
            self._trace()
            self._spent["trace"] += time.perf_counter() - started
        started = time.perf_counter()
        yield
        self._spent[what] += time.perf_counter() - started

    def _trace(self) -> None:
        self._calls += 1
        if self._calls == _TRACE_FROM:
            jax.profiler.start_trace(str(self._folder))
            self._tracing = True
        elif self._calls == _TRACE_TO:
            self.stop()

    def stop(self) -> None:
        """Ends the trace, if one is being written."""
        if self._tracing:
            self._tracing = False
            jax.profiler.stop_trace()

    def shares(self) -> dict[str, float]:
        """Returns the seconds of this session by part; "loop" is the rest."""
        total = time.perf_counter() - self._started
        return {**self._spent, "loop": total - sum(self._spent.values())}


# ---- more epochs for a run that is there: where it can be the longer run, bit for bit ----


def check_longer(workdir: pathlib.Path, program: Program) -> dict[str, Any] | None:
    """Returns what config.json will say of how a folder's run went on; None if it has this length already.

    Raises:
      RunError: it cannot go on as the longer run; the message says why.
    """
    if not (workdir / "config.json").exists():
        return None
    before, config = read_config(workdir), program.config
    if differing(before, config) != ["epochs"]:
        return None
    refused = f"{workdir} cannot go on from {before.epochs} to {config.epochs} epochs"
    if config.epochs < before.epochs:
        raise RunError(f"{refused}: they must not be lowered; choose another workdir")
    result = read_result(workdir)
    if result is not None and result["status"] == "diverged":
        raise RunError(f"{refused}: it diverged at step {result.get('diverged_at_step', result['steps'])}")
    steps = result["steps"] if result else max([0, *Checkpoints(workdir, 1).steps()])
    _check_rates(refused, program.trial, before, steps)
    return {"from": {"epochs": before.epochs}, "at_step": steps}


def result_of(workdir: pathlib.Path, program: Program, screen: Screen) -> dict[str, Any] | None:
    """Returns how a folder's run has ended; None if it has not.

    A run that finished with fewer steps is made unfinished: its files become those of the longer run.
    """
    result: dict[str, Any] | None = hosts.broadcast_result(read_result, workdir)
    if result is None or result["status"] != "finished" or result["steps"] >= program.trial.steps:
        return result
    screen.line(f"{workdir} holds the first {result['steps']:,} steps of this run")
    with hosts.agreement():
        if hosts.writes():
            _take_out_end(workdir, calendar_of(program), result["steps"])
    return None


def _take_out_end(workdir: pathlib.Path, calendar: Calendar, step: int) -> None:
    """Takes out what was logged and measured at the end alone; to do it twice does no harm."""
    due = calendar.due(step)
    kept = {"train_loss": due.log, "test_loss": due.evaluate, "lambda_max": due.measure}
    always = calendar.config.eval_agents == "always"
    lines = []
    for record in read_metrics(workdir):
        if record["step"] == step:
            if not all(is_due for name, is_due in kept.items() if name in record):
                continue
            if "test_loss" in record and not always:
                record = {name: value for name, value in record.items() if not name.startswith("agent_")}
        lines.append(json.dumps(record) + "\n")
    with atomic_write(workdir / "metrics.jsonl") as partial:
        partial.write_text("".join(lines))
    (workdir / "result.json").unlink(missing_ok=True)


def _check_rates(refused: str, trial: Trial, before: Settings, steps: int) -> None:
    """Checks that the steps which were taken had the learning rates that the longer run has."""
    per_epoch = trial.batches.steps_per_epoch
    shorter = dataclasses.replace(trial.config, epochs=before.epochs)
    rates = []
    for config in (shorter, trial.config):
        schedule = trial.rate_of(config, per_epoch, {})
        if schedule is None or not steps:  # the method alone knows it, and knows no epochs
            return
        rates.append(np.asarray(jax.vmap(lambda t, at=schedule: jnp.asarray(at(t)))(jnp.arange(steps))))
    other = np.flatnonzero(rates[0] != rates[1])
    if other.size:
        step, (had, has) = other[0], (rate[other[0]] for rate in rates)
        raise RunError(
            f"{refused}: schedule {before.schedule} depends on epochs, and step {step + 1:,} would have had "
            f"the learning rate {has:.4g}, not {had:.4g}; choose another workdir"
        )


# What is measured of one model: (trial, params) -> numbers by name.
Measure = Callable[[Trial, Params], dict[str, Any]]


def train(
    config: Settings,
    workdir: pathlib.Path,
    screen: Screen,
    profile: bool = False,
    since: float | None = None,
    curvature: Measure | None = None,
    trial: Trial | None = None,
) -> dict[str, Any]:
    """Trains, or goes on training, in a folder; returns what result.json says.

    The same settings and folder resume an interrupted run, bit for bit, and leave a finished one alone. With
    more epochs a finished run goes on, where it can be the longer run.

    `since` is when the command began, by time.perf_counter(); None: now. `curvature` measures the consensus
    model where the settings ask for it by `sharpness_every_epochs`: `analysis.sharpness.metrics`. `trial` is
    the run as objects; None makes it of the settings.
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
        stack.enter_context(user_code.reading_once())
        with hosts.agreement():
            program = build(config, trial)  # first of all: settings that cannot be run leave no trace
            if warning := memory.check(program):
                screen.warn(warning)
            kept = source_files.collect(config)
            held = stack.enter_context(locked(workdir)) if hosts.writes() else FolderLock(workdir, None)
        hosts.check_same({"partition": [trial.partition.fingerprint for trial in program.trials]})
        hosts.check_same({"code": [each.to_json() for each in kept]})
        hosts.check_shared(workdir)
        with hosts.agreement():
            if hosts.writes():
                claim(workdir, config, describe.record(program), kept, check_longer(workdir, program))
        before = result_of(workdir, program, screen)
        if before is not None and before["status"] != "interrupted":
            screen.line(f"{workdir} holds this run already: {before['status']}")
            screen.line(describe.closing_table(before, program.trial.objective.record()))
            return before
        describe.tell_other_versions(workdir, screen.warn)
        screen.line(describe.heading(program, workdir))
        screen.line("compiling ...")
        run = _Run(program, workdir, held, screen, profile, since, curvature)
        try:
            result = run.go()
        finally:
            run.metrics.close()
        screen.line(describe.closing_table(result, program.trial.objective.record()))
        return result


class _Run:
    """One run from where it stands to its end; or several, the trials, in one program."""

    def __init__(
        self,
        program: Program,
        workdir: pathlib.Path,
        held: FolderLock,
        screen: Screen,
        profile: bool,
        since: float,
        curvature: Measure | None,
    ):
        self.program, self.config, self.curvature = program, program.config, curvature
        self.workdir, self.held, self.screen = workdir, held, screen
        self.profile = Profile(workdir) if profile and hosts.writes() else None
        self.steps, self.per_epoch = program.trial.steps, program.trial.batches.steps_per_epoch
        self.calendar = calendar_of(program)
        self.checkpoints = Checkpoints(
            workdir, self.config.keep_checkpoints, self.calendar.keep_every, program.agent_axis, held.check
        )
        self.step, self.seconds, self.ready_seconds, self.is_ready = 0, 0.0, 0.0, False
        restored = self.checkpoints.restore_newest(program.saved_like, screen.warn, set_aside=True)
        if restored is None:
            self.carry = program.start()
        else:
            self.step, saved, notes = restored
            self.carry = program.loaded(saved)
            self.seconds = float(notes.get("seconds", 0.0))
            self.ready_seconds = float(notes.get("ready_seconds", 0.0))
        if (workdir / "metrics.jsonl").exists():
            screen.line(f"going on from step {self.step:,}")
        self.metrics = (
            Metrics(workdir, self.step, self.steps, held.check, parse_loggers(self.config.loggers))
            if hosts.writes()
            else NoMetrics()
        )
        self.vote = hosts.Vote()
        self.newest: list[StepMetrics] = []  # of the last step
        self.pending: tuple[int, list[StepMetrics]] | None = None  # logged, but not yet fetched
        # Of every trial: its last finite loss; the first step, from zero, whose loss is not (-1: none)
        self.last_finite: list[dict[str, Any]] = [{} for _ in program.trials]
        self.first_bad = program.first_bad(self.carry)
        for record in read_metrics(workdir):
            self._note_finite([sweep.of_trial(record, k) for k in range(len(self.first_bad))])
        self.since, self.started = since, since - self.seconds

    @property
    def _sound(self) -> np.ndarray:
        """Which trials have not diverged, bool [R]."""
        return self.first_bad < 0

    def go(self) -> dict[str, Any]:
        """Steps until the end, an interruption or divergence; then result.json."""
        self.screen.start(self.steps, self.step)
        feed = Feed(self.program, self.step)
        try:
            with Signals() as interrupt:
                while self.step < self.steps:
                    self._advance(feed)
                    due = self.calendar.due(self.step)
                    if due.log:
                        self._log()
                    interrupted = self.vote(interrupt.signal > 0, due=due.log)
                    if (due.stop or interrupted) and self._is_sound():
                        if due.evaluate and not due.end:
                            self._evaluate(every_agent=self.config.eval_agents == "always")
                        if due.measure and not due.end:
                            self._measure()
                        self._save()
                    if not self._sound.any():
                        return self._end("diverged")
                    if interrupted and not due.end:
                        return self._end("interrupted")
                return self._end("finished")
        finally:
            self.screen.stop()
            if self.profile:
                self.profile.stop()

    def _advance(self, feed: Feed) -> None:
        """Takes the steps of one call of the program."""
        count = self.calendar.together(self.step)
        inputs = feed.at(self.step)
        with self._clock("steps", key=(count, self.program.kind(self.step, count))):
            self.carry, self.newest = self.program.steps(self.carry, inputs, self.step, count)
            if self.profile:
                jax.block_until_ready(self.carry)
        if not self.is_ready:  # the call returns when it is compiled
            self.is_ready, spent = True, time.perf_counter() - self.since
            self.ready_seconds += spent
            self.screen.line(f"ready in {spent:.1f} s")
        self.step += count
        self.screen.advance(count)

    def _log(self) -> None:
        """Notes this step's metrics; those noted before, which are ready by now, are written."""
        self._flush()
        self.pending = (self.step, self.newest)

    def _flush(self) -> None:
        if self.pending is None:
            return
        step, metrics = self.pending
        self.pending = None
        method = self.program.method
        occupied = method.topology.at(method.rule.comm_round(step - 1)).occupied[: self.config.agents]
        fetched = self.program.of_each(jax.device_get(metrics))
        cost = self.program.comm_cost
        records = [_numbers(each, occupied) | table(cost, step, each.get("sent")) for each in fetched]
        self._note_bad([int(record.pop("first_bad")) for record in records])
        joined = self._joined(records)
        self.metrics.write({"step": step, "epoch": step / self.per_epoch, **joined})
        self.screen.note(**describe.newest(joined, self.program.trial.objective, bool(self.config.sweep)))
        self._note_finite([{"step": step, **record} for record in records])

    def _joined(self, records: list[dict[str, Any]]) -> dict[str, Any]:
        """Returns one line of metrics.jsonl from each trial's."""
        return sweep.in_one_line(records) if self.config.has_trials else records[0]

    def _note_finite(self, records: list[dict[str, Any]]) -> None:
        for number, record in enumerate(records):
            if record.get("train_loss") is not None and np.isfinite(record["train_loss"]):
                self.last_finite[number] = {name: record[name] for name in ("step", "train_loss")}

    def _note_bad(self, first_bad: Any) -> None:
        """Notes the first bad step of each trial, -1 for none; nothing else marks a trial as diverged."""
        self.first_bad = np.where(self._sound, first_bad, self.first_bad)

    def _is_sound(self) -> bool:
        """Tells whether any trial has finite losses and models; models may blow up after a finite loss."""
        self._flush()
        self._note_bad(self.program.first_bad(self.carry))
        models_bad = [
            -1 if not sound or evaluation.is_finite(self.program, self._models(number)) else self.step - 1
            for number, sound in enumerate(self._sound)
        ]
        self._note_bad(models_bad)
        return bool(self._sound.any())

    def _models(self, number: int) -> Params:
        """Returns all agents' models [A, ...] of one trial."""
        return self.program.models(self.carry, number)

    def _of_each(self, measure: Callable[[int, Params], dict[str, Any]]) -> list[dict[str, Any]]:
        """Measures every trial that has not diverged, writes a line, and returns each one's numbers."""
        with self._clock("evaluation"):
            own = [
                measure(number, self._models(number)) if sound else {}
                for number, sound in enumerate(self._sound)
            ]
        # What is decided on must not differ by a rounding.
        records: list[dict[str, Any]] = hosts.broadcast_result(lambda: own)
        epoch, record = self.step / self.per_epoch, self._joined(records)
        self.metrics.write({"step": self.step, "epoch": epoch, **record})
        self.screen.line(
            describe.progress(epoch, record, self.program.trial.objective, bool(self.config.sweep))
        )
        self.screen.note(**describe.newest(record, self.program.trial.objective, bool(self.config.sweep)))
        return records

    def _spent(self, number: int) -> dict[str, Any]:
        """Returns what a trial has sent by now, and how long it would have taken on its network."""
        counted = self.program.counted(self.carry, number)
        seconds = {"simulated_seconds": float(counted["seconds"])} if "seconds" in counted else {}
        return {**table(self.program.comm_cost, self.step, counted.get("sent")), **seconds}

    def _evaluate(self, every_agent: bool) -> list[dict[str, Any]]:
        def score(number: int, params: Params) -> dict[str, Any]:
            return evaluation.score(self.program, number, params, every_agent) | self._spent(number)

        return self._of_each(score)

    def _measure(self) -> None:
        measure = self.curvature
        assert measure is not None  # which `train` has checked
        self._of_each(
            lambda number, params: measure(self.program.trials[number], self.program.consensus(params))
        )

    def _save(self) -> None:
        if self.step in hosts.broadcast_result(
            self.checkpoints.steps
        ):  # resumed here, and nothing has changed
            return
        self._flush()
        self.metrics.flush()
        self.seconds = time.perf_counter() - self.started
        with self._clock("saving"):
            notes = {"seconds": self.seconds, "ready_seconds": self.ready_seconds}
            self.checkpoints.save(self.step, self.program.saved(self.carry), notes)

    @contextlib.contextmanager
    def _clock(self, what: str, key: Any = None) -> Iterator[None]:
        with self.profile.clock(what, key) if self.profile else contextlib.nullcontext():
            yield

    def _end(self, status: str) -> dict[str, Any]:
        self._flush()
        last = self._last_evaluations(status)
        ends = []
        for k in range(len(last)):
            end = evaluation.ending(status, last[k], int(self.first_bad[k]), self.last_finite[k])
            ends.append({**end, "params_sha256": evaluation.params_sha256(self.program, self._models(k))})
            ends[-1] |= self._spent(k)
        self.seconds = time.perf_counter() - self.started
        result: dict[str, Any] = (
            evaluation.summary(self.config, ends, self.program.trial.objective.metrics)
            if self.config.has_trials
            else ends[0]
        )
        result = {"steps": self.step, **table(self.program.comm_cost, self.step), **result}
        result |= {"seconds": self.seconds, "ready_seconds": self.ready_seconds}
        if self.profile:
            result["profile"] = self.profile.shares()
        if hosts.writes():
            self.held.check()
            write_json(self.workdir / "result.json", result)
        return result

    def _last_evaluations(self, status: str) -> list[dict[str, Any]]:
        """Returns each trial's last evaluation: a finished run is evaluated now."""
        if status != "finished":
            last = last_evaluation(self.workdir)
            return [sweep.of_trial(last, k) for k in range(len(self.first_bad))]
        scores = self._evaluate(every_agent=self.config.eval_agents != "never")
        for k in np.flatnonzero(self._sound).tolist():
            if not np.isfinite([scores[k]["test_loss"], scores[k]["consensus_distance"]]).all():
                # The last step was too much, though its own loss came out.
                scores[k] = {}
                self._note_bad(np.where(np.arange(len(scores)) == k, self.step - 1, -1))
        if self.config.sharpness_every_epochs and self._sound.any():
            self._measure()
        return scores


def _numbers(metrics: StepMetrics, occupied: np.ndarray) -> dict[str, Any]:
    """Returns a line of metrics.jsonl: means over agents [A] or pairs [A, K], and lists of layers [L]."""

    def number(value: np.ndarray, axes: Axes) -> Any:
        if axes == "L":
            return value.tolist()
        return float(np.mean(value[occupied] if axes == "AK" else value))

    renamed = {"loss": "train_loss"}
    numbers = {
        renamed.get(name, name): number(value, metrics.axes[name])
        for name, value in metrics.items()
        if name not in ("aux", "sent")
    }
    aux = metrics.get("aux", {})
    return numbers | {f"train_{name}": number(value, metrics.axes["aux"]) for name, value in aux.items()}
