"""One agent as a process, which communicates with its neighbours through torch.distributed with gloo.

The published code of QGM and NGM is written like this: a process has one model and one batch, and sends its
model as one flat vector, by an isend to each neighbour and an irecv from each. N-SADDLe's agents also compute
gradients of the received models on their own batch and send these back.

    python -m benchmarks.baselines.pytorch.agent FOLDER RANK

`Processes` writes FOLDER/RANK.pt, starts the process, and sends commands over standard input, one line of
JSON each. The process answers each on standard output with the CPU seconds that it took. It ends as soon as
standard input is closed.
"""

import datetime
import functools
import json
import os
import pathlib
import queue
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.baselines.pytorch.methods import METHODS, Gradients, make_loss, one_by_one
from benchmarks.baselines.pytorch.models import NETWORKS, NORMS, Layout, Tensor

_PATIENCE = datetime.timedelta(seconds=300)  # timeout for communication


class Peers:
    """The gossip of an agent in its own process; models and gradients are [1, P].

    Args:
      ranks: the neighbours' ranks.
      weights: W's row: the agent's own weight, then those of the neighbours.
    """

    def __init__(self, ranks: Sequence[int], weights: Sequence[float]):
        self._ranks, self._weights = ranks, weights

    def mix(self, x: Tensor) -> Tensor:
        """Computes this agent's row of W x."""
        return self._weighed([x, *self._exchange([x] * len(self._ranks))])

    def cross(self, gradients: Gradients, x: Tensor, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Averages this model's gradients on the neighbours' batches with W, and computes the row of W x."""
        heard = self._exchange([x] * len(self._ranks))
        gradient = gradients(x, images, labels)
        returned = self._exchange([gradients(other, images, labels) for other in heard])
        return self._weighed([gradient, *returned]), self._weighed([x, *heard])

    def _exchange(self, messages: Sequence[Tensor]) -> list[Tensor]:
        """Sends each neighbour its message, and returns those received."""
        received = [torch.empty_like(message) for message in messages]
        requests: list[Any] = [
            dist.irecv(buffer, rank) for buffer, rank in zip(received, self._ranks, strict=True)
        ]
        requests += [dist.isend(message, rank) for message, rank in zip(messages, self._ranks, strict=True)]
        for request in requests:
            request.wait()
        return received

    def _weighed(self, tensors: Sequence[Tensor]) -> Tensor:
        total = tensors[0] * self._weights[0]
        for tensor, weight in zip(tensors[1:], self._weights[1:], strict=True):
            total.add_(tensor, alpha=weight)
        return total


def main(folder: pathlib.Path, rank: int) -> None:
    """Joins the other agents, then runs commands until standard input is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process decides when it ends
    commands = _listen()
    torch.set_num_threads(1)
    work = torch.load(folder / f"{rank}.pt", weights_only=True)
    meeting = {"init_method": f"file://{folder}/meeting", "rank": rank, "world_size": work["agents"]}
    dist.init_process_group("gloo", timeout=_PATIENCE, **meeting)
    layout = Layout(work["names"], work["shapes"])
    peers = Peers(work["peers"], work["weights"])
    step = METHODS[work["method"]](_gradients(work, layout), peers, work["model"], **work["options"])
    images, labels = work["images"][None], work["labels"][None]
    started = time.process_time()
    while True:
        print(time.process_time() - started, flush=True)
        command = commands.get()
        started = time.process_time()
        if "save" in command:
            torch.save(step.models, command["save"])
            continue
        step.gradients = _gradients(work, layout, command["norm"])
        fed = images.movedim(2, 4).contiguous().movedim(4, 2) if command["channels_last"] else images
        for _ in range(command["steps"]):
            step(fed, labels)


def _gradients(work: dict[str, Any], layout: Layout, norm: str = "few passes") -> Gradients:
    return one_by_one(make_loss(functools.partial(NETWORKS[work["model_name"]], norm=NORMS[norm]), layout))


def _listen() -> "queue.SimpleQueue[dict[str, Any]]":
    """Reads commands in a thread, which ends the process when standard input is closed."""
    commands: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            commands.put(json.loads(line))
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    return commands


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
