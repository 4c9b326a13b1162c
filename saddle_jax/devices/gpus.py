"""Whether this machine has an NVIDIA GPU. Only the standard library: bin/environment.py reads it too."""

import os
import pathlib
import shutil
import subprocess
import sys

_DRIVER = pathlib.Path("/proc/driver/nvidia/gpus")
_DEVICE = pathlib.Path("/dev/nvidia0")
_HIDDEN = ("", "-1", "NoDevFiles")  # values of CUDA_VISIBLE_DEVICES that leave none


def is_seen() -> bool:
    """Whether the driver or nvidia-smi shows a GPU; only on Linux, where JAX can use one."""
    if sys.platform != "linux":
        return False
    if _DEVICE.exists() or (_DRIVER.is_dir() and any(_DRIVER.iterdir())):
        return True
    program = shutil.which("nvidia-smi")
    if program is None:
        return False
    try:
        done = subprocess.run([program, "-L"], capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):  # a driver that hangs is of no use
        return False
    return any(line.startswith("GPU ") for line in done.stdout.splitlines())


def is_hidden() -> bool:
    """Whether somebody told JAX to leave the GPUs alone."""
    return bool(os.environ.get("JAX_PLATFORMS")) or os.environ.get("CUDA_VISIBLE_DEVICES") in _HIDDEN
