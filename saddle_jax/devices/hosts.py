"""How the processes of one run agree with each other, on one machine or many.

Every process runs the same program on its own devices, by JAX's own distributed runtime (`joining`). Only
process 0 writes. It sends the others whatever it reads from the run's folder and decides on, so that all of
them take the same branches. What one process cannot do, none does: see `agreement`. Everything that is agreed
on goes through `gather`.
"""

import contextlib
import functools
import hashlib
import json
import os
import pathlib
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from saddle_jax.base import statuses
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import RunError, one_line
from saddle_jax.devices.dispatch import in_turn

# How many seconds it may take until a file that one machine has written is visible on another.
_FILE_APPEARS = 30.0


class AgreedError(RunError):
    """An error that every process of the run has met, so that all of them end in good order."""


def writes() -> bool:
    """Returns whether this process is the one that writes and prints."""
    return jax.process_index() == 0


def gather(text: str) -> list[str]:
    """Returns the texts of all processes, in their order. All must call it, and wait for each other here."""
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
    """Raises the first error of any process on all of them: what one cannot do, none does."""
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


def one_for_all(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls the function on process 0 alone and returns its result on all. JSON must be able to hold it."""
    if jax.process_count() == 1:
        return function(*arguments)
    with agreement():
        answer = json.dumps(function(*arguments)) if writes() else ""
    return json.loads(gather(answer)[0])


def check_same(values: dict[str, Any]) -> None:
    """Checks that all processes have the same value for every name that any of them has."""
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
    """Checks that all processes see the same folder, with a file that process 0 writes there for a moment."""
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
                    os.listdir(folder)  # makes a network file system look again
    finally:
        if writes():
            token.unlink(missing_ok=True)


class Vote:
    """Finds out whether any process was asked to stop. An answer comes one question late: no device waits."""

    def __init__(self) -> None:
        self._last: Any = None

    def __call__(self, mine: bool, due: bool) -> bool:
        """Returns whether any process said yes at the previous question: the same answer on all processes.

        Args:
          mine: what this process answers.
          due: whether to ask now; all processes must give the same.
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
    """Returns the sharding of one vote per device, and the program that finds out whether one is yes."""
    mesh = Mesh(np.array(jax.devices()), "all")
    everywhere = NamedSharding(mesh, PartitionSpec())
    return NamedSharding(mesh, PartitionSpec("all")), jax.jit(jnp.any, out_shardings=everywhere)


def is_lost(error: BaseException) -> bool:
    """Returns whether an error is JAX's way to say that another process cannot be reached.

    The text says it, whatever the class is: the same failure comes as a JaxRuntimeError and as a ValueError.
    """
    signs = ("Gloo", "NCCL", "UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED")
    return (
        jax.process_count() > 1 and isinstance(error, Exception) and any(sign in str(error) for sign in signs)
    )


@contextlib.contextmanager
def ending_together() -> Iterator[None]:
    """Ends this process at once over an error that only it has met, so that the others notice and end too.

    Otherwise they would wait for it in the run, and it for them at the end of the program.
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
        end_at_once(statuses.MISTAKE)
    if isinstance(error, RunError | ArgumentError | OSError):
        complain(f"{this_process}: {one_line(error)}")
        end_at_once(statuses.status_of(error))
    traceback.print_exception(error)
    complain(f"{this_process}: this is a bug of saddle_jax: please report the lines above")
    end_at_once(statuses.BUG)


def complain(text: str) -> None:
    """Prints one line on standard error."""
    print(f"saddle: {text}", file=sys.stderr, flush=True)


def end_at_once(status: int) -> NoReturn:
    """Ends the process without the distributed runtime's own shutdown, which would wait for the others."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
