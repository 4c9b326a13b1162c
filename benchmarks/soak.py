"""A soak test of the training loop: whether memory grows, and whether programs compile again."""

import contextlib
import dataclasses
import functools
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.child import resident_bytes
from benchmarks.measure import Row, spread
from benchmarks.work import Job, Options
from saddle_jax.base.errors import RunError
from saddle_jax.data.sources import load_digits
from saddle_jax.devices.compilations import compilations
from saddle_jax.report.plots import new_figure, save
from saddle_jax.settings.settings import Settings
from saddle_jax.training.loop import train
from saddle_jax.training.progress import Screen

_STEPS_PER_EPOCH = 10
# By then everything has happened once: an evaluation, and a checkpoint that replaced an older one.
_SETTLED = 0.3


@dataclasses.dataclass(frozen=True)
class Length:
    """The length of a soak test and its sampling interval.

    Attributes:
      agents: A, each an MLP on 8x8 images.
      batch_size: images per agent and step.
      steps: the number of steps.
      every: steps between two samples, and between two evaluations.
      save_every: steps between two checkpoints; the newest two are stored.
    """

    agents: int
    batch_size: int
    steps: int
    every: int
    save_every: int


LONG = Length(agents=1024, batch_size=16, steps=10_000, every=100, save_every=1000)
QUICK = Length(agents=4, batch_size=4, steps=100, every=10, save_every=10)


class Watched(Screen):
    """A run's screen that takes samples at regular steps.

    Attributes:
      samples: lists by name: step, seconds, CPU seconds, resident bytes and programs compiled so far.
    """

    def __init__(self, every: int, compiled: Sequence[str]):
        super().__init__()
        self._every, self._compiled, self._step = every, compiled, 0
        self.samples: dict[str, list[float]] = {
            name: [] for name in ("step", "seconds", "cpu_seconds", "bytes", "compilations")
        }

    def advance(self, steps: int) -> None:
        """Advances the progress bar, and takes a sample if one is due."""
        super().advance(steps)
        self._step += steps
        if self._step % self._every == 0:
            seen = (
                self._step,
                time.perf_counter(),
                time.process_time(),
                resident_bytes(),
                len(self._compiled),
            )
            for values, value in zip(self.samples.values(), seen, strict=True):
                values.append(value)


def soak_jobs(case: str, options: Options) -> list[Job]:
    """Lists the only job of this case: a Q-SADDLe run of many small agents for many steps."""
    length = QUICK if options.quick else LONG
    what = f"q_saddle, mlp, ring({length.agents}), batch {length.batch_size} of 8x8x1, {length.steps:,} steps"
    return [Job(case, what, functools.partial(_measure, case, what, length, options))]


def _measure(case: str, what: str, length: Length, options: Options) -> Row:
    samples = soaked(length, options.agents_per_call)
    return Row(case, what, spread(_settled(per_step(samples, "seconds"))), figures=summary(samples))


def _settled(values: Sequence[float]) -> list[float]:
    return list(values[int(_SETTLED * len(values)) :])


def summary(samples: dict[str, list[float]]) -> dict[str, Any]:
    """Returns growth rates after the warm-up."""
    compiled, megabytes = _settled(samples["compilations"]), _settled([b / 1e6 for b in samples["bytes"]])
    return {
        "compilations": compiled[-1],
        "compilations after it settled": compiled[-1] - compiled[0],
        "RSS MB when settled": megabytes[0],
        "RSS MB at the end": megabytes[-1],
        "late / early time": _late_to_early(per_step(samples, "seconds")),
        "late / early CPU time": _late_to_early(per_step(samples, "cpu_seconds")),
        "samples": samples,
    }


def _late_to_early(values: Sequence[float]) -> float:
    """Returns the ratio of the medians of the second and first half."""
    settled = _settled(values)
    half = len(settled) // 2
    return statistics.median(settled[half:]) / statistics.median(settled[:half])


def per_step(samples: dict[str, list[float]], name: str) -> list[float]:
    """Returns the "seconds" or "cpu_seconds" per step between consecutive samples."""
    return (np.diff(samples[name]) / np.diff(samples["step"])).tolist()


def soaked(length: Length, agents_per_call: int = 0) -> dict[str, list[float]]:
    """Trains in a temporary folder, and returns the samples, see `Watched`."""
    with tempfile.TemporaryDirectory(prefix="saddle-soak-") as name, compilations() as compiled:
        folder = pathlib.Path(name)
        screen = Watched(length.every, compiled)
        with contextlib.closing(screen):
            result = train(_config(length, _images(length, folder), agents_per_call), folder / "run", screen)
    if result["status"] == "interrupted":
        raise KeyboardInterrupt
    if result["status"] != "finished":
        raise RunError(f"a soak must finish, got {result['status']} after {result['steps']:,} steps")
    return screen.samples


def _config(length: Length, data: pathlib.Path, agents_per_call: int) -> Settings:
    return Settings(
        method="q_saddle",
        agents=length.agents,
        model="mlp",
        dataset=str(data),
        partition="iid",
        batch_size=length.batch_size,
        epochs=length.steps // _STEPS_PER_EPOCH,
        learning_rate=0.01,
        schedule="constant",
        agents_per_call=agents_per_call,
        eval_every_epochs=length.every // _STEPS_PER_EPOCH,
        eval_agents="always",
        log_every_steps=10,
        checkpoint_every_steps=length.save_every,
        keep_checkpoints=2,
    )


def _images(length: Length, folder: pathlib.Path) -> pathlib.Path:
    """Writes a dataset of the embedded digits, repeated until it is large enough for all agents."""
    digits, count = load_digits(), length.agents * length.batch_size * _STEPS_PER_EPOCH
    rows = np.arange(count) % digits.size
    arrays = {
        "train_inputs": digits.train["inputs"][rows],
        "train_targets": digits.train["targets"][rows],
        "test_inputs": digits.test["inputs"],
        "test_targets": digits.test["targets"],
    }
    np.savez(folder / "digits.npz", **arrays)
    return folder / "digits.npz"


def plot_soak(samples: Mapping[str, Sequence[float]], path: str | os.PathLike) -> None:
    """Draws three curves against steps: milliseconds of a step, resident megabytes, programs compiled."""
    steps = np.array(samples["step"])
    figure, grid = new_figure(width=10.0, height=2.8, columns=3)
    times, memory, programs = grid[0]
    for name, label, colour in (
        ("seconds", "by the clock", "#4063d8"),
        ("cpu_seconds", "of the processor", "0.6"),
    ):
        times.plot(steps[1:], 1e3 * np.diff(samples[name]) / np.diff(steps), color=colour, label=label)
    times.set_ylabel("ms of a step")
    times.legend(frameon=False, fontsize=7)
    memory.plot(steps, np.array(samples["bytes"]) / 1e6, color="#4063d8")
    memory.set_ylabel("resident MB")
    programs.step(steps, samples["compilations"], where="post", color="#4063d8")
    programs.set_ylabel("programs compiled")
    for axes in (times, memory, programs):
        axes.set_xlabel("steps")
        axes.set_ylim(0, 1.1 * max(max(line.get_ydata()) for line in axes.lines))
        axes.spines[["top", "right"]].set_visible(False)
    save(figure, path)
