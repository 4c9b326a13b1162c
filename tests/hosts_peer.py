"""One of several processes that agree on things, of which process 1 is then killed.

Arguments: PORT PROCESSES PROCESS FOLDER
"""

import dataclasses
import os
import pathlib
import signal
import sys

import jax
import numpy as np

from saddle_jax.base.errors import RunError
from saddle_jax.devices import hosts
from saddle_jax.settings.settings import Settings
from saddle_jax.training import batches
from saddle_jax.training.program import build


class Counted:
    """Images as if they were streamed; notes which are asked for."""

    def __init__(self, images):
        self.images, self.asked = images, []

    def ahead(self, samples):
        self.asked.append(samples)
        return lambda: self.images[samples]


def message(function, *arguments):
    try:
        function(*arguments)
    except hosts.AgreedError as error:
        return str(error)
    return None


def refuse_on(process):
    with hosts.agreement():
        if jax.process_index() == process:
            raise RunError(f"no room on {process}")


def decode_own_agents_alone():
    program = build(Settings(agents=7, model="logistic", batch_size=8))
    trial = program.trial
    counted = Counted(trial.dataset.train["inputs"])
    dataset = dataclasses.replace(trial.dataset, train={**trial.dataset.train, "inputs": counted})
    streamed = dataclasses.replace(program, trials=(dataclasses.replace(trial, data=dataset),))
    tree, order, _ = next(batches.streamed(streamed, 0))
    samples = np.asarray(trial.batches.step(0, 0)[0])  # [7, 8]
    own = samples[:4] if jax.process_index() == 0 else np.concatenate([samples[4:], samples[:1]])  # one idle
    assert (counted.asked[0] == own.reshape(-1)).all()
    for shards, source in (
        (tree["inputs"], counted.images),
        (tree["targets"], trial.dataset.train["targets"]),
    ):
        assert shards.shape[0] == 8 * 8
        for shard in shards.addressable_shards:
            start = shard.index[0].start or 0
            wanted = np.concatenate([samples, samples[:1]]).reshape(-1)[start : start + 16]
            assert (np.asarray(shard.data) == source[wanted]).all()
    for shard in order.addressable_shards:  # [1, 1, 8, 8], among its device's images; the idle row is free
        rows = range(7)[shard.index[2]]
        assert (np.asarray(shard.data)[0, 0, : len(rows)].reshape(-1) == np.arange(len(rows) * 8)).all()


def main(port, processes, process, folder):
    hosts.join(f"localhost:{port}", processes, process, timeout=60, heartbeat_timeout=20)
    with hosts.exit_together():
        agree(processes, process, folder)
        if process == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        hosts.gather("is anybody there?")


def agree(processes, process, folder):
    assert jax.process_count() == processes
    assert hosts.writes() == (process == 0)
    assert hosts.gather(f"é{process}" * process) == ["", "é1"]
    assert hosts.broadcast_result(lambda: [process, 0.1]) == [0, 0.1]
    assert message(refuse_on, 0) == ("process 0: " if process else "") + "no room on 0"
    assert message(refuse_on, 1) == ("" if process else "process 1: ") + "no room on 1"
    assert message(hosts.check_same, {"a": 1, "b": 2}) is None
    assert message(hosts.check_same, {"a": 1, "b": process}) == (
        "all processes of a run must have the same b, got 0 on process 0 and 1 on process 1"
    )
    hosts.check_shared(folder)
    vote = hosts.Vote()
    answers = [vote(process == 1 and step >= 2, due=step % 2 == 0) for step in range(7)]
    assert answers == [False, False, False, False, True, False, True]  # asked at 2, told at 4
    decode_own_agents_alone()
    hosts.gather("")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), pathlib.Path(sys.argv[4]))
