"""The process of a verb: standard streams, JAX's environment, and error messages."""

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

# No slow imports here: before `start` handles Ctrl-C, Python would answer it with a traceback.
import saddle_jax.training.signals as interruption
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import BUG, MISTAKE, RunError, one_line, printable, status_of

# When the command began, including the time to start Python and to import JAX.
began = time.perf_counter() - time.process_time()

DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
_LONGEST = 2_000  # characters of an error message
# The modules that only optional extras install.
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
    """Raises ModuleNotFoundError for a missing module now instead of after hours of training."""
    for name in modules:
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def start(main: Callable[[Sequence[str]], int], devices: Callable[[Sequence[str]], int]) -> None:
    """Runs a command: handles Ctrl-C, sets up JAX if the verb needs devices, and ends the process."""
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
    """Runs a verb and returns its exit status; expected errors are printed in one line."""
    try:
        status = run(words)
        sys.stdout.flush()  # while an error can still be reported
        return status
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        drop_output()
        return 141
    except KeyboardInterrupt:
        return _tell_interrupted()
    except Exception as error:
        if interruption.is_raised():  # a library converted the interrupt
            return _tell_interrupted()
        return tell(error, " ".join(words[:1]))


# Error messages.


def tell(error: Exception, verb: str = "") -> int:
    """Prints an expected error in one line and returns its exit status; raises all others again."""
    if isinstance(error, RunError | ArgumentError):
        text = str(error)
    elif isinstance(error, ModuleNotFoundError) and error.name in OPTIONAL:
        text = f"{error.name} is not installed: {verb} needs pip install 'saddle_jax[all]'"
    elif isinstance(error, OSError):
        text = _text_of_os_error(error)
    elif not (text := unusable_devices() or ""):
        raise error
    text = printable(text)
    if len(text) > _LONGEST:  # the value may be a whole file
        text = f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 4 :]}"
    # Errors in user code are followed by their traceback.
    print(f"saddle: {text}\n{getattr(error, 'trace', '')}", end="", file=sys.stderr, flush=True)
    return status_of(error)


def _text_of_os_error(error: OSError) -> str:
    """Formats an OSError with the names of its files."""
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    if not names and error.errno in DISK:  # errors without a file name
        names = ["standard output"]
        drop_output()
    return ": ".join([*names[:1], error.strerror or str(error)])


def _tell_interrupted() -> int:
    """Prints that the command was interrupted and returns its exit status."""
    interruption.tell("saddle: interrupted")
    return interruption.STATUS


# Standard output and error may be closed, full, or unable to encode the text.


def drop_output() -> None:
    """Discards pending output, so that Python does not report an error at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def silence_libraries() -> None:
    """Hides warnings of libraries that are meant for programmers.

    Python's option -W, or PYTHONWARNINGS, shows them. Our own warnings begin with the package's name and are
    printed once, in one line; Python would repeat them whenever a library has changed the filters.
    """
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
        warnings.filterwarnings("default", message=r"saddle_jax\.")
        warnings.showwarning = lambda message, *_, **__: _tell_once(str(message))


@functools.cache
def _tell_once(warning: str) -> None:
    print(f"saddle: {warning.removeprefix('saddle_jax.')}", file=sys.stderr)


def mend_streams() -> None:
    """Opens closed standard streams, and makes them escape characters that their encoding does not have."""
    for number in (0, 1, 2):  # first of all, because the next opened file would get the stream's descriptor
        with contextlib.suppress(OSError):
            os.fstat(number)
            continue
        os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the shell
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


# Environment variables that JAX cannot satisfy.


def _set_up(devices: int) -> None:
    """Imports JAX and sets up memory, cores and cache; a ValueError for invalid environment variables."""
    import_jax()

    from saddle_jax.devices.compilations import keep_compiled
    from saddle_jax.devices.machine import keep_freed_memory, use_every_core

    keep_freed_memory()
    use_every_core(at_least=devices)
    keep_compiled()


def import_jax() -> ModuleType:
    """Imports JAX, which reads its environment variables on import.

    Raises:
      ValueError: JAX or XLA does not accept one of them; the message says which.
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
    """Tests XLA_FLAGS in a child process, because XLA aborts the process if they are invalid.

    It exits with status 1, which means a diverged run here.
    """
    from jaxlib import xla_client

    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.dup2(writer, 2)
            xla_client.CompileOptions()  # parses XLA_FLAGS
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, errors="replace") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    # The first line has the error after a log prefix; a list of all flags may follow.
    if status and (reason := re.search(r"^[EF]\d{4} .*?\] (.*)", text, re.MULTILINE)):
        raise ValueError(f"XLA cannot use XLA_FLAGS of the environment: {one_line(ValueError(reason[1]))}")


def unusable_devices() -> str | None:
    """Returns a message if JAX has no devices, which may cause any error; None if it has some."""
    if "jax" not in sys.modules:
        return None
    try:
        sys.modules["jax"].devices()
    except Exception as reason:  # JAX may fail an assertion if no platform in JAX_PLATFORMS is found
        platforms = os.environ.get("JAX_PLATFORMS")
        asked = f"which JAX_PLATFORMS={platforms} asks for" if platforms else "of this machine"
        why = one_line(reason) if str(reason) else "there are none"
        return f"JAX cannot use the devices {asked} ({why}); JAX_PLATFORMS=cpu uses the CPU"
    return None
