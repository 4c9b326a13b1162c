"""What the eigenvalues of W allow: the checks of methods that some graphs make diverge."""

import jax
import numpy as np

from saddle_jax.core.mixing import Graphs


def smallest_eigenvalue(topology: Graphs) -> float | None:
    """Returns the smallest eigenvalue of W; None if W varies or is not symmetric: no theory then."""
    if topology.period > 1 or not topology.graphs[0].is_symmetric:
        return None
    return float(np.linalg.eigvalsh(topology.graphs[0].mixing)[0])


def are_known(*values: object) -> bool:
    """Returns whether these hyper-parameters are numbers: a traced one, which is swept, cannot be checked."""
    return not any(isinstance(value, jax.core.Tracer) for value in values)
