"""Kernels of our own (native.cc), which JAX calls through its foreign-function interface; and their compiler.

They are compiled when the first of them is traced, and only for float32 on a CPU. `convolution` and `evonorm`
use them.
"""

import ctypes
import functools
import hashlib
import os
import pathlib
import shlex
import shutil
import stat
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from saddle_jax.base import files
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array
from saddle_jax.devices import policy

# ---- C++ compiled for this machine at its first use, and kept in the user's cache folder ----
#
# A library's name there holds the hash of what it was made from (source, compiler, what that knows of the
# CPU, JAX) and the hash of its content. So a change of any of these makes a new file, a damaged file is known
# and made again, and processes that start together do not disturb each other: each renames its own.


_COMPILERS = ("c++", "g++", "clang++")
_FLAGS = ("-std=c++17", "-O3", "-ffp-contract=fast", "-fPIC")
_TUNINGS = ("-march=native", "-mcpu=native")  # which of them there is depends on compiler and CPU
_SECONDS = 300  # after which a compiler is given up


class UnavailableError(Exception):
    """Says in one line why there is no library, and what would help."""


class Library(NamedTuple):
    """A loaded library, and the hash of what it was made from."""

    functions: ctypes.CDLL
    key: str


def load(source: pathlib.Path) -> Library:
    """Loads the library that a C++ file becomes, from the cache folder or by compiling it.

    Raises:
      UnavailableError: there is no compiler, it fails, or the cache folder is not the user's alone.
    """
    command = _command()
    key = _key(source, command)
    folder = _folder()
    try:
        for path in sorted(folder.glob(f"{source.stem}-{key}-*.so")):
            if _is_intact(path):
                return Library(ctypes.CDLL(str(path)), key)
            path.unlink(missing_ok=True)
        return Library(ctypes.CDLL(str(_compiled(source, command, key, folder))), key)
    except OSError as error:
        raise UnavailableError(f"{folder} cannot be used: {error}; set SADDLE_CACHE_DIR") from error


def program() -> str:
    """Returns the path of the compiler; an UnavailableError says why there is none."""
    return _command()[0]


def _command() -> list[str]:
    """Returns how the compiler is called for this machine's CPU; CXX may be a command with options."""
    compiler, *options = _compiler()
    for tuning in _TUNINGS:
        command = [compiler, *options, *_FLAGS, tuning]
        if _run([*command, "-fsyntax-only", "-x", "c++", os.devnull]).returncode == 0:
            return command
    raise UnavailableError(f"{compiler} does not compile C++17 for this machine")


def _compiler() -> list[str]:
    try:
        named = shlex.split(os.environ.get("CXX", ""))
    except ValueError as error:
        raise UnavailableError(f"CXX must be a command, got {os.environ['CXX']!r}: {error}") from error
    names = named[:1] or _COMPILERS
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise UnavailableError(f"no C++ compiler was found ({', '.join(names)}): install g++ or clang++")
    return [found, *named[1:]]


def _key(source: pathlib.Path, command: Sequence[str]) -> str:
    """Hashes everything that the library depends on; the compiler's macros name its version and the CPU.

    The headers beside the source are among them, whether it includes them or not.
    """
    macros = _run([*command, "-dM", "-E", "-x", "c++", os.devnull]).stdout
    texts = [path.read_bytes() for path in (source, *sorted(source.parent.glob("*.h")))]
    parts = [*texts, macros.encode(), repr((*command, jax.__version__)).encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _folder() -> pathlib.Path:
    """Returns the folder of libraries, and makes it; what somebody else may have put there is not loaded."""
    if not hasattr(os, "geteuid"):
        raise UnavailableError("nothing is compiled on this system")
    try:
        return files.private_folder(files.cache_folder() / "native")
    except ArgumentError as error:
        raise UnavailableError(f"{error}; set SADDLE_CACHE_DIR") from error


def _is_intact(path: pathlib.Path) -> bool:
    """Returns whether a file is the user's own and has the content that its name tells."""
    found = path.lstat()
    return stat.S_ISREG(found.st_mode) and files.only_ours(found) and path.stem.endswith(_hash_of(path))


def _hash_of(path: pathlib.Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


def _compiled(source: pathlib.Path, command: list[str], key: str, folder: pathlib.Path) -> pathlib.Path:
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder) as partial:
        made = pathlib.Path(partial) / "made.so"
        include = ["-isystem", jax.ffi.include_dir()]
        done = _run([*command, "-shared", *include, str(source), "-o", str(made)])
        if done.returncode:
            reason = next((line for line in done.stderr.splitlines() if "error" in line), "it says nothing")
            raise UnavailableError(f"{command[0]} failed on {source.name}: {reason}")
        if not made.is_file():
            raise UnavailableError(f"{command[0]} is no C++ compiler: it made nothing of {source.name}")
        made.chmod(0o700)
        path = folder / f"{source.stem}-{key}-{_hash_of(made)}.so"
        made.replace(path)
    return path


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{command[0]} cannot be run: {error}") from error


SOURCE = pathlib.Path(__file__).parent / "native.cc"
_OPERATIONS = ("forward", "input_gradient", "kernel_gradient", "evonorm", "evonorm_gradients")
_lock = threading.Lock()


def obstacle() -> str | None:
    """Returns in one line why the kernels cannot be used here; None if they can, and are then loaded."""
    with _lock:  # JAX traces in several threads
        return _loaded()[1]


def check() -> None:
    """Checks that the kernels can be used, for a user who has asked for them by name."""
    if reason := obstacle():
        raise ArgumentError(f"conv_impl must be one that works here, got 'native': {reason}")


def missing(conv_impl: str) -> str | None:
    """Returns in one line why the kernels are not used, where the conv_impl `auto` would have chosen them."""
    if conv_impl != "auto" or not policy.takes_native_convolutions():
        return None
    return obstacle()


def used(conv_impl: str, *arrays: Array) -> bool:
    """Tells whether a conv_impl means the kernels here, for such arrays: float32, and not empty."""
    if conv_impl not in ("auto", "native") or not policy.takes_native_convolutions():
        return False
    takes = all(array.dtype == np.float32 and array.size for array in arrays)
    return takes and (conv_impl == "native" or obstacle() is None)


def call(name: str, shapes: Sequence[Sequence[int]], *arrays: Array, over: str, **options: int) -> Any:
    """Calls a kernel by its name in native.cc for results of these shapes; one result is not in a list.

    `over` is how vmap treats it: "sequential" calls it once for each element of the new axis; with
    "broadcast_all" the kernel gets arrays with a leading axis.
    """
    check()
    results = [jax.ShapeDtypeStruct(tuple(shape), np.dtype(np.float32)) for shape in shapes]
    function = jax.ffi.ffi_call(f"saddle_{name}_{_loaded()[0]}", results, vmap_method=over)
    found = function(*arrays, **{option: np.int64(value) for option, value in options.items()})
    return found[0] if len(found) == 1 else found


@functools.cache
def _loaded() -> tuple[str, str | None]:
    """Makes the kernels known to JAX. Returns the end of their names there, and why there are none."""
    try:
        library = load(SOURCE)
    except UnavailableError as error:
        return "", str(error)
    for name in _OPERATIONS:
        function = jax.ffi.pycapsule(getattr(library.functions, name))
        jax.ffi.register_ffi_target(f"saddle_{name}_{library.key}", function, platform="cpu")
    return library.key, None
