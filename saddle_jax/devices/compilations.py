"""Compilations of JAX: which programs are compiled, and their persistent cache."""

import contextlib
import hashlib
import importlib.metadata
import pathlib
import platform
from collections.abc import Iterator
from typing import Any

import jax

from saddle_jax.base import files
from saddle_jax.base.checks import ArgumentError

_COMPILED = "/jax/core/compile/backend_compile_duration"  # JAX's event at the end of a compilation
_LARGEST = 10**9  # bytes of the cache


@contextlib.contextmanager
def compilations() -> Iterator[list[str]]:
    """Collects the names, such as "jit(step)", of programs that JAX compiles or loads from its disk cache."""
    programs: list[str] = []

    def note(event: str, duration_secs: float, **about: str | int) -> None:
        if event == _COMPILED:
            programs.append(str(about.get("fun_name", "unknown")))

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        yield programs
    finally:
        jax.monitoring.unregister_event_duration_listener(note)


def keep_compiled() -> str | None:
    """Enables JAX's compilation cache in the user's cache folder; returns the reason if it cannot, else None.

    JAX's own variables take precedence: JAX_COMPILATION_CACHE_DIR names another folder, and
    JAX_ENABLE_COMPILATION_CACHE=0 disables the cache. Call it before anything is compiled.
    """
    config: Any = jax.config  # its options have no types
    if config.jax_compilation_cache_dir or not config.jax_enable_compilation_cache:
        return None
    try:
        folder = files.private_folder(compiled_folder())
    except ArgumentError as error:
        return str(error)
    _remove_oldest(folder.parent)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # a run has many small programs
    return None


def used_folder() -> pathlib.Path | None:
    """Returns the folder of JAX's compilation cache; None if it is disabled."""
    config: Any = jax.config
    named = config.jax_compilation_cache_dir if config.jax_enable_compilation_cache else None
    return pathlib.Path(named) if named else None


def compiled_folder() -> pathlib.Path:
    """Returns the cache folder for this jaxlib and kind of CPU: machines may share a home folder."""
    cpu = hashlib.sha256(_cpu().encode()).hexdigest()[:12]
    return (
        files.cache_folder()
        / "compiled"
        / f"jaxlib-{importlib.metadata.version('jaxlib')}-{platform.machine()}-{cpu}"
    )


def _cpu() -> str:
    """Returns the CPU's model and features, if the system reports them."""
    with contextlib.suppress(OSError):
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        return "\n".join(sorted({x for x in lines if x.startswith(("model name", "flags", "Features"))}))
    return platform.processor()


def _remove_oldest(folder: pathlib.Path, largest: int = _LARGEST) -> None:
    """Removes the least recently used files until at most `largest` bytes are left.

    JAX does so itself if the package filelock is installed, with a lock around every look-up.
    """
    kept = [(path, path.stat()) for path in folder.rglob("*") if path.is_file()]
    excess = sum(found.st_size for _, found in kept) - largest
    for path, found in sorted(kept, key=lambda each: max(each[1].st_atime, each[1].st_mtime)):
        if excess <= 0:
            return
        path.unlink(missing_ok=True)
        excess -= found.st_size
