"""One run over several processes, on one machine or many, by JAX's own distributed runtime.

Every process runs the same program on its own devices. Process 0 alone writes; whatever it reads from the
run's folder and decides on is told to the others, so that all of them take the same branches. What one
process cannot do, none does: see `agreement`.

    join        enters the run, if there is more than one process
    gather      every process's text, on every process: all that is agreed on goes through it
"""

import contextlib
import functools
import hashlib
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

from saddle_jax.base.errors import RunError
from saddle_jax.devices.dispatch import in_turn

# JAX's own limit on joining ends the process from C++, with a stack trace: it comes so much after ours.
_GRACE = 60
# A file that one machine has written may be seen late on another.
_FILE_APPEARS = 30.0


class AgreedError(RunError):
    """An error that every process of the run has met, so that each ends in good order."""


def writes() -> bool:
    """Whether this process is the one that writes and prints."""
    return jax.process_index() == 0


def join(
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    timeout: int = 300,
    heartbeat_timeout: int = 100,
) -> None:
    """Joins the other processes, if there are any; to be called before JAX is used.

    Without arguments it is the environment that tells: SLURM, Open MPI, Kubernetes, Cloud TPU.

    Args:
      coordinator: HOST:PORT of process 0.
      processes: how many there are; 1 trains alone, whatever the environment tells.
      process: which this one is, from 0.
      timeout: how many seconds to wait for the others.
      heartbeat_timeout: after so many seconds without a sign of life a process is taken for dead.
    """
    known = arguments(coordinator, processes, process)
    if known is None:
        return
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM, which the loop answers
    # On CPUs programs that run at once share few threads, and wait in them for other processes: two programs
    # on different sets of devices, such as a step and a vote, would wait for each other for ever. It counts
    # where a process has one device; for those with several see `dispatch`.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    _keep_quiet()
    watch = threading.Timer(timeout, _nobody_came, (known, timeout))
    watch.daemon = True
    watch.start()
    try:
        jax.distributed.initialize(
            **known,
            initialization_timeout=timeout + _GRACE,
            heartbeat_timeout_seconds=heartbeat_timeout,
        )
        counts = np.bincount([device.process_index for device in jax.devices()])
    except (RuntimeError, ValueError) as error:
        remedy = (
            f"is the port of {known['coordinator_address']} free?"
            if known
            else "give --coordinator, --processes and --process, or --processes=1 to train alone"
        )
        raise RunError(f"the processes of this run cannot be joined ({_line(error)}): {remedy}") from error
    finally:
        watch.cancel()
    if len(set(counts)) > 1:
        raise AgreedError(
            f"all processes must have as many devices, got {', '.join(map(str, counts))}; on CPUs, "
            "JAX_NUM_CPU_DEVICES=N in the environment sets their number"
        )
    if not writes():
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115


def arguments(coordinator: str | None, processes: int | None, process: int | None) -> dict[str, Any] | None:
    """What jax.distributed.initialize is told: nothing where JAX finds out by itself; None: train alone."""
    if processes == 1 and process in (None, 0):
        return None
    environment = os.environ
    size = int(environment.get("OMPI_COMM_WORLD_SIZE", 1))
    if coordinator and processes is None and process is None and size > 1:  # Open MPI 5 tells all but that
        local = environment.get("OMPI_COMM_WORLD_LOCAL_RANK", "0")
        rank = int(environment["OMPI_COMM_WORLD_RANK"])
        return _explicit(coordinator, size, rank) | {"local_device_ids": [int(local)]}
    if not (coordinator is None and processes is None and process is None):
        if coordinator is None or processes is None or process is None:
            raise RunError(
                f"coordinator, processes and process must be given together, got coordinator={coordinator}, "
                f"processes={processes}, process={process}"
            )
        return _explicit(coordinator, processes, process)
    if size > 1 and "OMPI_MCA_orte_hnp_uri" not in environment:
        raise RunError(
            "this Open MPI does not tell where process 0 is: give --coordinator=HOST:PORT, "
            "or --processes=1 to train alone"
        )
    hosts = environment.get("TPU_PROCESS_ADDRESSES", environment.get("TPU_WORKER_HOSTNAMES"))
    tpu = "TPU_ML_PLATFORM" in environment  # JAX sets it on a Cloud TPU machine
    several = (
        size > 1,
        # An allocation has SLURM_NTASKS, but only what srun starts has this.
        int(environment.get("SLURM_STEP_NUM_TASKS", 1)) > 1,
        "JOB_COMPLETION_INDEX" in environment and "KUBERNETES_SERVICE_HOST" in environment and _has_client(),
        tpu and hosts is not None and "," in hosts,
        tpu and hosts is None and "TPU_SKIP_MDS_QUERY" not in environment,  # JAX asks the machine's metadata
    )
    return {} if any(several) else None


def _explicit(coordinator: str, processes: int, process: int) -> dict[str, Any]:
    host, _, port = coordinator.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16):
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


def _has_client() -> bool:
    """Whether JAX can ask Kubernetes how many there are."""
    import importlib.util

    return importlib.util.find_spec("kubernetes") is not None


def _keep_quiet() -> None:
    """Gloo prints how its ranks connect, to file descriptor 1: Python's standard output gets another one."""
    sys.stdout.flush()
    try:
        ours = os.dup(1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except OSError:  # closed
        return
    sys.stdout = os.fdopen(ours, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)


def _nobody_came(known: dict[str, Any], timeout: int) -> None:
    """Ends the process: JAX waits in C++ and cannot be asked to give up."""
    names = ("coordinator_address", "num_processes", "process_id")
    with contextlib.suppress(ImportError, AttributeError):  # what JAX found out has no public name
        from jax._src.distributed import global_state

        known = {name: getattr(global_state, name) for name in names} | known
    address, count, process = (known.get(name) for name in names)
    where = f" at {address}" if address else ""
    why = ""
    if address and process:
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=2).close()
            why = "; process 0 is there, so others are missing"
        except OSError as error:
            why = f"; process 0 does not answer there ({error})"
    _say(f"process {process} of {count} waited {timeout} s{where}, and not all of them came{why}")
    _end(2)


def gather(text: str) -> list[str]:
    """Every process's text, in their order. All processes must call it, and wait for each other here."""
    if jax.process_count() == 1:
        return [text]
    from jax.experimental.multihost_utils import process_allgather

    mine = np.frombuffer(text.encode(), np.uint8)
    sizes = in_turn(process_allgather, np.array([len(mine)], np.int32)).ravel()
    if not sizes.any():
        return [""] * len(sizes)
    room = 1 << int(max(sizes) - 1).bit_length()  # few sizes: each is compiled once
    rows = in_turn(process_allgather, np.pad(mine, (0, room - len(mine))))
    return [rows[n, :size].tobytes().decode() for n, size in enumerate(sizes)]


@contextlib.contextmanager
def agreement() -> Iterator[None]:
    """What one process cannot do, none does: the first error of any is raised on all of them."""
    if jax.process_count() == 1:
        yield
        return
    mine: Exception | None = None
    try:
        yield
    except Exception as error:
        if is_lost(error):  # nobody can be asked any more
            raise
        mine = error
    told = gather("" if mine is None else _line(mine))
    for process, text in enumerate(told):
        if text:
            where = "" if process == jax.process_index() else f"process {process}: "
            raise AgreedError(where + text) from mine


def one_for_all(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function returns on process 0, which alone calls it; something that JSON can tell."""
    if jax.process_count() == 1:
        return function(*arguments)
    with agreement():
        answer = json.dumps(function(*arguments)) if writes() else ""
    return json.loads(gather(answer)[0])


def check_same(values: dict[str, Any]) -> None:
    """Checks that all processes have the same values, by name; they need not have the same names."""
    text = json.dumps(values)
    if len(set(gather(hashlib.sha256(text.encode()).hexdigest()))) == 1:
        return
    everybodys = [json.loads(other) for other in gather(text)]
    for process, theirs in enumerate(everybodys):
        for name in everybodys[0] | theirs:
            first, other = everybodys[0].get(name), theirs.get(name)
            if first != other:
                raise AgreedError(
                    f"all processes of a run must have the same {name}, got {first!r} on process 0 "
                    f"and {other!r} on process {process}"
                )


def check_shared(folder: pathlib.Path) -> None:
    """Checks that all processes see the same folder, by a file that process 0 writes there for a moment."""
    if jax.process_count() == 1:
        return
    token = folder / f".shared-{one_for_all(lambda: os.urandom(8).hex())}"
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
                    os.listdir(folder)  # asks a network file system anew
    finally:
        if writes():
            token.unlink(missing_ok=True)


class Vote:
    """Whether any process was asked to stop. The answer comes with the next question: no device waits."""

    def __init__(self) -> None:
        self._asked: Any = None

    def __call__(self, mine: bool, due: bool) -> bool:
        """The same answer on all processes, which must call it with the same `due`: whether to ask now."""
        if jax.process_count() == 1:
            return mine
        if not due:
            return False
        answer = self._asked is not None and bool(self._asked)
        sharding, count = _ballot()
        votes = jax.make_array_from_callback((jax.device_count(),), sharding, lambda _: np.array([mine]))
        self._asked = in_turn(count, votes)
        return answer


@functools.cache
def _ballot() -> tuple[NamedSharding, Any]:
    """Where a vote per device lies, and the program that tells everybody whether there is a yes."""
    mesh = Mesh(np.array(jax.devices()), "all")
    everywhere = NamedSharding(mesh, PartitionSpec())
    return NamedSharding(mesh, PartitionSpec("all")), jax.jit(jnp.any, out_shardings=everywhere)


def is_lost(error: BaseException) -> bool:
    """Whether an error is JAX's, of another process that cannot be reached."""
    signs = ("Gloo", "NCCL", "UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED")
    return (
        jax.process_count() > 1
        and isinstance(error, jax.errors.JaxRuntimeError)
        and any(sign in str(error) for sign in signs)
    )


@contextlib.contextmanager
def ending_together() -> Iterator[None]:
    """An error that only this process has met ends it at once, so that the others notice and end too.

    They would wait for it elsewhere, and it for them at the end of the program.
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
    mine = f"process {jax.process_index()}"
    if isinstance(error, KeyboardInterrupt):
        _say(f"{mine}: interrupted")
        _end(130)
    if is_lost(error):
        _say(
            f"{mine}: another process has gone or cannot be reached ({_line(error)}); "
            "start all of them again to go on from the newest checkpoint"
        )
    elif isinstance(error, RunError | ValueError | OSError):
        _say(f"{mine}: {_line(error)}")
    else:
        traceback.print_exception(error)
    _end(2)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _say(text: str) -> None:
    print(f"saddle: {text}", file=sys.stderr, flush=True)


def _end(status: int) -> NoReturn:
    """Ends the process without the farewells of the distributed runtime, which would wait for the others."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
