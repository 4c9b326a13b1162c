"""How the processes of one run find each other: by flags, or by what SLURM, Open MPI and others set.

`join` is called once, before JAX is used. What the processes agree on afterwards is in `hosts`.
"""

import contextlib
import errno
import importlib.util
import os
import socket
import sys
import threading
from typing import Any

import jax
import numpy as np

from saddle_jax.base.checks import spells_whole
from saddle_jax.base.errors import RunError, one_line
from saddle_jax.devices.hosts import AgreedError, complain, end_at_once, writes

# JAX has a limit on joining too, which ends the process from C++ with a stack trace. It comes this many
# seconds after ours.
_GRACE = 60


def join(
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    timeout: int = 300,
    heartbeat_timeout: int = 100,
) -> None:
    """Joins the other processes, if there are any. Call it before JAX is used.

    Without arguments the environment decides: that of SLURM, Open MPI, Kubernetes or a Cloud TPU.

    Args:
      coordinator: HOST:PORT of process 0.
      processes: how many there are; 1 trains alone, whatever the environment says.
      process: the number of this one, from 0.
      timeout: how many seconds to wait for the others.
      heartbeat_timeout: a process that gives no sign of life for this many seconds counts as dead.
    """
    options = initialize_options(coordinator, processes, process)
    if options is None:
        return
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM, which the loop answers
    # On CPUs, programs that run at the same time share few threads, and wait in them for other processes. Two
    # programs on different sets of devices, such as a step and a vote, would wait for each other forever.
    # This matters where a process has one device; for processes with several see `dispatch`.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    if options and options["process_id"] == 0:
        _check_port(options["coordinator_address"])
    _keep_quiet()
    watch = threading.Timer(timeout, _end_without_the_others, (options, timeout))
    watch.daemon = True
    watch.start()
    try:
        jax.distributed.initialize(
            **options,
            initialization_timeout=timeout + _GRACE,
            heartbeat_timeout_seconds=heartbeat_timeout,
        )
        counts = np.bincount([device.process_index for device in jax.devices()])
    except (RuntimeError, ValueError) as error:
        remedy = (
            f"is the port of {options['coordinator_address']} free?"
            if options
            else "give --coordinator, --processes and --process, or --processes=1 to train alone"
        )
        raise RunError(f"the processes of this run cannot be joined ({one_line(error)}): {remedy}") from error
    finally:
        watch.cancel()
    if len(set(counts)) > 1:
        raise AgreedError(
            f"all processes must have the same number of devices, got {', '.join(map(str, counts))}; "
            "on CPUs, JAX_NUM_CPU_DEVICES=N in the environment sets it"
        )
    if not writes():
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115


def initialize_options(
    coordinator: str | None, processes: int | None, process: int | None
) -> dict[str, Any] | None:
    """Returns the arguments for jax.distributed.initialize, or None for a process that trains alone.

    They are empty where JAX finds out by itself.
    """
    if processes == 1 and process in (None, 0):
        return None
    environment = os.environ
    size = _count("OMPI_COMM_WORLD_SIZE", 1)
    if coordinator and processes is None and process is None and size > 1:  # Open MPI 5 gives all the rest
        rank, local = _count("OMPI_COMM_WORLD_RANK"), _count("OMPI_COMM_WORLD_LOCAL_RANK", 0)
        return _explicit(coordinator, size, rank) | {"local_device_ids": [local]}
    if not (coordinator is None and processes is None and process is None):
        if coordinator is None or processes is None or process is None:
            raise RunError(
                f"coordinator, processes and process must be given together, got coordinator={coordinator}, "
                f"processes={processes}, process={process}"
            )
        return _explicit(coordinator, processes, process)
    if size > 1 and "OMPI_MCA_orte_hnp_uri" not in environment:
        raise RunError(
            "this Open MPI does not say where process 0 is: give --coordinator=HOST:PORT, "
            "or --processes=1 to train alone"
        )
    hosts = environment.get("TPU_PROCESS_ADDRESSES", environment.get("TPU_WORKER_HOSTNAMES"))
    tpu = "TPU_ML_PLATFORM" in environment  # JAX sets it on a Cloud TPU machine
    signs_of_several = (
        size > 1,
        # An allocation has SLURM_NTASKS, but only what srun starts has this.
        _count("SLURM_STEP_NUM_TASKS", 1) > 1,
        "JOB_COMPLETION_INDEX" in environment and "KUBERNETES_SERVICE_HOST" in environment and _has_client(),
        tpu and hosts is not None and "," in hosts,
        tpu and hosts is None and "TPU_SKIP_MDS_QUERY" not in environment,  # JAX asks the machine's metadata
    )
    return {} if any(signs_of_several) else None


def _explicit(coordinator: str, processes: int, process: int) -> dict[str, Any]:
    host, _, port = coordinator.rpartition(":")
    if not (host and spells_whole(port) and 0 < int(port) < 2**16):
        raise RunError(f"coordinator must be HOST:PORT of process 0, got {coordinator!r}")
    if processes < 1:
        raise RunError(f"processes must be a whole number >= 1, got {processes}")
    if not 0 <= process < processes:
        raise RunError(f"process must be at least 0 and below processes = {processes}, got {process}")
    return {
        "coordinator_address": coordinator,
        "num_processes": processes,
        "process_id": process,
        "cluster_detection_method": "deactivate",
    }


def _count(variable: str, default: int | None = None) -> int:
    """Returns the whole number that a variable of the environment is set to."""
    text = os.environ.get(variable, "" if default is None else str(default))
    if not spells_whole(text.strip()):
        given = repr(text) if variable in os.environ else "nothing"
        raise RunError(f"{variable} in the environment must be a whole number >= 0, got {given}")
    return int(text)


def _check_port(address: str) -> None:
    """Checks that process 0 can listen at its port: JAX may end the process from C++ if it cannot."""
    port = int(address.rpartition(":")[2])
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    try:  # as JAX does it: at all addresses of this machine
        socket.create_server(("", port), family=family, dualstack_ipv6=family == socket.AF_INET6).close()
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            return  # whatever this machine cannot do, it need not be the port
        raise RunError(
            f"the port of coordinator must be free on the machine of process 0, got {address}: "
            f"{error.strerror or one_line(error)}"
        ) from error


def _has_client() -> bool:
    """Returns whether JAX can ask Kubernetes how many processes there are."""
    return importlib.util.find_spec("kubernetes") is not None


def _keep_quiet() -> None:
    """Gives Python's standard output another file descriptor: Gloo prints to 1 how its ranks connect."""
    sys.stdout.flush()
    try:
        descriptor = os.dup(1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except OSError:  # closed
        return
    sys.stdout = os.fdopen(descriptor, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)


def _end_without_the_others(options: dict[str, Any], timeout: int) -> None:
    """Ends this process, because the others did not come. JAX waits in C++ and cannot be asked to give up."""
    names = ("coordinator_address", "num_processes", "process_id")
    with contextlib.suppress(ImportError, AttributeError):  # what JAX found out has no public name
        from jax._src.distributed import global_state

        options = {name: getattr(global_state, name) for name in names} | options
    address, count, process = (options.get(name) for name in names)
    where = f" at {address}" if address else ""
    why = ""
    if address and process:
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=2).close()
            why = "; process 0 is there, so others are missing"
        except OSError as error:
            why = f"; process 0 does not answer there ({error})"
    complain(f"process {process} of {count} waited {timeout} s{where}, and not all of them came{why}")
    end_at_once(2)
