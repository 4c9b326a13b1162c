"""One device per core: on a CPU each agent then has a core to itself, which is faster than sharing all."""

import os

import jax

from saddle_jax.base.checks import ArgumentError


def use_every_core(at_least: int = 1) -> None:
    """Makes every core a device of JAX, unless the environment sets a number. Call it before JAX is used.

    Where there are fewer cores than `at_least`, devices share them.
    """
    number = os.environ.get("JAX_NUM_CPU_DEVICES")
    if number is not None and not int(number) >= 1:  # JAX has seen already that it is a whole number
        raise ArgumentError(f"JAX_NUM_CPU_DEVICES in the environment must be at least 1, got {number}")
    if number is None and "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        devices = max(_usable(), at_least)
        jax.config.update("jax_num_cpu_devices", devices)
        os.environ["JAX_NUM_CPU_DEVICES"] = str(devices)  # for processes that this one starts


def _usable() -> int:
    """Returns the number of cores that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1
