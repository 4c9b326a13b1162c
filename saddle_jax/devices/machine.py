"""This machine: whether it has an NVIDIA GPU, its cores as JAX devices, and its memory allocator.

bin/environment.py loads this file by its path, before anything is installed: standard library only.
"""

import ctypes
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

_DRIVER = pathlib.Path("/proc/driver/nvidia/gpus")
_DEVICE = pathlib.Path("/dev/nvidia0")
_HIDDEN = ("", "-1", "NoDevFiles")  # values of CUDA_VISIBLE_DEVICES that hide all GPUs


def has_gpu() -> bool:
    """Returns whether the driver or nvidia-smi reports a GPU. JAX can use one on Linux only."""
    if sys.platform != "linux":
        return False
    if _DEVICE.exists() or (_DRIVER.is_dir() and any(_DRIVER.iterdir())):
        return True
    program = shutil.which("nvidia-smi")
    if program is None:
        return False
    try:
        listing = subprocess.run([program, "-L"], capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):  # a driver that hangs cannot be used
        return False
    return any(line.startswith("GPU ") for line in listing.stdout.splitlines())


def gpu_remedy() -> str:
    """Returns advice on how to make JAX use the GPU of this machine."""
    if importlib.util.find_spec("jax_cuda12_plugin"):
        return "python -c 'import jax; jax.devices(\"cuda\")' tells what JAX for CUDA lacks"
    return "SADDLE_EXTRAS=cuda bin/saddle --version installs JAX for it, or pip install 'saddle_jax[cuda]'"


def hides_gpus() -> bool:
    """Returns whether environment variables hide the GPUs from JAX."""
    return bool(os.environ.get("JAX_PLATFORMS")) or os.environ.get("CUDA_VISIBLE_DEVICES") in _HIDDEN


def use_every_core(at_least: int = 1) -> None:
    """Makes every core a JAX device, unless the environment sets a number. Call it before JAX is used.

    One agent per core is faster than all cores for one agent after the other. With fewer cores than
    `at_least`, devices share them.
    """
    import jax

    from saddle_jax.base.checks import ArgumentError

    number = os.environ.get("JAX_NUM_CPU_DEVICES")
    if number is not None and not int(number) >= 1:  # JAX has checked that it is an integer
        raise ArgumentError(f"JAX_NUM_CPU_DEVICES in the environment must be at least 1, got {number}")
    if number is None and "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        devices = max(_usable(), at_least)
        jax.config.update("jax_num_cpu_devices", devices)
        os.environ["JAX_NUM_CPU_DEVICES"] = str(devices)  # for child processes


def _usable() -> int:
    """Returns the number of cores that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


# Options of mallopt, from glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_NEVER = -1
_AHEAD = 64 * 2**20


def keep_freed_memory() -> bool:
    """Makes glibc reuse freed memory in the next step; returns whether there is a glibc. Call it first.

    XLA:CPU allocates a program's temporary buffers at every call. glibc maps blocks of that size and unmaps
    them when they are freed, so every page is faulted in and zeroed again: a third of a step's time.
    There is one arena, because only the main one does not use mappings. The process's memory then stays
    at the peak of its largest step.
    """
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    settings = {_ARENA_MAX: 1, _MMAP_MAX: 0, _TRIM_THRESHOLD: _NEVER, _TOP_PAD: _AHEAD}
    return all(mallopt(option, value) == 1 for option, value in settings.items())
