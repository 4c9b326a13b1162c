"""JAX is strict here: four host devices, no implicit rank promotion (warnings are errors by pyproject)."""

import gc
import os

import jax
import pytest

# Also where a GPU is: the tests count on devices of the host, and so do the commands that they start.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax.config.update("jax_platforms", os.environ["JAX_PLATFORMS"])

jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_numpy_rank_promotion", "raise")


# A worker holds thousands of compiled programs: Python would walk through all of them again and again.
gc.set_threshold(100_000, 50, 100)


@pytest.fixture
def x64():
    """Float64, for comparisons to 1e-10."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def unrendered(monkeypatch):
    """Writes pictures without rendering them, which takes a second each, where others look at pictures."""
    from matplotlib.figure import Figure

    monkeypatch.setattr(Figure, "savefig", lambda self, path, **options: open(path, "wb").close())


@pytest.fixture
def nvidia_smi(tmp_path_factory, monkeypatch):
    """Puts a program of that name, which prints a line, before all others."""
    folder = tmp_path_factory.mktemp("path")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def put(line):
        (folder / "nvidia-smi").write_text(f"#!/bin/sh\necho '{line}'\n")
        (folder / "nvidia-smi").chmod(0o755)

    return put
