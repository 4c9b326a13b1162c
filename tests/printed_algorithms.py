"""The algorithms printed in the SADDLe paper, transcribed one by one in plain NumPy float64.

Written from the paper's pseudocode and not from the package: this is the second, independent route
against which the vectorised JAX code is tested. It imports nothing of the package, loops over agents
and neighbours one at a time, and keeps the paper's names. Comments name the printed line: "1:8" is
line 8 of Algorithm 1.

    Algorithm 1  QGM / Q-SADDLe               qgm(Q=None)
    Algorithm 2  Comp QGM / Comp Q-SADDLe     qgm(Q=..., order="paper")
    Algorithm 3  NGM / N-SADDLe               ngm(Q=None)
    Algorithm 4  Comp NGM / Comp N-SADDLe     ngm(Q=...)
    Algorithm 5  DPSGD / D-SADDLe             dpsgd(Q=None)

A model is a list of arrays (its tensors) and x is a list over agents of models. gradient(i, model, t)
is grad F_i(model; d_i^t) as NumPy float64 arrays: the loss of agent i on its own batch of step t, with
t counted from 0. W is [n, n] with symmetric support, eta(t) the step size, Q a function of one tensor
(None: no compression). rho = 0 is the plain method and rho > 0 the SADDLe one. Every function returns
the list of x after each step, of length T.

Not in the print: weight decay (taken at the unperturbed x_i^t, added before the momentum), Nesterov
momentum, momentum and compression for DPSGD, gamma in the exact gossip, order="choco", ascent_every,
self_gradient="mixed" (which also moves the weight decay of ngm to the mixed model).
"""
# ruff: noqa: N803, N806 (W, T, Q and I_ij are the paper's names)

import numpy as np

# ---- arithmetic on models (lists of tensors) ----


def add(u, v):
    return [a + b for a, b in zip(u, v, strict=True)]


def subtract(u, v):
    return [a - b for a, b in zip(u, v, strict=True)]


def times(c, u):
    return [c * a for a in u]


def zeros_like(u):
    return [np.zeros_like(a) for a in u]


def copy(x):
    return [[np.array(a, dtype=np.float64) for a in model] for model in x]


def norm(u):
    """Returns one l2 norm over all tensors of a model."""
    return np.sqrt(sum(np.sum(a * a) for a in u))


def compress(Q, u):
    """Applies Q to every tensor of a model separately."""
    return [Q(a) for a in u]


def neighbours(W, i):
    """Lists the neighbours N(i), including i itself."""
    return [j for j in range(len(W)) if W[i, j] > 0 or j == i]


# ---- compression operators, each a function of one tensor ----


def identity(v):
    return v.copy()


def sign(v):
    """mean|v| times the sign of v, where zero counts as positive."""
    return np.mean(np.abs(v)) * np.where(v >= 0, 1.0, -1.0)


def top_k(fraction):
    """Keep exactly k = max(1, floor(fraction * size)) largest magnitudes; ties to the lowest flat index."""

    def keep(v):
        flat = v.reshape(-1)
        k = max(1, int(np.floor(fraction * flat.size)))
        by_magnitude = sorted(range(flat.size), key=lambda index: (-abs(flat[index]), index))
        largest = np.zeros_like(flat)
        for index in by_magnitude[:k]:
            largest[index] = flat[index]
        return largest.reshape(v.shape)

    return keep


# ---- the gradient an agent descends: g of the plain methods, g_tilde of the SADDLe ones ----


def descent_gradient(gradient, i, model, t, rho, xi, key, ascent_every, ascent_reuse):
    """g or g_tilde of agent i's loss at `model`; xi[key] holds this agent's (or pair's) last perturbation."""
    if rho == 0.0:
        return gradient(i, model, t)  # 1:2, 2:2, 3:3, 3:7, 4:3, 4:11, 5:3
    if t % ascent_every == 0:
        g = gradient(i, model, t)  # 1:2, 2:2, 3:3, 3:7, 4:3, 4:11, 5:3
        xi[key] = times(rho / (norm(g) + 1e-12), g)  # 1:4, 2:4, 3:4, 3:8, 4:4, 4:12, 5:4
    elif not ascent_reuse:
        return gradient(i, model, t)  # not printed: no perturbation between two climbs
    return gradient(i, add(model, xi[key]), t)  # g_tilde of 1:4, 2:4, 3:4, 3:8, 4:4, 4:12, 5:4


# ---- the gossip of Algorithms 1, 2 and 5 ----


def gossip(x_half, x_hat, W, gamma, Q, order):
    """x^{t+1} from x^{t+1/2}; x_hat, one compressed copy per agent, is updated in place."""
    assert order in ("paper", "choco")
    n = len(x_half)
    x_next = copy(x_half)
    if Q is None:
        for i in range(n):
            for j in neighbours(W, i):  # 1:7, 1:8, 5:7, 5:8 (these for gamma = 1)
                I_ij = 1.0 if i == j else 0.0
                x_next[i] = add(x_next[i], times(gamma * (W[i, j] - I_ij), x_half[j]))
        return x_next
    if order == "choco":  # not printed: compress first
        for i in range(n):
            q = compress(Q, subtract(x_half[i], x_hat[i]))
            x_hat[i] = add(q, x_hat[i])
    for i in range(n):
        for j in neighbours(W, i):  # 2:7
            x_next[i] = add(x_next[i], times(gamma * W[i, j], subtract(x_hat[j], x_hat[i])))
    if order == "paper":
        for i in range(n):
            q = compress(Q, subtract(x_next[i], x_hat[i]))  # 2:10
            x_hat[i] = add(q, x_hat[i])  # 2:11, 2:12
    return x_next


def dpsgd(
    x0,
    W,
    gradient,
    T,
    eta,
    *,
    rho=0.0,
    beta=0.0,
    nesterov=False,
    weight_decay=0.0,
    gamma=1.0,
    Q=None,
    order="choco",
    ascent_every=1,
    ascent_reuse=False,
):
    """DPSGD and D-SADDLe; beta > 0 adds a local momentum buffer, Q the gossip of Algorithm 2."""
    n = len(x0)
    x = copy(x0)
    m = [zeros_like(x[i]) for i in range(n)]
    x_hat = [zeros_like(x[i]) for i in range(n)]
    xi = {}
    history = []
    for t in range(T):  # 5:1
        x_half = []
        for i in range(n):
            g = descent_gradient(gradient, i, x[i], t, rho, xi, i, ascent_every, ascent_reuse)  # 5:3, 5:4
            g = add(g, times(weight_decay, x[i]))  # not printed
            m[i] = add(times(beta, m[i]), g)  # not printed; m = g for beta = 0
            direction = add(g, times(beta, m[i])) if nesterov else m[i]
            x_half.append(subtract(x[i], times(eta(t), direction)))  # 5:5, 5:6

        x = gossip(x_half, x_hat, W, gamma, Q, order)  # 5:7, 5:8
        history.append(copy(x))
    return history


def qgm(
    x0,
    W,
    gradient,
    T,
    eta,
    *,
    rho=0.0,
    beta=0.0,
    mu=None,
    nesterov=False,
    weight_decay=0.0,
    gamma=1.0,
    Q=None,
    order="choco",
    ascent_every=1,
    ascent_reuse=False,
):
    """QGM, Q-SADDLe and their compressed versions; mu=None is mu = beta."""
    mu = beta if mu is None else mu
    n = len(x0)
    x = copy(x0)
    m_hat = [zeros_like(x[i]) for i in range(n)]  # input of 1
    x_hat = [zeros_like(x[i]) for i in range(n)]  # input of 2
    xi = {}
    history = []
    for t in range(T):  # 1:1, 2:1
        x_half = []
        for i in range(n):
            g = descent_gradient(gradient, i, x[i], t, rho, xi, i, ascent_every, ascent_reuse)  # 1:2, 1:4
            g = add(g, times(weight_decay, x[i]))  # not printed
            m = add(times(beta, m_hat[i]), g)  # 1:3, 1:5, 2:3, 2:5
            direction = add(g, times(beta, m)) if nesterov else m
            x_half.append(subtract(x[i], times(eta(t), direction)))  # 1:6, 2:6

        x_next = gossip(x_half, x_hat, W, gamma, Q, order)  # 1:7, 1:8, 2:7, 2:10-12
        for i in range(n):
            d = times(1.0 / eta(t), subtract(x[i], x_next[i]))  # 1:9, 2:8
            m_hat[i] = add(times(mu, m_hat[i]), times(1.0 - mu, d))  # 1:10, 2:9
        x = x_next
        history.append(copy(x))
    return history


def ngm(
    x0,
    W,
    gradient,
    T,
    eta,
    *,
    rho=0.0,
    beta=0.9,
    nesterov=False,
    weight_decay=0.0,
    gamma=1.0,
    Q=None,
    ascent_every=1,
    ascent_reuse=False,
    self_gradient="current",
):
    """NGM, N-SADDLe and their compressed versions.

    g[i, j] is the gradient of agent j's loss, on agent j's batch, at agent i's model: as in the print,
    agent i computes every g[j, i] and then averages the g[i, j] it received.
    """
    assert self_gradient in ("current", "mixed")
    n = len(x0)
    x = copy(x0)
    m = [zeros_like(x[i]) for i in range(n)]
    e = {(j, i): zeros_like(x[i]) for i in range(n) for j in neighbours(W, i)}
    xi = {}
    history = []
    for t in range(T):  # 3:1, 4:1
        mixing = [zeros_like(x[i]) for i in range(n)]
        for i in range(n):
            for j in neighbours(W, i):  # the sum of 3:16, 4:23, from the models x_j^t
                I_ij = 1.0 if i == j else 0.0
                mixing[i] = add(mixing[i], times(gamma * (W[i, j] - I_ij), x[j]))

        delta = {}
        for i in range(n):
            for j in neighbours(W, i):  # j = i is 3:3-4, 4:3-8; the others 3:6-10, 4:10-18
                model = x[j]
                if j == i and self_gradient == "mixed":
                    model = add(x[i], mixing[i])  # not printed
                g_ji = descent_gradient(
                    gradient, i, model, t, rho, xi, (j, i), ascent_every, ascent_reuse
                )  # 3:3-4, 3:7-8, 4:3-4, 4:11-12
                if Q is None:
                    delta[j, i] = g_ji  # 3:9
                else:
                    p = add(g_ji, e[j, i])  # 4:5, 4:6, 4:13, 4:14
                    delta[j, i] = compress(Q, p)  # 4:7, 4:15
                    e[j, i] = subtract(p, delta[j, i])  # 4:8, 4:16

        x_next = []
        for i in range(n):
            g = zeros_like(x[i])
            for j in neighbours(W, i):
                g = add(g, times(W[i, j], delta[i, j]))  # 3:11, 3:13, 4:20
            decayed = add(x[i], mixing[i]) if self_gradient == "mixed" else x[i]
            g = add(g, times(weight_decay, decayed))  # not printed
            m[i] = add(times(beta, m[i]), g)  # 3:12, 3:14, 4:21
            direction = add(g, times(beta, m[i])) if nesterov else m[i]
            x_half = subtract(x[i], times(eta(t), direction))  # 3:15, 4:22
            x_next.append(add(x_half, mixing[i]))  # 3:16, 4:23

        x = x_next
        history.append(copy(x))
    return history
