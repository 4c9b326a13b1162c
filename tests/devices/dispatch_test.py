"""Programs on several devices of a CPU take turns: commands that starved XLA's threads, who calls what."""

import contextlib
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.interpreters import pxla  # there is no public way to see what is run

from saddle_jax.devices import placement
from saddle_jax.devices.placement import Placement, in_turn
from saddle_jax.settings.settings import Settings
from saddle_jax.training import loop
from saddle_jax.training.progress import Screen

two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core")

# That of docs/commands.md; what stands behind it in a test makes it shorter.
SWEEP = ("train", "--model=mlp", "--seeds=0,1,2", "--sweep=learning_rate=0.02,0.1,0.5")
COMPARE = ("compare", "--seeds=0,1,2", "--model=mlp")
# Nothing is fetched between the steps: as many programs as possible are in flight.
UNSEEN = ("--eval_agents=never", "--log_every_steps=1000", "--eval_every_epochs=1000")


# A command on two cores, which it finds itself.
ON_TWO_CORES = """
import os, runpy
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
runpy.run_module("saddle_jax.cli", run_name="__main__")
"""


def run_on_two_cores(workdir, *arguments):
    command = [sys.executable, "-c", ON_TWO_CORES, *arguments, f"--workdir={workdir}"]
    environment = {name: value for name, value in os.environ.items() if name != "JAX_NUM_CPU_DEVICES"}
    done = subprocess.run(command, env=environment, timeout=600, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 x cpu" in done.stdout
    return done.stdout


@contextlib.contextmanager
def busy(count):
    """So many processes that do nothing, as fast as they can."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


@two_cores
def test_readmes_sweep_ends(tmp_path):
    printed = run_on_two_cores(tmp_path / "run", *SWEEP, "--epochs=4", *UNSEEN)
    assert "9 in one program" in printed
    assert "learning_rate 0.5" in printed


@two_cores
@pytest.mark.slow
@pytest.mark.parametrize("others", [0, 2], ids=["alone", "beside two busy processes"])
@pytest.mark.parametrize(
    "command",
    [
        SWEEP,
        (*COMPARE, "--compare=method=dpsgd,d_saddle,qgm,q_saddle,ngm,n_saddle", "--epochs=5"),
        ("train", "--epochs=40", *UNSEEN),  # one run, far ahead of its computation
    ],
    ids=lambda command: command[0] + str(len(command)),
)
def test_commands_end_ten_times(command, others, tmp_path):
    with busy(others):
        for number in range(10):
            assert "2 x cpu" in run_on_two_cores(tmp_path / str(number), *command)


def test_a_training_calls_no_program_on_several_devices_out_of_turn(tmp_path, monkeypatch):
    """A first call goes through Python, where it is seen; an odd shape makes sure that it is the first."""
    called, out_of_turn, execute = set(), set(), pxla.ExecuteReplicated.__call__

    def watched(self, *arguments):
        if len(self.xla_executable.local_devices()) > 1:
            called.add(self.name)
            if not placement._turn.locked():
                out_of_turn.add(self.name)
        return execute(self, *arguments)

    monkeypatch.setattr(pxla.ExecuteReplicated, "__call__", watched)
    config = Settings(
        model="logistic", agents=27, epochs=2, batch_size=29, devices="4", seeds="5,3",
        eval_agents="always", checkpoint_every_steps=2,
    )  # fmt: skip
    loop.train(config, tmp_path / "run", Screen(quiet=True))
    assert {"jit(run_steps)", "jit(join)", "jit(consensus)", "jit(_one_agent)"} <= called
    assert out_of_turn == set()


def test_a_program_waits_for_the_one_before_it_on_cpus_alone(monkeypatch):
    rows = Placement(agents=4, devices=4).by_agents(jnp.arange(4.0))
    waited = []
    monkeypatch.setattr(jax, "block_until_ready", waited.append)
    double = jax.jit(lambda x: (2 * x, jnp.sum(x)))
    doubled, total = in_turn(double, rows)
    np.testing.assert_array_equal(in_turn(double, doubled)[0], 4 * np.arange(4.0))
    assert waited[1] is total  # the smallest of what it returned is kept, and no more
    assert in_turn(lambda: "no array") == "no array"
    in_turn(jax.jit(jnp.sum), jnp.ones(3))  # one device: nobody need wait for it
    assert placement._running is None
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    before = len(waited)
    in_turn(double, rows)
    in_turn(double, rows)
    assert len(waited) == before
