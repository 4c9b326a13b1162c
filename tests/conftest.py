"""JAX is strict here: four host devices, no implicit rank promotion (warnings are errors by pyproject)."""

import jax
import pytest

jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def x64():
    """Float64, for comparisons to 1e-10."""
    with jax.enable_x64(True):
        yield
