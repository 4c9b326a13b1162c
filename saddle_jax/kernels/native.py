"""Our own kernels (native.cc), called through JAX's foreign-function interface, and their compilation.

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

# ---- C++ compiled for this machine at its first use, and cached in the user's cache folder ----
#
# A library's name there has the hash of what it was compiled from (source, compiler, the compiler's macros
# for the CPU, JAX) and the hash of its content. So a change of any of these makes a new file, a damaged file
# is detected and compiled again, and processes that start together do not interfere: each renames its own.


_COMPILERS = ("c++", "g++", "clang++")
_FLAGS = ("-std=c++17", "-O3", "-ffp-contract=fast", "-fPIC")
_TUNINGS = ("-march=native", "-mcpu=native")  # which of them exists depends on compiler and CPU
_SECONDS = 300  # time limit of the compiler


class UnavailableError(Exception):
    """Why the kernels are not available, and what would help, in one line."""


class Library(NamedTuple):
    """A loaded library, and the hash of what it was compiled from."""

    functions: ctypes.CDLL
    key: str


def load(source: pathlib.Path) -> Library:
    """Loads the library of a C++ file, from the cache folder or by compiling it.

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
    """Returns the path of the compiler; raises an UnavailableError if there is none."""
    return _command()[0]


def _command() -> list[str]:
    """Returns the compiler's command line for this machine's CPU; CXX may be a command with options."""
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
    """Hashes everything that the library depends on; the compiler's macros contain its version and the CPU.

    All headers in the source's folder are hashed, whether they are included or not.
    """
    macros = _run([*command, "-dM", "-E", "-x", "c++", os.devnull]).stdout
    texts = [path.read_bytes() for path in (source, *sorted(source.parent.glob("*.h")))]
    parts = [*texts, macros.encode(), repr((*command, jax.__version__)).encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _folder() -> pathlib.Path:
    """Makes and returns the folder of libraries; an error if others can write to it."""
    if not hasattr(os, "geteuid"):
        raise UnavailableError("nothing is compiled on this system")
    try:
        return files.private_folder(files.cache_folder() / "native")
    except ArgumentError as error:
        raise UnavailableError(f"{error}; set SADDLE_CACHE_DIR") from error


def _is_intact(path: pathlib.Path) -> bool:
    """Returns whether a file belongs to the user and has the hash in its name."""
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
    """Loads the kernels and returns None, or in one line the reason why they cannot be used here."""
    with _lock:  # JAX traces in several threads
        return _loaded()[1]


def check() -> None:
    """Checks that the kernels can be used, for a user who asks for conv_impl=native."""
    if reason := obstacle():
        raise ArgumentError(f"conv_impl must be one that works here, got 'native': {reason}")


def missing(conv_impl: str) -> str | None:
    """Returns in one line why conv_impl `auto` does not use the kernels on this CPU; None otherwise."""
    if conv_impl != "auto" or not policy.is_cpu():
        return None
    return obstacle()


def used(conv_impl: str, *arrays: Array) -> bool:
    """Returns whether a conv_impl uses the kernels here for these arrays: float32, and not empty."""
    if conv_impl not in ("auto", "native") or not policy.is_cpu():
        return False
    takes = all(array.dtype == np.float32 and array.size for array in arrays)
    return takes and (conv_impl == "native" or obstacle() is None)


def call(name: str, shapes: Sequence[Sequence[int]], *arrays: Array, over: str, **options: int) -> Any:
    """Calls a kernel by its name in native.cc, with results of these shapes; a single one is not in a list.

    `over` is its vmap method: "sequential" calls it once for each element of the new axis; with
    "broadcast_all" the kernel gets arrays with a leading axis.
    """
    check()
    results = [jax.ShapeDtypeStruct(tuple(shape), np.dtype(np.float32)) for shape in shapes]
    function = jax.ffi.ffi_call(f"saddle_{name}_{_loaded()[0]}", results, vmap_method=over)
    found = function(*arrays, **{option: np.int64(value) for option, value in options.items()})
    return found[0] if len(found) == 1 else found


@functools.cache
def _loaded() -> tuple[str, str | None]:
    """Registers the kernels with JAX. Returns the suffix of their names, and why there are none, or None."""
    try:
        library = load(SOURCE)
    except UnavailableError as error:
        return "", str(error)
    for name in _OPERATIONS:
        function = jax.ffi.pycapsule(getattr(library.functions, name))
        jax.ffi.register_ffi_target(f"saddle_{name}_{library.key}", function, platform="cpu")
    return library.key, None
