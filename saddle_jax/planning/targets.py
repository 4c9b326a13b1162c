"""Devices to compile for, present or not: "a40x4", "v5e:2x2", "here".

XLA can compile for a described device. A GPU is described by a text with the numbers in the table below;
libtpu has the descriptions of all TPUs. Such programs cannot run here, but they can be analysed, for example
for the memory that they need.

Each description names its sources. XLA's own (openxla/xla, xla/backends/gpu/target_config/specs) were read
from real devices by XLA's authors; none was read from a device here.
"""

import importlib.util
import os
import re
from typing import Any, NamedTuple

import jax

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import RunError
from saddle_jax.devices.policy import Kind

HERE = "here"


class Gpu(NamedTuple):
    """The description of a GPU for XLA; a core is a streaming multiprocessor."""

    name: str
    source: str  # of the numbers
    capability: tuple[int, int]
    memory: int  # bytes
    bandwidth: int  # bytes per second
    cores: int
    units: int  # float32 units of each core
    clock: float  # GHz
    cache: int  # bytes of the L2 cache
    shared: int  # bytes of shared memory of each core
    threads: int  # of each core
    extension: str = "NONE"  # of the compute capability: features of this generation alone


class Tpu(NamedTuple):
    """The memory of a TPU chip; libtpu knows the rest."""

    source: str
    memory: int  # bytes


GPUS = {
    "a40": Gpu(
        name="NVIDIA A40",
        source="NVIDIA's data sheet as dealers quote it (48 GB, 696 GB/s, 10,752 = 84 x 128 units); public "
        "tables of GPUs (1740 MHz); the rest from XLA's a6000.txtpb, which is the same chip",
        capability=(8, 6),
        memory=48 * 10**9,
        bandwidth=696 * 10**9,
        cores=84,
        units=128,
        clock=1.74,
        cache=6 << 20,
        shared=100 << 10,
        threads=1536,
    ),
    "a100": Gpu(
        name="NVIDIA A100 80 GB",
        source="XLA's a100_sxm_80.txtpb",
        capability=(8, 0),
        memory=85_100_068_864,
        bandwidth=2_039_040_000_000,
        cores=108,
        units=64,
        clock=1.41,
        cache=40 << 20,
        shared=164 << 10,
        threads=2048,
    ),
    "h100": Gpu(
        name="NVIDIA H100 80 GB",
        source="XLA's h100_sxm.txtpb",
        capability=(9, 0),
        memory=84_942_979_072,
        bandwidth=3_352_320_000_000,
        cores=132,
        units=128,
        clock=1.98,
        cache=50 << 20,
        shared=228 << 10,
        threads=2048,
        extension="ACCELERATED_FEATURES",
    ),
    "l4": Gpu(
        name="NVIDIA L4",
        source="NVIDIA's data sheet as dealers quote it (24 GB, 300 GB/s, 2.04 GHz, 30.3 TFLOP/s, which 58 x "
        "128 units make); public tables of GPUs (48 MB cache); the rest as of other GPUs from 8.6 on",
        capability=(8, 9),
        memory=24 * 10**9,
        bandwidth=300 * 10**9,
        cores=58,
        units=128,
        clock=2.04,
        cache=48 << 20,
        shared=100 << 10,
        threads=1536,
    ),
}
# The rest of a TPU's name is the topology of its chips, such as 2x2.
TPUS = {
    "v5e": Tpu("cloud.google.com/tpu/docs/v5e: 16 GB of HBM2", 16 << 30),
    "v5p": Tpu("cloud.google.com/tpu/docs/v5p: 95 GB of HBM2e", 95 << 30),
    "v6e": Tpu("cloud.google.com/tpu/docs/v6e: 32 GB of HBM", 32 << 30),
}
_NO_TPU = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",  # a placeholder: the target has its own
    "TPU_WORKER_HOSTNAMES": "localhost",
}
# JAX preallocates this share of a GPU's memory, unless one of these variables is set.
_GPU_SHARE = "0.75"
_GPU_SHARES = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")

_TEXT = """gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
  shared_memory_per_core: {shared} shared_memory_per_block_optin: {optin} threads_per_core_limit: {threads}
  core_count: {cores} fpus_per_core: {units} clock_rate_ghz: {clock} l2_cache_size: {cache}
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
  memory_bandwidth: {bandwidth} device_memory_size: {memory}
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  cuda_compute_capability {{ major: {major} minor: {minor} feature_extension: {extension} }}
  dnn_version: "9.10.0" runtime_version: "12.8.0" driver_version: "12.8.0"
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
runtime_version {{ major: 12 minor: 8 patch: 0 }}
device_description_str: "{name}"
"""


class Target(NamedTuple):
    """Devices to compile a program for.

    Attributes:
      text: the name that the user gave.
      kind: the kind of hardware.
      description: a description for people.
      devices: JAX's devices of a described topology; None stands for those of this machine.
      memory: bytes that a program may use on each; None: ask the machine.
    """

    text: str
    kind: Kind
    description: str
    devices: tuple[Any, ...] | None
    memory: int | None


def target_of(text: str) -> Target:
    """Returns the target that a text names; a RunError says what must be installed for it."""
    if text == HERE:
        kind = jax.devices()[0].platform
        described = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
        return Target(text, "gpu" if kind in ("cuda", "rocm") else kind, described, None, None)
    name, grid = _parts(text)
    from jax.experimental import topologies  # imported here alone

    if name in TPUS:
        _require("libtpu", "plan-tpu", text)
        # Without these variables libtpu queries a metadata server, and prints that there is none.
        for variable, value in _NO_TPU.items():
            os.environ.setdefault(variable, value)
        devices = topologies.get_topology_desc(text, "tpu").devices
        return Target(text, "tpu", f"{len(devices)} x TPU {name}", tuple(devices), TPUS[name].memory)
    _require("jax_cuda12_plugin", "plan-cuda", text)
    gpu = GPUS[name]
    found = topologies.get_topology_desc(
        "", "cuda", target_config=described_gpu(gpu), topology=f"1x1x{int(grid)}"
    )
    return Target(text, "gpu", f"{grid} x {gpu.name}", tuple(found.devices), int(_share() * gpu.memory))


def _share() -> float:
    """Returns the share of a GPU's memory that JAX preallocates."""
    name = next((name for name in _GPU_SHARES if os.environ.get(name)), "")
    text = os.environ.get(name, _GPU_SHARE)
    try:
        return float(text)
    except ValueError:
        raise ArgumentError(f"{name} must be a number, got {text!r}") from None


def described_gpu(gpu: Gpu) -> str:
    """Formats a GPU as the GpuTargetConfigProto text that XLA compiles for."""
    major, minor = gpu.capability
    fields = gpu._asdict() | {"major": major, "minor": minor, "optin": gpu.shared - 1024}
    return _TEXT.format(**fields)


def check(text: str) -> str:
    """Checks the name of a target, without importing its compiler, and returns the kind of hardware."""
    return HERE if text == HERE else "tpu" if _parts(text)[0] in TPUS else "gpu"


def _parts(text: str) -> tuple[str, str]:
    """Returns the name and number of GPUs, by default "1", or the name and topology of TPUs."""
    name, _, grid = text.partition(":")
    if name in TPUS and re.fullmatch(r"[1-9]\d*(x[1-9]\d*){1,2}", grid):
        return name, grid
    matched = re.fullmatch(r"(.*?)(?:x([1-9]\d*))?", text)
    assert matched is not None  # the first alternative matches anything
    if matched[1] in GPUS:
        return matched[1], matched[2] or "1"
    gpus = ", ".join(GPUS)
    raise ArgumentError(
        f"target must be {HERE}, one of {gpus} with a number such as a40x4, or one of {', '.join(TPUS)} "
        f"with a grid such as v5e:2x2, got {text!r}"
    )


def _require(module: str, extra: str, text: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise RunError(f"{module} is not installed: target {text} needs pip install 'saddle_jax[{extra}]'")
