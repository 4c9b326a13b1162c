"""A process for each agent computes what we compute; and none of them is left, however it ends."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from benchmarks import cases
from benchmarks.work import NO_PYTORCH, Options, OurStep, Work
from saddle_jax.base.errors import RunError

torch = pytest.importorskip("torch", reason=NO_PYTORCH)

from benchmarks.baselines.pytorch.models import NORMS  # noqa: E402
from benchmarks.baselines.pytorch.processes import Processes, Way, ways  # noqa: E402
from benchmarks.baselines.pytorch.steps import flatten  # noqa: E402 (needs PyTorch)

FAST_TO_COMPILE = {"xla_backend_optimization_level": 0}
SMALL = Work("q_saddle", "mlp", 3, 2, (4, 4, 1))
PARENT = """
from benchmarks.baselines.pytorch.processes import Processes, Way
from benchmarks.work import Work

theirs = Processes(Work("q_saddle", "mlp", 3, 2, (4, 4, 1)))
print(*theirs.pids, flush=True)
theirs.step(Way(), 10**9)
"""


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for_the_end_of(pids, seconds=20):
    end = time.monotonic() + seconds
    while any(map(is_alive, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    return not any(map(is_alive, pids))


@pytest.mark.parametrize(
    "work",
    [
        Work("q_saddle", "resnet8", 3, 2, (8, 8, 3)),
        Work("n_saddle", "cnn", 5, 2, (8, 8, 1)),
    ],
    ids=str,
)
def test_processes_take_our_steps(work):
    """Three steps, each of which computes its gradients in another way."""
    ours = OurStep(work, FAST_TO_COMPILE)
    start = flatten(ours.params, work.image_shape)[1].numpy()
    with Processes(work) as theirs:
        for way in (Way(False, "textbook"), Way(True, "textbook"), Way(True, "few passes")):
            ours()
            assert theirs.step(way) > 0
        found = theirs.models().numpy()
        pids = theirs.pids
    assert len(set(pids)) == work.agents
    assert not any(map(is_alive, pids))
    layout, expected = flatten(ours.params, work.image_shape)
    assert theirs.layout == layout
    assert np.abs(expected.numpy() - start).max() > 0.01  # a step is larger than what we compare to
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-4)


def test_ways_that_differ():
    assert [*NORMS] == ["few passes", "textbook"]
    assert [str(way) for way in ways("cnn", "textbook")] == ["textbook", "textbook, channels_last"]
    assert ways("mlp", "textbook") == [Way(False, "textbook")]


@pytest.mark.skipif(
    not pathlib.Path("/proc/net/tcp").exists(), reason="Linux lists a process's sockets there"
)
def test_only_the_loopback_is_used():
    with Processes(SMALL) as theirs:
        own = set()
        for pid in theirs.pids:
            for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
                own.add(os.readlink(link).removeprefix("socket:[").removesuffix("]"))
        lines = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
        addresses = {line[1].split(":")[0] for line in lines if line[9] in own}
    assert addresses == {"0100007F"}  # 127.0.0.1, the last byte first


def test_a_dead_agent_ends_all_in_one_line():
    theirs = Processes(SMALL)
    pids = theirs.pids
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(RunError, match=r"the process of agent \d ended before its work was done: .+"):
        theirs.step(Way(), 1000)
    assert not any(map(is_alive, pids))


def test_patience_ends():
    theirs = Processes(SMALL)
    pids, theirs._patience = theirs.pids, 0.5
    with pytest.raises(RunError, match=r"it was ended from outside, or took more than 0\.5 s"):
        theirs.step(Way(), 10**9)
    assert not any(map(is_alive, pids))


def test_no_process_outlives_who_started_it():
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    try:
        pids = parent.stdout.readline().split()
        assert len(pids) == 3
        assert all(is_alive(pid) for pid in pids)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    assert wait_for_the_end_of(pids)


def test_the_case():
    rows = cases.run(cases.jobs_of(["processes"], Options(quick=True, repeats=1))[:1], lambda _: None)
    (row,) = rows
    assert row.against.startswith("3 PyTorch processes: textbook")
    assert row.ratio.median > 0.5
    assert row.figures["CPU ratio"] == pytest.approx(row.figures["PyTorch CPU s"] / row.figures["CPU s"])
    assert row.figures["tried"].keys() == {"textbook", "textbook, channels_last"}
