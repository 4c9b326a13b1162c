"""Published methods with compressed messages, transcribed one by one in plain NumPy float64.

Written from the papers' equations and not from the package: loops over agents, one neighbour at a time.

    deep_squeeze   Tang et al. 2019                dcd, ecd   Tang et al. 2018, Algorithms 1 and 2
    beer           Zhao et al. 2022, Algorithm 1   motef      Islamov et al. 2024
    ada_gossip     Aketi et al. 2024

The arguments are those of `printed_algorithms`: a model is a list of tensors, gradient(i, model, t) that of
agent i in step t, counted from 0; Q is a function of one tensor.
"""
# ruff: noqa: N803, N806 (the papers' names)

import numpy as np
from printed_algorithms import (
    add,
    compress,
    copy,
    descent_gradient,
    neighbours,
    subtract,
    times,
    zeros_like,
)


def pull(W, x, i):
    """Returns sum_j w_ij (x_j - x_i), row i of (W - I) x for rows that sum to one."""
    total = zeros_like(x[i])
    for j in neighbours(W, i):
        total = add(total, times(W[i, j], subtract(x[j], x[i])))
    return total


def gradients(x, gradient, t, rho, weight_decay):
    """Every agent's (SAM) gradient, with weight decay at the unperturbed model."""
    return [
        add(descent_gradient(gradient, i, x[i], t, rho, {}, i, 1, False), times(weight_decay, x[i]))
        for i in range(len(x))
    ]


def directions(g, m, beta, nesterov):
    """d(g): m is updated in place."""
    result = []
    for i in range(len(g)):
        m[i] = add(times(beta, m[i]), g[i])
        result.append(add(g[i], times(beta, m[i])) if nesterov else m[i])
    return result


def deep_squeeze(
    x0, W, gradient, T, eta, *, rho=0.0, beta=0.0, nesterov=False, weight_decay=0.0, Q, gamma=0.9
):
    n, x = len(x0), copy(x0)
    m, e = ([zeros_like(x[i]) for i in range(n)] for _ in range(2))
    history = []
    for t in range(T):
        d = directions(gradients(x, gradient, t, rho, weight_decay), m, beta, nesterov)
        h = [subtract(x[i], times(eta(t), d[i])) for i in range(n)]
        c = []
        for i in range(n):
            v = add(h[i], e[i])
            c.append(compress(Q, v))
            e[i] = subtract(v, c[i])
        x = [add(h[i], times(gamma, pull(W, c, i))) for i in range(n)]
        history.append(copy(x))
    return history


def dcd(x0, W, gradient, T, eta, *, rho=0.0, beta=0.0, nesterov=False, weight_decay=0.0, Q):
    n, x = len(x0), copy(x0)
    m = [zeros_like(x[i]) for i in range(n)]
    history = []
    for t in range(T):
        d = directions(gradients(x, gradient, t, rho, weight_decay), m, beta, nesterov)
        new = []
        for i in range(n):
            z = zeros_like(x[i])
            for j in neighbours(W, i):
                z = add(z, times(W[i, j], x[j]))
            z = subtract(subtract(z, times(eta(t), d[i])), x[i])
            new.append(add(x[i], compress(Q, z)))
        x = new
        history.append(copy(x))
    return history


def ecd(x0, W, gradient, T, eta, *, rho=0.0, beta=0.0, nesterov=False, weight_decay=0.0, Q):
    n, x, y = len(x0), copy(x0), copy(x0)
    m = [zeros_like(x[i]) for i in range(n)]
    history = []
    for step in range(T):
        t = step + 1
        d = directions(gradients(x, gradient, step, rho, weight_decay), m, beta, nesterov)
        new, y_new = [], []
        for i in range(n):
            mixed = zeros_like(x[i])
            for j in neighbours(W, i):
                mixed = add(mixed, times(W[i, j], y[j]))
            new.append(subtract(mixed, times(eta(step), d[i])))
            z = add(times(1 - 0.5 * t, x[i]), times(0.5 * t, new[i]))
            y_new.append(add(times(1 - 2 / t, y[i]), times(2 / t, compress(Q, z))))
        x, y = new, y_new
        history.append(copy(x))
    return history


def motef(x0, W, gradient, T, eta, *, rho=0.0, weight_decay=0.0, Q, gamma=0.1, lam=0.9):
    n, x = len(x0), copy(x0)
    M = V = gradients(x, gradient, 0, rho, weight_decay)
    H, G = ([zeros_like(x[i]) for i in range(n)] for _ in range(2))
    history = []
    for t in range(T):
        if t > 0:
            g = gradients(x, gradient, t, rho, weight_decay)
            M_old, M = M, [add(times(1 - lam, M[i]), times(lam, g[i])) for i in range(n)]
            pulled = [times(gamma, pull(W, G, i)) for i in range(n)]
            V = [add(add(V[i], pulled[i]), subtract(M[i], M_old[i])) for i in range(n)]
            G = [add(G[i], compress(Q, subtract(V[i], G[i]))) for i in range(n)]
        x = [subtract(add(x[i], times(gamma, pull(W, H, i))), times(eta(t), V[i])) for i in range(n)]
        H = [add(H[i], compress(Q, subtract(x[i], H[i]))) for i in range(n)]
        history.append(copy(x))
    return history


def beer(x0, W, gradient, T, eta, *, rho=0.0, weight_decay=0.0, Q, gamma=0.1):
    n, x = len(x0), copy(x0)
    g = V = gradients(x, gradient, 0, rho, weight_decay)
    H, G = ([zeros_like(x[i]) for i in range(n)] for _ in range(2))
    history = []
    for t in range(T):
        if t > 0:
            g_old, g = g, gradients(x, gradient, t, rho, weight_decay)
            pulled = [times(gamma, pull(W, G, i)) for i in range(n)]
            V = [add(add(V[i], pulled[i]), subtract(g[i], g_old[i])) for i in range(n)]
            G = [add(G[i], compress(Q, subtract(V[i], G[i]))) for i in range(n)]
        x = [subtract(add(x[i], times(gamma, pull(W, H, i))), times(eta(t), V[i])) for i in range(n)]
        H = [add(H[i], compress(Q, subtract(x[i], H[i]))) for i in range(n)]
        history.append(copy(x))
    return history


def ada_gossip(
    x0, W, gradient, T, eta, *, rho=0.0, beta=0.0, nesterov=False, weight_decay=0.0, Q, gamma=1.0, beta2=0.999
):
    n, x = len(x0), copy(x0)
    m, x_hat, v = ([zeros_like(x[i]) for i in range(n)] for _ in range(3))
    history = []
    for t in range(T):
        d = directions(gradients(x, gradient, t, rho, weight_decay), m, beta, nesterov)
        h = [subtract(x[i], times(eta(t), d[i])) for i in range(n)]
        x_hat = [add(x_hat[i], compress(Q, subtract(h[i], x_hat[i]))) for i in range(n)]
        x = []
        for i in range(n):
            r = pull(W, x_hat, i)
            v[i] = [beta2 * a + (1 - beta2) * b * b for a, b in zip(v[i], r, strict=True)]
            unbiased = [a / (1 - beta2 ** (t + 1)) for a in v[i]]
            rates = [np.minimum(gamma / (np.sqrt(a) + 1e-8), 1.0) for a in unbiased]
            x.append([a + c * b for a, b, c in zip(h[i], r, rates, strict=True)])
        history.append(copy(x))
    return history
