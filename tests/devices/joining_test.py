"""How a process finds out whether others belong to its run: by flags and by the environment."""

import os
import socket

import pytest

from saddle_jax.base.errors import RunError
from saddle_jax.devices import hosts

SLURM = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}  # an allocation, not a step of it
MPI = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        (SLURM, None),
        (SLURM | {"SLURM_STEP_NUM_TASKS": "1"}, None),
        (SLURM | {"SLURM_STEP_NUM_TASKS": "4"}, {}),
        (MPI | {"OMPI_MCA_orte_hnp_uri": "1;tcp://10.0.0.1:1"}, {}),
        ({"TPU_ML_PLATFORM": "JAX", "TPU_WORKER_HOSTNAMES": "a,b"}, {}),
        ({"TPU_ML_PLATFORM": "JAX", "TPU_WORKER_HOSTNAMES": "a"}, None),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, None),
    ],
)
def test_the_environment_says_whether_there_are_several(environment, expected, monkeypatch):
    for name in list(os.environ):
        if name.startswith(("SLURM_", "OMPI_", "TPU_", "KUBERNETES_", "JOB_")):
            monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert hosts.initialize_options(None, None, None) == expected
    assert hosts.initialize_options(None, 1, None) is None


def test_open_mpi_that_does_not_say_where_process_0_is(monkeypatch):
    for name, value in MPI.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("OMPI_MCA_orte_hnp_uri", raising=False)
    with pytest.raises(RunError, match="give --coordinator=HOST:PORT"):
        hosts.initialize_options(None, None, None)
    options = hosts.initialize_options("node1:1234", None, None)
    assert (options["num_processes"], options["process_id"]) == (4, 2)
    assert options["local_device_ids"] == [1]


@pytest.mark.parametrize("name", ["OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"])
@pytest.mark.parametrize("value", ["abc", "", "-1", "2.5"])
def test_a_variable_that_is_no_number_is_named(name, value, monkeypatch):
    monkeypatch.setenv(name, value)
    with pytest.raises(
        RunError, match=rf"{name} in the environment must be a whole number >= 0, got '{value}'"
    ):
        hosts.initialize_options(None, None, None)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_port_in_use_is_told_before_jax_tries_it(host, monkeypatch):
    def never(**_):
        pytest.fail("JAX was asked, which may end the process from C++")

    monkeypatch.setattr(hosts.jax.distributed, "initialize", never)
    with socket.create_server((host, 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(
            RunError, match=rf"the port of coordinator must be free .* got localhost:{port}: Addr"
        ):
            hosts.join(f"localhost:{port}", 2, 0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((None, 2, 0), r"must be given together, got coordinator=None, processes=2, process=0"),
        (("localhost", 2, 0), r"coordinator must be HOST:PORT of process 0, got 'localhost'"),
        (("localhost:99999", 2, 0), r"coordinator must be HOST:PORT"),
        (("localhost:9", 0, 0), r"processes must be a whole number >= 1, got 0"),
        (("localhost:9", 2, 2), r"process must be at least 0 and below processes = 2, got 2"),
    ],
)
def test_mistakes_in_flags(given, message):
    with pytest.raises(RunError, match=message):
        hosts.join(*given)
