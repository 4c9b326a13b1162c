"""Kernels of our own (native.cc), which JAX calls through its foreign-function interface.

They are compiled when the first of them is traced (kernels/compiler.py), and only for float32 on a CPU.
convolution_native.py and evonorm_native.py use them.
"""

import functools
import pathlib
import threading
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array
from saddle_jax.devices import policy
from saddle_jax.kernels import compiler

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
        raise ArgumentError(f"lowering must be one that works here, got 'native': {reason}")


def missing(lowering: str) -> str | None:
    """Returns in one line why the kernels are not used, where the lowering `auto` would have chosen them."""
    if lowering != "auto" or not policy.takes_native_convolutions():
        return None
    return obstacle()


def used(lowering: str, *arrays: Array) -> bool:
    """Tells whether a lowering means the kernels here, for such arrays: float32, and not empty."""
    if lowering not in ("auto", "native") or not policy.takes_native_convolutions():
        return False
    takes = all(array.dtype == np.float32 and array.size for array in arrays)
    return takes and (lowering == "native" or obstacle() is None)


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
        library = compiler.load(SOURCE)
    except compiler.UnavailableError as error:
        return "", str(error)
    for name in _OPERATIONS:
        function = jax.ffi.pycapsule(getattr(library.functions, name))
        jax.ffi.register_ffi_target(f"saddle_{name}_{library.key}", function, platform="cpu")
    return library.key, None
