"""A device for every core: on a CPU an agent then has a core of its own, which is faster than sharing all."""

import os


def use_every_core() -> None:
    """Tells JAX, before it is imported, to show cores as devices, unless somebody told it a number."""
    if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        os.environ.setdefault("JAX_NUM_CPU_DEVICES", str(_usable()))


def _usable() -> int:
    """Those that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1
