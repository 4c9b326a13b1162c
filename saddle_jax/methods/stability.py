"""The eigenvalues of W and the hyperparameters for checks of stability."""

from saddle_jax.base.checks import is_array
from saddle_jax.core.topology import Graphs


def smallest_eigenvalue(topology: Graphs) -> float | None:
    """Returns the smallest eigenvalue of W; None if W varies or is not symmetric: there is no theory."""
    if topology.period > 1 or not topology.graphs[0].is_symmetric:
        return None
    return float(topology.graphs[0].smallest_eigenvalue)


def are_known(*values: object) -> bool:
    """Returns whether these hyperparameters are numbers; arrays and schedules cannot be checked."""
    return not any(callable(value) or is_array(value) for value in values)
