"""The process around a verb: standard streams, JAX's environment, and how mistakes are told."""

import contextlib
import errno
import functools
import importlib.util
import io
import os
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType

# Nothing that takes time is imported here: until `start` listens, Python answers Ctrl-C with a traceback.
import saddle_jax.training.signals as interruption
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import RunError, one_line, printable
from saddle_jax.base.statuses import BUG, MISTAKE, status_of

# When the command began. The process has had something to do before: to start Python, and to import JAX.
began = time.perf_counter() - time.process_time()

DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
_LONGEST = 2_000  # letters of a line about a mistake
# What the extras bring and `pip install saddle_jax` does not, by the names of modules.
BY_EXTRA = {
    "train": (
        "flax",
        "PIL",
        "orbax",
        "orbax.checkpoint",
        "safetensors",
        "tensorboardX",
        "tensorflow_datasets",
        "tqdm",
    ),
    "report": ("matplotlib",),
}
OPTIONAL = {name for names in BY_EXTRA.values() for name in names}


def require(*modules: str) -> None:
    """Raises ModuleNotFoundError for a missing module now, before hours of training, not at their end."""
    for name in modules:
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def start(main: Callable[[Sequence[str]], int], devices: Callable[[Sequence[str]], int]) -> None:
    """Runs a command: listens for Ctrl-C, sets up JAX where the words need devices, and ends the process."""
    mend_streams()
    silence_libraries()
    interruption.listen()
    try:
        if needed := devices(sys.argv[1:]):
            _set_up(needed)
    except ValueError as error:
        print(f"saddle: {error}", file=sys.stderr)
        interruption.leave(MISTAKE)
    interruption.in_verb()
    try:
        status = main(sys.argv)
    except Exception:
        traceback.print_exc()
        print("saddle: this is a bug of saddle_jax: please report the lines above", file=sys.stderr)
        status = BUG
    interruption.leave(status)


def guarded(run: Callable[[list[str]], int], words: list[str]) -> int:
    """Runs a verb; returns its exit status, or that of its mistake, which is reported in one line."""
    try:
        status = run(words)
        sys.stdout.flush()  # where it can still be told that this is impossible
        return status
    except BrokenPipeError:  # whoever read us, such as head, has read enough
        drop_output()
        return 141
    except KeyboardInterrupt:
        return _tell_interrupted()
    except Exception as error:
        if interruption.is_raised():  # it is what a library made of the interruption
            return _tell_interrupted()
        return tell(error, " ".join(words[:1]))


# Mistakes.


def tell(error: Exception, verb: str = "") -> int:
    """Prints a mistake in one line; returns its exit status. A bug is raised again."""
    if isinstance(error, RunError | ArgumentError):
        told = str(error)
    elif isinstance(error, ModuleNotFoundError) and error.name in OPTIONAL:
        told = f"{error.name} is not installed: {verb} needs pip install 'saddle_jax[all]'"
    elif isinstance(error, OSError):
        told = _told(error)
    elif not (told := unusable_devices() or ""):
        raise error
    told = printable(told)
    if len(told) > _LONGEST:  # what was given may be a whole file
        told = f"{told[: _LONGEST // 2]} ... {told[-_LONGEST // 4 :]}"
    # Of a program of the user's own that failed, its traceback follows.
    print(f"saddle: {told}\n{getattr(error, 'trace', '')}", end="", file=sys.stderr, flush=True)
    return status_of(error)


def _told(error: OSError) -> str:
    """Returns what the system says of a file, with the file's name where it says it."""
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    if not names and error.errno in DISK:  # all other files are named
        names = ["standard output"]
        drop_output()
    return ": ".join([*names[:1], error.strerror or str(error)])


def _tell_interrupted() -> int:
    """Tells that the command was interrupted; returns the exit status of that."""
    interruption.tell("saddle: interrupted")
    return interruption.STATUS


# Standard output and error: closed, full, or unable to spell what is printed.


def drop_output() -> None:
    """Lets what is still to be printed go nowhere, lest Python complain about it as it ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def silence_libraries() -> None:
    """Keeps what libraries warn programmers of, such as matplotlib of odd numbers, from standard error.

    Python's own option -W, or PYTHONWARNINGS, shows it. Our own warnings begin with the package's name; each
    is reported once, in one line. Python would tell it again whenever a library has touched the filters.
    """
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
        warnings.filterwarnings("default", message=r"saddle_jax\.")
        warnings.showwarning = lambda message, *_, **__: _tell_once(str(message))


@functools.cache
def _tell_once(warning: str) -> None:
    print(f"saddle: {warning.removeprefix('saddle_jax.')}", file=sys.stderr)


def mend_streams() -> None:
    """Opens standard streams that are closed, and lets them spell out what their encoding does not have."""
    for number in (0, 1, 2):  # first of all: the next file that is opened would be taken for the stream
        with contextlib.suppress(OSError):
            os.fstat(number)
            continue
        os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the shell
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


# What the environment asks of JAX and JAX cannot do.


def _set_up(devices: int) -> None:
    """Imports JAX, sets up memory, cores and cache; a ValueError is what the environment cannot say."""
    import_jax()

    from saddle_jax.devices.compilations import keep_compiled
    from saddle_jax.devices.machine import keep_freed_memory, use_every_core

    keep_freed_memory()
    use_every_core(at_least=devices)
    keep_compiled()


def import_jax() -> ModuleType:
    """Imports JAX, which reads its variables of the environment as it is imported.

    Raises:
      ValueError: it, or XLA, does not understand one of them; the message says which.
    """
    try:
        import jax
    except ValueError as error:
        raise ValueError(
            f"JAX cannot use a variable JAX_... of the environment: {one_line(error)}"
        ) from error
    if os.environ.get("XLA_FLAGS") and hasattr(os, "fork"):
        _check_xla_flags()
    return jax


def _check_xla_flags() -> None:
    """Lets a child read XLA_FLAGS first: XLA ends the process where it does not understand them.

    It ends it with status 1, which is that of a run that diverged.
    """
    from jaxlib import xla_client

    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.dup2(writer, 2)
            xla_client.CompileOptions()  # reads them
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, errors="replace") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    # The first line says what is wrong, after letters, time and place; all flags that there are may follow.
    if status and (reason := re.search(r"^[EF]\d{4} .*?\] (.*)", told, re.MULTILINE)):
        raise ValueError(f"XLA cannot use XLA_FLAGS of the environment: {one_line(ValueError(reason[1]))}")


def unusable_devices() -> str | None:
    """Says that JAX has no devices to compute on, which any error may come from; None if it has some."""
    if "jax" not in sys.modules:
        return None
    try:
        sys.modules["jax"].devices()
    except Exception as reason:  # JAX asserts where it finds nothing that JAX_PLATFORMS names
        platforms = os.environ.get("JAX_PLATFORMS")
        asked = f"which JAX_PLATFORMS={platforms} asks for" if platforms else "of this machine"
        why = one_line(reason) if str(reason) else "there are none"
        return f"JAX cannot use the devices {asked} ({why}); JAX_PLATFORMS=cpu uses the CPU"
    return None
