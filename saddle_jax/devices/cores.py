"""A device for every core: on a CPU an agent then has a core of its own, which is faster than sharing all."""

import os

import jax


def use_every_core() -> None:
    """Tells JAX, before it is used, to show cores as devices, unless somebody told it a number."""
    told = os.environ.get("JAX_NUM_CPU_DEVICES")
    if told is None and "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        jax.config.update("jax_num_cpu_devices", _usable())
        os.environ["JAX_NUM_CPU_DEVICES"] = str(_usable())  # for processes that this one starts


def _usable() -> int:
    """Those that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1
