"""Runs of several processes, on one machine or many: how they connect and agree.

`join` is called once, before JAX is used, with flags or with what SLURM, Open MPI and others set. Then every
process runs the same program on its own devices, in JAX's distributed runtime. Only process 0 writes. It
broadcasts whatever it reads from the run's folder and decides on, so that all processes take the same
branches. An error in one process is raised in all, see `agreement`. All of this goes through `gather`.
"""

import contextlib
import errno
import functools
import hashlib
import importlib.util
import json
import os
import pathlib
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from saddle_jax.base import errors
from saddle_jax.base.checks import ArgumentError, is_integer_text
from saddle_jax.base.errors import RunError, one_line
from saddle_jax.devices.placement import in_turn

# Seconds until a file that one machine has written must be visible on another.
_FILE_APPEARS = 30.0


class AgreedError(RunError):
    """An error that every process of the run has raised, so that all of them can exit normally."""


def writes() -> bool:
    """Returns whether this process is the one that writes and prints."""
    return jax.process_index() == 0


def gather(text: str) -> list[str]:
    """Returns the texts of all processes, in their order; a collective, which all processes must call."""
    if jax.process_count() == 1:
        return [text]
    from jax.experimental.multihost_utils import process_allgather

    mine = np.frombuffer(text.encode(), np.uint8)
    sizes = in_turn(process_allgather, np.array([len(mine)], np.int32)).ravel()
    if not sizes.any():
        return [""] * len(sizes)
    length = 1 << int(max(sizes) - 1).bit_length()  # few lengths: each is compiled once
    rows = in_turn(process_allgather, np.pad(mine, (0, length - len(mine))))
    return [rows[n, :size].tobytes().decode() for n, size in enumerate(sizes)]


@contextlib.contextmanager
def agreement() -> Iterator[None]:
    """Raises the first error of any process in all of them."""
    if jax.process_count() == 1:
        yield
        return
    own_error: Exception | None = None
    try:
        yield
    except Exception as error:
        if is_lost(error):  # the others cannot be asked any more
            raise
        own_error = error
    messages = gather("" if own_error is None else one_line(own_error))
    for process, text in enumerate(messages):
        if text:
            where = "" if process == jax.process_index() else f"process {process}: "
            raise AgreedError(where + text) from own_error


def broadcast_result(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function on process 0 alone and returns its result, which must be JSON, on all."""
    if jax.process_count() == 1:
        return function(*arguments)
    with agreement():
        answer = json.dumps(function(*arguments)) if writes() else ""
    return json.loads(gather(answer)[0])


def check_same(values: dict[str, Any]) -> None:
    """Checks that all processes have the same names and values."""
    text = json.dumps(values)
    if len(set(gather(hashlib.sha256(text.encode()).hexdigest()))) == 1:
        return
    all_values = [json.loads(other) for other in gather(text)]
    for process, its_values in enumerate(all_values):
        for name in all_values[0] | its_values:
            first, other = all_values[0].get(name), its_values.get(name)
            if first != other:
                raise AgreedError(
                    f"all processes of a run must have the same {name}, got {first!r} on process 0 "
                    f"and {other!r} on process {process}"
                )


def check_shared(folder: pathlib.Path) -> None:
    """Checks that all processes see the same folder, by a temporary file that process 0 writes there."""
    if jax.process_count() == 1:
        return
    token = folder / f".shared-{broadcast_result(lambda: os.urandom(8).hex())}"
    try:
        with agreement():
            if writes():
                token.write_text("")
        with agreement():
            deadline = time.monotonic() + _FILE_APPEARS
            while not token.exists():
                if time.monotonic() > deadline:
                    raise RunError(
                        f"workdir must be a folder that all processes share, got {folder} on "
                        f"{socket.gethostname()}, which is not the one that process 0 writes to"
                    )
                time.sleep(0.1)
                with contextlib.suppress(OSError):
                    os.listdir(folder)  # makes a network file system refresh its cache
    finally:
        if writes():
            token.unlink(missing_ok=True)


class Vote:
    """Whether any process was asked to stop; answered one call late, so that no device waits."""

    def __init__(self) -> None:
        self._last: Any = None

    def __call__(self, mine: bool, due: bool) -> bool:
        """Returns whether any process said yes at the previous call, the same on all processes.

        Args:
          mine: the vote of this process.
          due: whether to vote now; it must be the same on all processes.
        """
        if jax.process_count() == 1:
            return mine
        if not due:
            return False
        answer = self._last is not None and bool(self._last)
        sharding, count = _ballot()
        votes = jax.make_array_from_callback((jax.device_count(),), sharding, lambda _: np.array([mine]))
        self._last = in_turn(count, votes)
        return answer


@functools.cache
def _ballot() -> tuple[NamedSharding, Any]:
    """Returns the sharding of one vote per device, and the program that computes whether one is yes."""
    mesh = Mesh(np.array(jax.devices()), "all")
    everywhere = NamedSharding(mesh, PartitionSpec())
    return NamedSharding(mesh, PartitionSpec("all")), jax.jit(jnp.any, out_shardings=everywhere)


def is_lost(error: BaseException) -> bool:
    """Returns whether an error of JAX means that another process cannot be reached.

    It is recognised by its text: the same failure is raised as a JaxRuntimeError and as a ValueError.
    """
    signs = ("Gloo", "NCCL", "UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED")
    return (
        jax.process_count() > 1 and isinstance(error, Exception) and any(sign in str(error) for sign in signs)
    )


@contextlib.contextmanager
def exit_together() -> Iterator[None]:
    """Ends this process at once at an error of its own, so that the others notice and end too.

    Otherwise they would wait for it in the run, and it for them in JAX's shutdown.
    """
    try:
        yield
    except AgreedError:
        raise
    except BaseException as error:
        if jax.process_count() == 1:
            raise
        _leave(error)


def _leave(error: BaseException) -> NoReturn:
    this_process = f"process {jax.process_index()}"
    if isinstance(error, KeyboardInterrupt):
        complain(f"{this_process}: interrupted")
        end_at_once(130)
    if is_lost(error):
        complain(
            f"{this_process}: another process has ended or cannot be reached ({one_line(error)}); "
            "start all of them again to resume from the newest checkpoint"
        )
        end_at_once(errors.MISTAKE)
    if isinstance(error, RunError | ArgumentError | OSError):
        complain(f"{this_process}: {one_line(error)}")
        end_at_once(errors.status_of(error))
    traceback.print_exception(error)
    complain(f"{this_process}: this is a bug of saddle_jax: please report the lines above")
    end_at_once(errors.BUG)


def complain(text: str) -> None:
    """Prints one line on standard error."""
    print(f"saddle: {text}", file=sys.stderr, flush=True)


def end_at_once(status: int) -> NoReturn:
    """Ends the process without the distributed runtime's own shutdown, which would wait for the others."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


# ---- how processes connect ----


# JAX has its own time limit, which ends the process from C++ with a stack trace. It is this many seconds
# longer than ours.
_GRACE = 60


def join(
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    timeout: int = 300,
    heartbeat_timeout: int = 100,
) -> None:
    """Connects to the other processes of the run, if there are any. Call it before JAX is used.

    Without arguments the environment decides: that of SLURM, Open MPI, Kubernetes or a Cloud TPU.

    Args:
      coordinator: HOST:PORT of process 0.
      processes: the number of processes; 1 trains alone, whatever the environment says.
      process: the number of this one, from 0.
      timeout: seconds to wait for the others.
      heartbeat_timeout: seconds without a heartbeat after which a process counts as dead.
    """
    options = initialize_options(coordinator, processes, process)
    if options is None:
        return
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM, which the loop handles
    # On CPUs, programs that run at the same time share few threads, and wait in them for other processes. Two
    # programs on different sets of devices, such as a step and a vote, would wait for each other forever.
    # This matters if a process has one device; for processes with several see `placement.in_turn`.
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

    They are empty if JAX detects them itself.
    """
    if processes == 1 and process in (None, 0):
        return None
    environment = os.environ
    size = _count("OMPI_COMM_WORLD_SIZE", 1)
    if coordinator and processes is None and process is None and size > 1:  # Open MPI 5 sets the others
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
    if not (host and is_integer_text(port) and 0 < int(port) < 2**16):
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
    """Returns the integer that an environment variable is set to."""
    text = os.environ.get(variable, "" if default is None else str(default))
    if not is_integer_text(text.strip()):
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
            return  # any other failure need not be the port
        raise RunError(
            f"the port of coordinator must be free on the machine of process 0, got {address}: "
            f"{error.strerror or one_line(error)}"
        ) from error


def _has_client() -> bool:
    """Returns whether the Kubernetes client is installed, by which JAX finds the number of processes."""
    return importlib.util.find_spec("kubernetes") is not None


def _keep_quiet() -> None:
    """Moves Python's standard output to another file descriptor: Gloo prints its connections to 1."""
    sys.stdout.flush()
    try:
        descriptor = os.dup(1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except OSError:  # closed
        return
    sys.stdout = os.fdopen(descriptor, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)


def _end_without_the_others(options: dict[str, Any], timeout: int) -> None:
    """Ends this process if the others do not connect: JAX waits in C++ and cannot be interrupted."""
    names = ("coordinator_address", "num_processes", "process_id")
    with contextlib.suppress(ImportError, AttributeError):  # JAX's state has no public name
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
