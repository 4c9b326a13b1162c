"""The machine: what it is, and the rates that nothing on it can beat."""

import importlib.metadata
import os
import pathlib
import platform
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base.types import Array
from saddle_jax.version import __version__

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "torch")


def description() -> dict[str, object]:
    """Describes hardware, system and versions, for the record."""
    devices = jax.devices()
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()] if hasattr(os, "getloadavg") else None,
        "devices": f"{len(devices)} x {devices[0].device_kind}",
        "system": platform.platform(),
        "python": platform.python_version(),
        "saddle_jax": __version__,
        **{name: _version(name) for name in _PACKAGES},
    }


def gemm(size: int) -> tuple[Callable[[], Array], float]:
    """Returns a product of two float32 matrices [size, size], and its floating-point operations."""
    random = np.random.default_rng(0)
    left, right = (jnp.asarray(random.standard_normal((size, size), np.float32)) for _ in range(2))
    product = jax.jit(jnp.matmul)
    return lambda: product(left, right), 2.0 * size**3


def copy(x: Array) -> tuple[Callable[[], Array], int]:
    """Returns a plain copy of an array, and the bytes that it moves: each is read and written once."""
    run = jax.jit(jnp.copy)
    return lambda: run(x), 2 * x.nbytes


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    """Returns the processor's name where the system tells it, or else its architecture."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
