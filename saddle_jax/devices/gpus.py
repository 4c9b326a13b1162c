"""Finds out whether this machine has an NVIDIA GPU. Standard library only: bin/environment.py loads it."""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

_DRIVER = pathlib.Path("/proc/driver/nvidia/gpus")
_DEVICE = pathlib.Path("/dev/nvidia0")
_HIDDEN = ("", "-1", "NoDevFiles")  # values of CUDA_VISIBLE_DEVICES that hide all GPUs


def is_seen() -> bool:
    """Returns whether the driver or nvidia-smi shows a GPU. JAX can use one on Linux only."""
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


def remedy() -> str:
    """Returns what would make JAX use a GPU that is here and that it does not use."""
    if importlib.util.find_spec("jax_cuda12_plugin"):
        return "python -c 'import jax; jax.devices(\"cuda\")' tells what JAX for CUDA lacks"
    return "SADDLE_EXTRAS=cuda bin/saddle version installs JAX for it, or pip install 'saddle_jax[cuda]'"


def is_hidden() -> bool:
    """Returns whether the environment tells JAX not to use the GPUs."""
    return bool(os.environ.get("JAX_PLATFORMS")) or os.environ.get("CUDA_VISIBLE_DEVICES") in _HIDDEN
