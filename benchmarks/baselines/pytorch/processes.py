"""The PyTorch baseline with a process for each agent: starting, stepping and ending them."""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from benchmarks.baselines.pytorch.models import Layout, Tensor
from benchmarks.baselines.pytorch.steps import flatten, images_of, labels_of
from benchmarks.work import OPTIONS, Work
from saddle_jax.base.errors import RunError

_PATIENCE = 600.0  # seconds to wait for the answers of all agents
_LAST_WORDS = 5.0  # seconds to wait for them to end


class Way(NamedTuple):
    """A variant of the gradient computation.

    Attributes:
      channels_last: the images' memory format.
      norm: the implementation of EvoNorm, a name in `models.NORMS`.
    """

    channels_last: bool = False
    norm: str = "few passes"

    def __str__(self) -> str:
        return f"{self.norm}{', channels_last' if self.channels_last else ''}"


def ways(model: str, norm: str) -> list[Way]:
    """Returns the variants with one norm; without convolutions the memory format does not matter."""
    return [Way(last, norm) for last in ((False,) if model == "mlp" else (False, True))]


class Processes:
    """A process for each agent of a workload, on this machine; a context manager.

    Every process has one thread, as with torchrun. They meet through a file and communicate over the loopback
    interface. None outlives this process.
    """

    def __init__(self, work: Work, patience: float = _PATIENCE):
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="saddle-agents-"))
        self._patience = patience
        self._processes: list[subprocess.Popen[str]] = []
        try:
            self.layout = self._write(work)
            for rank in range(work.agents):
                self._processes.append(self._start(rank))
            self._wait()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """The agents' process ids."""
        return [process.pid for process in self._processes]

    def step(self, way: Way, steps: int = 1) -> float:
        """Runs several steps on every agent; returns their total CPU time in seconds."""
        return self._tell(lambda rank: {"steps": steps, **way._asdict()})

    def models(self) -> Tensor:
        """Returns the agents' models [A, P]."""
        files = [self._folder / f"model{rank}.pt" for rank in range(len(self._processes))]
        self._tell(lambda rank: {"save": str(files[rank])})
        return torch.cat([torch.load(file, weights_only=True) for file in files])

    def close(self) -> None:
        """Ends all processes and removes their folder."""
        for process in self._processes:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it has ended already
                process.stdin.close()
        for process in self._processes:
            try:
                process.wait(_LAST_WORDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()
        self._processes = []
        shutil.rmtree(self._folder, ignore_errors=True)

    def _write(self, work: Work) -> Layout:
        """Writes the initial data of every agent; returns the layout of a model."""
        layout, models = flatten(work.params(), work.image_shape)
        batch, topology = work.batch(), work.topology
        images, labels = images_of(batch["inputs"], channels_last=False), labels_of(batch["targets"])
        for rank in range(work.agents):
            part = {
                "agents": work.agents,
                "method": work.method,
                "model_name": work.model,
                "options": OPTIONS,
                "names": layout.names,
                "shapes": layout.shapes,
                "peers": topology.neighbours[rank, 1:].tolist(),
                "weights": topology.weights[rank].tolist(),
                "model": models[rank : rank + 1].clone(),
                "images": images[rank].clone(),
                "labels": labels[rank].clone(),
            }
            torch.save(part, self._folder / f"{rank}.pt")
        return layout

    def _start(self, rank: int) -> subprocess.Popen[str]:
        module = ["-P", "-m", "benchmarks.baselines.pytorch.agent"]  # -P: no imports from the current folder
        loopback = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": loopback}
        with (self._folder / f"{rank}.log").open("w") as log:
            return subprocess.Popen(
                [sys.executable, *module, str(self._folder), str(rank)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                text=True,
            )

    def _tell(self, command: Callable[[int], dict[str, Any]]) -> float:
        """Sends a command to every agent, waits for all, and returns the sum of their answers."""
        for rank, process in enumerate(self._processes):
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it has ended, and its answer will be missing
                process.stdin.write(json.dumps(command(rank)) + "\n")
                process.stdin.flush()
        return self._wait()

    def _wait(self) -> float:
        """Waits for all answers and returns their sum; ends all processes if one does not answer."""
        timer = threading.Timer(self._patience, self._kill)
        timer.start()
        try:
            answers = [process.stdout.readline() for process in self._processes if process.stdout is not None]
        finally:
            timer.cancel()
        silent = [rank for rank, answer in enumerate(answers) if not answer]
        if silent:
            log = (self._folder / f"{silent[0]}.log").read_text().splitlines()
            reason = log[-1] if log else f"it was ended from outside, or took more than {self._patience:g} s"
            self.close()
            raise RunError(f"the process of agent {silent[0]} ended before its work was done: {reason}")
        return sum(map(float, answers))

    def _kill(self) -> None:
        for process in self._processes:
            process.kill()
