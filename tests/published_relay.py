"""RelaySGD and CGA, transcribed in plain NumPy float64: loops over agents, nothing of the package.

    relay_sgd   Vogels et al. 2021, Algorithm 1        cga   Esfandiari et al. 2021, with the authors' program

The arguments are those of `printed_algorithms`. `heard(t, i, j)` tells whether what j
sends reaches i in step t.
"""
# ruff: noqa: N803, N806 (the papers' names)

import numpy as np
import scipy.optimize
from printed_algorithms import add, compress, copy, descent_gradient, neighbours, subtract, times, zeros_like
from published_compressed import directions, gradients


def relay_sgd(
    x0, edges, gradient, T, eta, *, rho=0.0, beta=0.0, nesterov=False, weight_decay=0.0,
    missing="own", heard=lambda t, i, j: True,
):  # fmt: skip
    """RelaySGD on the tree whose undirected edges are given as pairs."""
    n, x = len(x0), copy(x0)
    N = [[b if a == i else a for a, b in edges if i in (a, b)] for i in range(n)]
    momentum = [zeros_like(x[i]) for i in range(n)]
    m = {(i, j): zeros_like(x[i]) for i in range(n) for j in N[i]}  # from i to j
    count = dict.fromkeys(m, 0)
    history = []
    for t in range(T):
        d = directions(gradients(x, gradient, t, rho, weight_decay), momentum, beta, nesterov)
        h = [subtract(x[i], times(eta(t), d[i])) for i in range(n)]
        m_new, count_new = {}, {}
        for i, j in m:
            m_new[i, j], count_new[i, j] = h[i], 1
            for k in N[i]:
                if k != j:
                    m_new[i, j] = add(m_new[i, j], m[k, i])
                    count_new[i, j] += count[k, i]
        for i, j in m:
            if not heard(t, j, i):
                m_new[i, j], count_new[i, j] = zeros_like(h[i]), 0
        m, count = m_new, count_new
        new = []
        for i in range(n):
            total, c = h[i], 1
            for j in N[i]:
                total, c = add(total, m[j, i]), c + count[j, i]
            if missing == "counts":
                new.append(times(1 / c, total))
            else:
                stand_in = {"own": h[i], "last": x[i], "first": x0[i]}[missing]
                new.append(times(1 / n, add(total, times(n - c, stand_in))))
        x = new
        history.append(copy(x))
    return history


def distances(n, edges):
    """Returns the number of edges between any two agents [n, n]."""
    dist = np.where(np.eye(n, dtype=bool), 0, n)
    for _ in range(n):
        for a, b in edges:
            dist[a] = np.minimum(dist[a], dist[b] + 1)
            dist[b] = np.minimum(dist[b], dist[a] + 1)
    return dist


def program(M, g, margin):
    """Returns v >= margin that minimises 1/2 v'(MM' + 1e-12 I)v + (Mg)'v.

    With u = v - margin >= 0 that is the least-squares problem |M'(u + margin) + g|^2 + |1e-6 (u + margin)|^2.
    """
    A = np.vstack([M.T, 1e-6 * np.eye(len(M))])
    target = -np.concatenate([g, np.zeros(len(M))]) - A @ np.full(len(M), margin)
    return margin + scipy.optimize.nnls(A, target)[0]


def cga(
    x0, W, gradient, T, eta, *, rho=0.0, beta=0.9, nesterov=True, weight_decay=0.0, Q=None, gamma=1.0,
    margin=0.5, self_gradient="current",
):  # fmt: skip
    n, x = len(x0), copy(x0)
    m = [zeros_like(x[i]) for i in range(n)]
    e = {(i, j): zeros_like(x[i]) for i in range(n) for j in neighbours(W, i)}
    history = []
    for t in range(T):
        mixed = []
        for i in range(n):
            mixed.append(x[i])
            for j in neighbours(W, i):
                mixed[i] = add(mixed[i], times(gamma * W[i, j], subtract(x[j], x[i])))
        g_agg = []
        for i in range(n):
            own = mixed[i] if self_gradient == "mixed" else x[i]
            g = {}
            for j in neighbours(W, i):
                point = own if j == i else x[i]
                g[j] = descent_gradient(gradient, j, point, t, rho, {}, 0, 1, False)
                if Q is not None:
                    p = add(g[j], e[i, j])
                    g[j] = compress(Q, p)
                    e[i, j] = subtract(p, g[j])
            others = [j for j in neighbours(W, i) if j != i]
            tensors = []
            for k in range(len(x[i])):
                M = np.array([W[i, j] * g[j][k].reshape(-1) for j in others]).reshape(len(others), -1)
                own_row = W[i, i] * g[i][k].reshape(-1)
                if others:
                    own_row = own_row + M.T @ program(M, own_row, margin)
                tensors.append(own_row.reshape(x[i][k].shape))
            g_agg.append(add(tensors, times(weight_decay, own)))
        d = directions(g_agg, m, beta, nesterov)
        x = [subtract(mixed[i], times(eta(t), d[i])) for i in range(n)]
        history.append(copy(x))
    return history
