"""The costs of networks as one tensor each, where the number of tensors does not matter."""

import jax
import numpy as np
import pytest

from saddle_jax.papers.saddle import costs

shapes_of = costs.shapes_of


def one_tensor(dataset):
    """The models of a dataset as one tensor each, of as many parameters."""
    sizes = sum(leaf.size for leaf in jax.tree.leaves(shapes_of(dataset)))
    return jax.ShapeDtypeStruct((5, sizes // 5), np.float32)


@pytest.fixture
def of_one_tensor(monkeypatch):
    """One message per model in place of hundreds, which take seconds to trace."""
    costs._cost_of_five.cache_clear()
    monkeypatch.setattr(costs, "shapes_of", one_tensor)
    yield
    costs._cost_of_five.cache_clear()
