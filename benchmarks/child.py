"""Compile time and peak memory, each measured in a new process.

In that process nothing has been compiled or allocated, and JAX's compilation cache is off.
"""

import dataclasses
import functools
import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

from benchmarks.measure import Row, spread
from benchmarks.steps import works
from benchmarks.work import NO_PYTORCH, Job, Options, Work, pytorch

_STEP_CASES = ("q_saddle", "n_saddle", "forty", "many")


def compile_jobs(case: str, options: Options) -> list[Job]:
    """Lists the jobs that time tracing, lowering and compiling our steps."""
    return [Job(case, str(work), functools.partial(_compile, case, work)) for work in _works(options)]


def memory_jobs(case: str, options: Options) -> list[Job]:
    """Lists the jobs that measure peak memory over two steps, of ours and of PyTorch's plain loop."""
    return [Job(case, str(work), functools.partial(_memory, case, work)) for work in _works(options)]


def _works(options: Options) -> list[Work]:
    cases = ("n_saddle",) if options.quick else _STEP_CASES
    return options.applied([work for case in cases for work in works(case, options.quick)])


def _compile(case: str, work: Work) -> Row:
    ours = measure("ours", work)
    figures = {"steps that take as long": ours["compile_seconds"] / ours["step_seconds"]}
    return Row(case, str(work), spread([ours["compile_seconds"]]), figures=figures)


def _memory(case: str, work: Work) -> Row:
    ours = measure("ours", work)
    figures = {
        "peak MB": ours["peak_bytes"] / 1e6,
        "before the first step MB": ours["start_bytes"] / 1e6,
        **{f"program's {part} MB": size / 1e6 for part, size in ours["program"].items()},
    }
    if pytorch("steps") is None:
        return Row(case, str(work), figures=figures)
    theirs = measure("PyTorch", work)
    figures["PyTorch peak MB"] = theirs["peak_bytes"] / 1e6
    figures["PyTorch before MB"] = theirs["start_bytes"] / 1e6
    ratio = spread([theirs["peak_bytes"] / ours["peak_bytes"]])
    return Row(case, str(work), against="PyTorch: loop", ratio=ratio, figures=figures)


@functools.cache
def measure(side: str, work: Work) -> dict[str, Any]:
    """Runs `_report` in a new process for one side, and returns its measurements."""
    module = ["-P", "-m", "benchmarks.child"]  # -P: no imports from the current folder
    command = [sys.executable, *module, side, json.dumps(dataclasses.asdict(work))]
    environment = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{side}, {work}: the process that measures it failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def _report(side: str, work: Work) -> dict[str, Any]:
    """Takes two steps in this process and returns seconds and bytes."""
    import jax

    work.params()  # both sides start from these models
    start = peak_bytes()
    report: dict[str, Any] = {"start_bytes": start}
    if side == "ours":
        from benchmarks.work import OurStep

        ours = OurStep(work)
        report |= {"compile_seconds": ours.compile_seconds, "program": ours.memory}
        report["compiled_bytes"] = peak_bytes()
        step: Any = ours
    else:
        opponent = pytorch("steps")
        if opponent is None:
            raise RuntimeError(NO_PYTORCH)
        step = opponent.PyTorchStep(work, opponent.VARIANTS[0])
    jax.block_until_ready(step())
    started = time.perf_counter()
    jax.block_until_ready(step())
    return {**report, "step_seconds": time.perf_counter() - started, "peak_bytes": peak_bytes()}


def peak_bytes() -> int:
    """Returns the peak memory of this process.

    On Linux it does not use getrusage, where a process inherits the peak of its parent.
    """
    return _memory_of_process("VmHWM")


def resident_bytes() -> int:
    """Returns the current memory of this process, or its peak if the system reports nothing else."""
    return _memory_of_process("VmRSS")


def _memory_of_process(entry: str) -> int:
    try:
        lines = pathlib.Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(entry))
    except (OSError, StopIteration):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak


def _main(side: str, text: str) -> None:
    fields = json.loads(text)
    fields["image_shape"] = tuple(fields["image_shape"])
    print(json.dumps(_report(side, Work(**fields))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
