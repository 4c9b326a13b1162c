"""The eigenvalues of a mixing matrix that decide how fast, and whether, gossip on it settles.

Small matrices are solved whole; of large sparse ones, only the eigenvalues that are asked for.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

# Up to this many agents all eigenvalues are computed; beyond, those that matter.
_DENSE_EIGENVALUES = 1_000
# Restarts of the plain iteration: enough where the eigenvalues lie apart, as on expanders.
_RESTARTS = 60


def second_modulus(matrix: Any, symmetric: bool) -> float:
    """Returns the second largest modulus of the eigenvalues of a stochastic matrix, whose largest is one."""
    if matrix.shape[0] <= _DENSE_EIGENVALUES:
        eigenvalues = (np.linalg.eigvalsh if symmetric else np.linalg.eigvals)(matrix.toarray())
        return float(np.sort(np.abs(eigenvalues))[-2])
    if not symmetric:
        eigenvalues = sparse.linalg.eigs(matrix, k=2, which="LM", return_eigenvectors=False)
        return float(np.sort(np.abs(eigenvalues))[-2])
    second = _second_largest(matrix)
    return second if -_least_possible(matrix) <= second else max(second, -_smallest(matrix))


def smallest_eigenvalue(matrix: Any) -> float:
    """Returns the smallest eigenvalue of a symmetric stochastic matrix, at least -1."""
    if matrix.shape[0] <= _DENSE_EIGENVALUES:
        return float(np.linalg.eigvalsh(matrix.toarray())[0])
    return _smallest(matrix)


def second_of_product(matrices: Sequence[Any], average: bool) -> float:
    """Returns how much of a disagreement is left, at most, after gossip with one matrix after the other.

    Where they keep the average this is the second singular value of their product, and otherwise the
    second largest modulus of its eigenvalues, which holds in the long run.
    """
    count = matrices[0].shape[0]
    if count <= _DENSE_EIGENVALUES:
        product = functools.reduce(lambda before, matrix: matrix @ before, matrices, np.eye(count))
        moduli = np.linalg.svd(product, compute_uv=False) if average else np.abs(np.linalg.eigvals(product))
        second = float(np.sort(moduli)[-2])
        return 0.0 if second < count * np.finfo(float).eps else second  # rounding: an exact average

    def forwards(x: np.ndarray) -> np.ndarray:
        return functools.reduce(lambda x, matrix: matrix @ x, matrices, x)

    def backwards(x: np.ndarray) -> np.ndarray:
        return functools.reduce(lambda x, matrix: matrix.T @ x, reversed(matrices), x)

    if not average:
        operator = sparse.linalg.LinearOperator((count, count), matvec=forwards, dtype=float)
        return float(np.sort(np.abs(sparse.linalg.eigs(operator, k=2, return_eigenvectors=False)))[0])
    start = np.random.RandomState(0).normal(size=count)
    if np.abs(forwards(start - start.mean())).max() < count * np.finfo(float).eps:
        return 0.0
    operator = sparse.linalg.LinearOperator(
        (count, count),
        matvec=lambda x: forwards(x - x.mean()),
        rmatvec=lambda x: backwards(x) - x.mean(),
        dtype=float,
    )
    return float(sparse.linalg.svds(operator, k=1, v0=start, return_singular_vectors=False)[0])


def _second_largest(matrix: Any) -> float:
    return float(np.sort(_at_the_end(matrix, 2, "LA", 1.0 + 1e-6))[0])


def _smallest(matrix: Any) -> float:
    return float(_at_the_end(matrix, 1, "SA", _least_possible(matrix) - 1e-6)[0])


def _least_possible(matrix: Any) -> float:
    """Returns Gershgorin's bound on all eigenvalues: 2 w_ii - 1 for the smallest weight for oneself."""
    return float(2 * matrix.diagonal().min() - 1)


def _at_the_end(matrix: Any, count: int, which: str, beyond: float) -> np.ndarray:
    """Returns some eigenvalues at one end of a symmetric matrix's spectrum; `beyond` lies outside of it."""
    options = {"k": count, "return_eigenvectors": False}
    try:
        values: np.ndarray = sparse.linalg.eigsh(
            matrix, which=which, ncv=40, maxiter=_RESTARTS, tol=1e-9, **options
        )
    except sparse.linalg.ArpackNoConvergence:
        # At the ends the eigenvalues of rings and tori crowd: shift and invert there. Graphs on which this
        # fills the memory, those without small cuts, have their eigenvalues apart.
        values = sparse.linalg.eigsh(sparse.csc_array(matrix), sigma=beyond, which="LM", **options)
    return values
