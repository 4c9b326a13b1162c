"""Checks of the installation: what works on this machine, what is missing, and how to fix it."""

import importlib.metadata
import importlib.util
import os
import pathlib
import platform
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from saddle_jax.base import files
from saddle_jax.base.errors import short_line
from saddle_jax.devices import machine
from saddle_jax.version import __version__

# "broken" prevents training; "missing" makes a feature slower or unavailable.
State = Literal["ok", "missing", "broken"]
_NEEDED = ("jax", "jaxlib", "numpy", "optax", "scipy", "networkx", "absl-py", "lazy_loader")
_MOST_FILES = 100_000  # files of a cache to count


class Finding(NamedTuple):
    """The result of one check.

    Attributes:
      what: what was checked.
      state: whether it works.
      seen: what was found, in one line.
      remedy: what to do about it; empty if nothing.
    """

    what: str
    state: State
    seen: str
    remedy: str = ""


def examine(optional: Mapping[str, Sequence[str]], data_dir: str | None = None) -> list[Finding]:
    """Runs all checks; a check that raises an error is a finding, too.

    Args:
      optional: the modules of each optional extra, by its name.
      data_dir: the folder of prepared datasets; None is TFDS_DATA_DIR or its default.
    """
    looks: dict[str, Callable[[], Sequence[Finding]]] = {
        "versions": _versions,
        "extras": lambda: _extras(optional),
        "devices": _devices,
        "memory": _memory,
        "compiler": _compiler,
        "cache": _caches,
        "data": lambda: _data(data_dir),
        "folder": _folder,
    }
    found: list[Finding] = []
    for what, look in looks.items():
        try:
            with warnings.catch_warnings(action="ignore"):  # the table reports instead
                found += look()
        except ModuleNotFoundError as error:  # of an extra: reported above
            is_needed = error.name not in {name for names in optional.values() for name in names}
            state: State = "broken" if is_needed else "missing"
            found.append(Finding(what, state, f"cannot be looked at without {error.name}"))
        except Exception as error:
            found.append(Finding(what, "broken", f"{type(error).__name__}: {short_line(error)}"))
    return found


def _pip(requirement: str) -> str:
    return f"{sys.executable} -m pip install '{requirement}'"


def _versions() -> list[Finding]:
    versions, absent = [], []
    for name in _NEEDED:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            absent.append(name)
    found = [
        Finding("saddle_jax", "ok", f"{__version__}, in {pathlib.Path(__file__).parent.parent}"),
        Finding("Python", "ok", f"{platform.python_version()}, {sys.executable}"),
        Finding("platform", "ok", f"{platform.platform()}, {_cores()} cores"),
        Finding("packages", "ok", ", ".join(versions)),
    ]
    if absent:
        found.append(Finding("packages", "broken", f"not installed: {', '.join(absent)}", _pip("saddle_jax")))
    return found


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _extras(optional: Mapping[str, Sequence[str]]) -> list[Finding]:
    found = []
    for extra, modules in optional.items():
        absent = [name for name in modules if not _is_there(name)]
        seen = f"not installed: {', '.join(absent)}" if absent else f"installed: {', '.join(modules)}"
        found.append(
            Finding(f"extra {extra}", "missing", seen, _pip(f"saddle_jax[{extra}]"))
            if absent
            else Finding(f"extra {extra}", "ok", seen)
        )
    return found


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def _devices() -> list[Finding]:
    import jax
    import jax.numpy as jnp

    devices = jax.devices()
    kinds = ", ".join(sorted({f"{device.platform} ({device.device_kind})" for device in devices}))
    found = [Finding("devices", "ok", f"JAX uses {len(devices)} x {kinds}")]
    if float(jnp.arange(4.0).sum()) != 6.0:
        found.append(Finding("devices", "broken", "0 + 1 + 2 + 3 is not 6 there"))
    if devices[0].platform != "cpu":
        return found
    if not machine.has_gpu():
        return [*found, Finding("GPU", "ok", "none is seen: runs use the CPU")]
    if machine.hides_gpus():
        seen = "one is here, and JAX_PLATFORMS or CUDA_VISIBLE_DEVICES hides it"
        return [*found, Finding("GPU", "ok", seen)]
    return [*found, Finding("GPU", "missing", "one is here, and JAX uses the CPU", machine.gpu_remedy())]


def _memory() -> list[Finding]:
    from saddle_jax.core.comm_cost import readable
    from saddle_jax.training.memory import available

    there = available()
    return [Finding("memory", "ok", "nobody tells how much" if there is None else f"{readable(there)} free")]


def _compiler() -> list[Finding]:
    from saddle_jax.kernels import native

    try:
        program = native.program()
    except native.UnavailableError as error:
        return [Finding("compiler", "missing", f"convolutions run without kernels of our own: {error}")]
    made = len(list((files.cache_folder() / "native").glob("*.so")))
    state = f"{made} compiled" if made else "compiled at their first use"
    return [Finding("compiler", "ok", f"{program}; kernels of our own: {state}")]


def _caches() -> list[Finding]:
    from saddle_jax.devices.compilations import keep_compiled, used_folder

    remedy = "set SADDLE_CACHE_DIR to a folder of yours"
    if why_not := keep_compiled():
        return [Finding("cache", "missing", f"every start compiles anew: {why_not}", remedy)]
    found = []
    folders = {"cache": files.cache_folder()}
    if compiled := used_folder():
        folders["compiled"] = compiled
    for what, folder in folders.items():
        if _is_writable(folder):
            found.append(Finding(what, "ok", f"{folder}, {_size(folder)}"))
        else:
            found.append(Finding(what, "missing", f"{folder} cannot be written to", remedy))
    return found


def _is_writable(folder: pathlib.Path) -> bool:
    """Returns whether files can be created in a folder, or in its nearest parent that exists."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            return True
    except OSError:
        return False


def _size(folder: pathlib.Path) -> str:
    from saddle_jax.core.comm_cost import readable

    total, count = 0, 0
    for path, _, names in os.walk(folder):
        for name in names:
            count += 1
            try:
                total += os.lstat(os.path.join(path, name)).st_size
            except OSError:  # it was removed meanwhile
                continue
        if count > _MOST_FILES:
            return f"more than {readable(total)}"
    return f"{readable(total)} in {count:,} files" if count else "empty"


def _data(data_dir: str | None) -> list[Finding]:
    from saddle_jax.data import prepared, sources

    folder = prepared.data_dir_or_default(data_dir)
    states = sources.states(folder)
    there = [name for name, state in states.items() if state.startswith("prepared")]
    absent = [name for name, state in states.items() if state.startswith("not prepared")]
    embedded = [name for name, state in states.items() if state.startswith("embedded")]
    found = [Finding("data", "ok", f"embedded: {', '.join(embedded)}")]
    if there:
        found.append(Finding("data", "ok", f"prepared in {folder}: {', '.join(there)}"))
    if absent:
        remedy = "saddle data prepare NAME, or set TFDS_DATA_DIR"
        found.append(Finding("data", "missing", f"not in {folder}: {', '.join(absent)}", remedy))
    return found


def _folder() -> list[Finding]:
    from saddle_jax.core.comm_cost import readable

    here = pathlib.Path.cwd()
    free = readable(shutil.disk_usage(here).free)
    if _is_writable(here):
        return [Finding("folder", "ok", f"{here} can be written to, {free} free")]
    return [
        Finding("folder", "missing", f"{here} cannot be written to", "go elsewhere, or give --workdir=DIR")
    ]
