"""What the eigenvalues of W allow: the checks of methods that some graphs make diverge."""

from saddle_jax.base.checks import is_array
from saddle_jax.core.mixing import Graphs


def smallest_eigenvalue(topology: Graphs) -> float | None:
    """Returns the smallest eigenvalue of W; None if W varies or is not symmetric: no theory then."""
    if topology.period > 1 or not topology.graphs[0].is_symmetric:
        return None
    return float(topology.graphs[0].smallest_eigenvalue)


def are_known(*values: object) -> bool:
    """Whether these hyperparameters are numbers: an array, such as one of the state, is not checked."""
    return not any(is_array(value) for value in values)
