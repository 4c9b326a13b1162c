"""Devices that programs can be compiled for, whether they are there or not: "a40x4", "v5e:2x2", "here".

XLA compiles for a described device. Of a GPU the description is a text, of which the table below has the
numbers; of TPUs libtpu knows them all. Nothing runs on such devices: a program for them can be read, and it
says how much memory it takes.

The numbers of a100 and h100 are those of XLA's own descriptions (a100_sxm_80.txtpb, h100_sxm.txtpb), with
the memory that NVIDIA states; those of a40, l4 and the TPUs are what their makers publish of them. None was
read from such a device. Memory of v5e was compared with cloud.google.com/tpu/docs/v5e (16 GB); memory,
bandwidth, cores, clock and cache of a40 with tables of others, since no page of NVIDIA's was found. The rest
was not compared again.
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
    """What XLA is told of a GPU; a core is what NVIDIA calls a streaming multiprocessor."""

    name: str
    capability: tuple[int, int]
    memory: int  # bytes
    bandwidth: int  # bytes per second
    cores: int
    units: int  # that add and multiply float32, of each core
    clock: float  # GHz
    cache: int  # bytes of the second level
    shared: int  # bytes of each core
    threads: int  # of each core


GPUS = {
    "a40": Gpu("NVIDIA A40", (8, 6), 48 * 10**9, 696 * 10**9, 84, 128, 1.74, 6 << 20, 100 << 10, 1536),
    "a100": Gpu(
        "NVIDIA A100 80 GB", (8, 0), 80 * 10**9, 2039 * 10**9, 108, 64, 1.41, 40 << 20, 164 << 10, 2048
    ),
    "h100": Gpu(
        "NVIDIA H100 80 GB", (9, 0), 80 * 10**9, 3352 * 10**9, 132, 128, 1.98, 50 << 20, 228 << 10, 2048
    ),
    "l4": Gpu("NVIDIA L4", (8, 9), 24 * 10**9, 300 * 10**9, 58, 128, 2.04, 48 << 20, 100 << 10, 1536),
}
# Bytes of one chip. The rest of a TPU's name says how chips are joined, as 2x2 does.
TPUS = {"v5e": 16 << 30, "v5p": 95 << 30, "v6e": 32 << 30}
_NO_TPU = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",  # of the machine, which is none: the target has its own
    "TPU_WORKER_HOSTNAMES": "localhost",
}
# JAX takes this share of a GPU's memory when it starts, unless XLA_PYTHON_CLIENT_MEM_FRACTION says otherwise.
_GPU_SHARE = 0.75

_TEXT = """gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
  shared_memory_per_core: {shared} shared_memory_per_block_optin: {optin} threads_per_core_limit: {threads}
  core_count: {cores} fpus_per_core: {units} clock_rate_ghz: {clock} l2_cache_size: {cache}
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
  memory_bandwidth: {bandwidth} device_memory_size: {memory}
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  dnn_version: "9.10.0" runtime_version: "12.8.0" driver_version: "12.8.0"
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
runtime_version {{ major: 12 minor: 8 patch: 0 }}
device_description_str: "{name}"
"""


class Target(NamedTuple):
    """Devices that a program can be compiled for.

    Attributes:
      text: as it was asked for.
      kind: of hardware.
      description: for people.
      devices: JAX's devices, such as programs are only compiled for; None stands for those of this machine.
      memory: bytes of each that a program may use; None where the machine is to be asked.
    """

    text: str
    kind: Kind
    description: str
    devices: tuple[Any, ...] | None
    memory: int | None


def target_of(text: str) -> Target:
    """Returns the devices that a text names; a RunError tells what must be installed for them."""
    if text == HERE:
        kind = jax.devices()[0].platform
        described = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
        return Target(text, "gpu" if kind in ("cuda", "rocm") else kind, described, None, None)
    name, grid = _parts(text)
    from jax.experimental import topologies  # nothing else needs it

    if name in TPUS:
        _require("libtpu", "plan-tpu", text)
        # There is no machine to ask about; without these libtpu asks, and prints that nobody answers.
        for variable, value in _NO_TPU.items():
            os.environ.setdefault(variable, value)
        devices = topologies.get_topology_desc(text, "tpu").devices
        return Target(text, "tpu", f"{len(devices)} x TPU {name}", tuple(devices), TPUS[name])
    _require("jax_cuda12_plugin", "plan-cuda", text)
    gpu = GPUS[name]
    found = topologies.get_topology_desc(
        "", "cuda", target_config=described_gpu(gpu), topology=f"1x1x{int(grid)}"
    )
    share = float(os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION", _GPU_SHARE))
    return Target(text, "gpu", f"{grid} x {gpu.name}", tuple(found.devices), int(share * gpu.memory))


def described_gpu(gpu: Gpu) -> str:
    """Writes a GPU as the text, a GpuTargetConfigProto, that XLA compiles for."""
    major, minor = gpu.capability
    fields = gpu._asdict() | {"major": major, "minor": minor, "optin": gpu.shared - 1024}
    return _TEXT.format(**fields)


def check(text: str) -> str:
    """Checks the name of a target, whatever is installed; returns which kind of hardware it is."""
    return HERE if text == HERE else "tpu" if _parts(text)[0] in TPUS else "gpu"


def _parts(text: str) -> tuple[str, str]:
    """Returns name and number of GPUs, "1" where none is given, or name and grid of TPUs."""
    name, _, grid = text.partition(":")
    if name in TPUS and re.fullmatch(r"[1-9]\d*(x[1-9]\d*){1,2}", grid):
        return name, grid
    matched = re.fullmatch(r"(.*?)(?:x([1-9]\d*))?", text)
    assert matched is not None  # its first half takes anything
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
