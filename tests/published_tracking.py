"""Methods around SADDLe as their papers and their authors' programs have them, in plain NumPy float64.

Written from the published equations and not from the package: a second, independent route. It imports
nothing of the package and loops over agents one at a time. Models are lists of tensors, as in
printed_algorithms.py, and x is a list over agents of models. W(t) is the matrix [n, n] of step t,
gradient(i, model, t) the gradient of agent i, eta(t) the step size, Q a function of one tensor (None: no
compression), rho SAM's radius. Every function returns the list of models after each step.

A prime in comments is the value of the step before, L = W - I. Weight decay is taken where the gradient is.
What is mixed is v + gamma L v, and with Q it is v + gamma L v_hat, where v_hat is CHOCO's copy.
"""
# ruff: noqa: N803, N806 (W, T, Q, L and P are the papers' names)

import numpy as np
from printed_algorithms import add, compress, copy, descent_gradient, gossip, subtract, times, zeros_like


class Agents:
    """What all methods share: gradients with weight decay, momentum, mixing."""

    def __init__(self, x0, gradient, *, rho=0.0, weight_decay=0.0, beta=0.0, nesterov=False,
                 gamma=1.0, Q=None, order="choco"):  # fmt: skip
        self.n, self.gradient, self.rho, self.weight_decay = len(x0), gradient, rho, weight_decay
        self.beta, self.nesterov, self.gamma, self.Q, self.order = beta, nesterov, gamma, Q, order
        self.m = [zeros_like(model) for model in x0]
        self.copies = {}  # CHOCO's copies, one list for each quantity that travels

    def g(self, models, t):
        """The (SAM) gradient of each agent at its model, with weight decay."""
        gradients = []
        for i in range(self.n):
            g = descent_gradient(self.gradient, i, models[i], t, self.rho, {}, i, 1, False)
            gradients.append(add(g, times(self.weight_decay, models[i])))
        return gradients

    def d(self, gradients):
        """The direction of local momentum: m = beta m + g, then m or g + beta m."""
        directions = []
        for i in range(self.n):
            self.m[i] = add(times(self.beta, self.m[i]), gradients[i])
            nesterov = add(gradients[i], times(self.beta, self.m[i]))
            directions.append(nesterov if self.nesterov else self.m[i])
        return directions

    def mix(self, name, v, W):
        """W v for gamma = 1 and no compression."""
        copies = self.copies.setdefault(name, [zeros_like(model) for model in v])
        return gossip(v, copies, W, self.gamma, self.Q, self.order)


def each(function, *lists):
    """A list over agents of function(i-th of each list)."""
    return [function(*parts) for parts in zip(*lists, strict=True)]


def plus(u, v):
    return each(add, u, v)


def minus(u, v):
    return each(subtract, u, v)


def scaled(c, v):
    return [times(c, model) for model in v]


def nothing(v):
    return [zeros_like(model) for model in v]


# ---- 1. D-PSGD's variants ----


def dpsgd(x0, W, gradient, T, eta, *, variant, **options):
    a, x, history = Agents(x0, gradient, **options), copy(x0), []
    for t in range(T):
        g = a.g(x, t)
        if variant == "awc":  # x <- W x - eta d
            x = minus(a.mix("x", x, W(t)), scaled(eta(t), a.d(g)))
        elif variant == "double":  # m_h = beta m + g; x <- W(x - eta m_h); m <- W m_h
            d = a.d(g)
            x = a.mix("x", minus(x, scaled(eta(t), d)), W(t))
            a.m = a.mix("m", a.m, W(t))
        history.append(copy(x))
    return history


# ---- 2. gradient tracking ----


def gradient_tracking(x0, W, gradient, T, eta, *, variant="atc", momentum="tracked", **options):
    a, x, history = Agents(x0, gradient, **options), copy(x0), []
    c, y, g_old = nothing(x), None, None
    for t in range(T):
        g = a.g(x, t)
        if momentum == "updates":  # u = -eta d(g); x <- W(x + u + c); c <- W(c + u) - u
            u = scaled(-eta(t), a.d(g))
            x = a.mix("x", plus(plus(x, u), c), W(t))
            c = minus(a.mix("c", plus(c, u), W(t)), u)
        else:
            # y_0 = g_0; y_t = W y_{t-1} + g_t - g_{t-1}
            y = g if t == 0 else plus(a.mix("y", y, W(t - 1)), minus(g, g_old))
            d = a.d(y)
            if variant == "atc":
                x = a.mix("x", minus(x, scaled(eta(t), d)), W(t))
            else:
                x = minus(a.mix("x", x, W(t)), scaled(eta(t), d))
            g_old = g
        history.append(copy(x))
    return history


# ---- 3. D2 ----


def d2(x0, W, gradient, T, eta, *, variant, half=True, **options):
    a, x, history = Agents(x0, gradient, **options), copy(x0), []
    c, x_old, g_old = nothing(x), None, None
    for t in range(T):
        W_t = (W(t) + np.eye(len(x))) / 2 if half else W(t)
        g = a.g(x, t)
        if variant == "relay":  # u = -eta d(g); x_new = W(x + u + c); c = x_new - x - u
            u = scaled(-eta(t), a.d(g))
            x_new = a.mix("x", plus(plus(x, u), c), W_t)
            c = minus(minus(x_new, x), u)
        elif t == 0:  # x_1 = W(x_0 - eta g_0)
            x_new = a.mix("x", minus(x, scaled(eta(t), g)), W_t)
        elif variant == "original":  # W(2x - x' - eta(g - g'))
            moved = minus(minus(scaled(2, x), x_old), scaled(eta(t), minus(g, g_old)))
            x_new = a.mix("x", moved, W_t)
        else:  # plus: W(x - eta[(x' - x)/eta' + g - g'])
            bracket = plus(scaled(1 / eta(t - 1), minus(x_old, x)), minus(g, g_old))
            x_new = a.mix("x", minus(x, scaled(eta(t), bracket)), W_t)
        x, x_old, g_old = x_new, x, g
        history.append(copy(x))
    return history


# ---- 4. Momentum Tracking ----


def momentum_tracking(x0, W, gradient, T, eta, *, init="zero", **options):
    a, x, history = Agents(x0, gradient, **options), copy(x0), []
    u, c, beta = nothing(x), nothing(x), a.beta
    if init == "mean":  # u = c = (g_0 - mean_j g_0)/(1-beta), g_0 without weight decay
        decay, a.weight_decay = a.weight_decay, 0.0
        g = a.g(x, 0)
        a.weight_decay = decay
        mean = times(1 / a.n, [sum(g[j][k] for j in range(a.n)) for k in range(len(g[0]))])
        u = [times(1 / (1 - beta), subtract(g[i], mean)) for i in range(a.n)]
        c = copy(u)
    for t in range(T):
        u = plus(scaled(beta, u), a.g(x, t))
        x = minus(a.mix("x", x, W(t)), scaled(eta(t), minus(u, c)))
        c = plus(a.mix("c - u", minus(c, u), W(t)), u)
        history.append(copy(x))
    return history


# ---- 5. GUT and QG-GUTm ----


def gut(x0, W, gradient, T, eta, *, mu, point="mixed", **options):
    a, x, history = Agents(x0, gradient, **options), copy(x0), []
    b = 1 + a.beta + (a.beta**2 if a.nesterov else 0)
    x_hat = nothing(x)  # what the neighbours know of x: the sum of the messages
    x_old = x_hat_old = Lx_old = delta_old = None

    def pull(v, W_t):
        """gamma L v."""
        return [
            times(a.gamma, [sum(W_t[i, j] * v[j][k] for j in range(a.n)) - v[i][k] for k in range(len(v[i]))])
            for i in range(a.n)
        ]

    for t in range(T):
        message = minus(x, x_hat)
        x_hat = plus(x_hat, message if a.Q is None else [compress(a.Q, part) for part in message])
        Lx = pull(x_hat, W(t))
        z = plus(x, Lx) if point == "mixed" else x
        delta = minus(a.g(z, t), scaled(1 / eta(t), Lx))
        y = delta
        if t > 0:
            W_change = plus(minus(x, x_old), pull(minus(x_hat, x_hat_old), W(t)))  # W(x - x')
            shift = plus(W_change, scaled(b, Lx_old))
            y = minus(minus(delta, scaled(mu / eta(t - 1), shift)), scaled(mu, delta_old))
        x_old, x_hat_old, Lx_old, delta_old = x, x_hat, Lx, delta
        x = minus(x, scaled(eta(t), a.d(y)))
        history.append(copy(x))
    return history


# ---- 8. DecentLaM ----


def decentlam(x0, W, gradient, T, eta, **options):
    a, x, history = Agents(x0, gradient, **options), copy(x0), []
    m = nothing(x)
    for t in range(T):
        mixed = a.mix("x", minus(x, scaled(eta(t), a.g(x, t))), W(t))
        m = plus(scaled(a.beta, m), scaled(1 / eta(t), minus(x, mixed)))
        x = minus(x, scaled(eta(t), m))
        history.append(copy(x))
    return history


# ---- 10. SGP and Push-DIGing: P is column-stochastic, the model is z = x / w ----


def pushed(P, v):
    """P v: each agent adds up what the others push to it."""
    n = len(v)
    arrived = nothing(v)
    for sender in range(n):
        for receiver in range(n):
            arrived[receiver] = add(arrived[receiver], times(P[receiver, sender], v[sender]))
    return arrived


def sgp(x0, P, gradient, T, eta, **options):
    a, x, history = Agents(x0, gradient, **options), copy(x0), []
    w = np.ones(a.n)
    for t in range(T):
        z = [times(1 / w[i], x[i]) for i in range(a.n)]
        x = pushed(P(t), minus(x, scaled(eta(t), a.d(a.g(z, t)))))
        w = P(t) @ w
        history.append([times(1 / w[i], x[i]) for i in range(a.n)])
    return history


def push_diging(x0, P, gradient, T, eta, **options):
    a, x, history = Agents(x0, gradient, **options), copy(x0), []
    w, y, g_old = np.ones(a.n), None, None
    for t in range(T):
        z = [times(1 / w[i], x[i]) for i in range(a.n)]
        g = a.g(z, t)
        y = g if t == 0 else plus(pushed(P(t - 1), y), minus(g, g_old))  # P y + g(z) - g(z')
        x, w, g_old = pushed(P(t), minus(x, scaled(eta(t), y))), P(t) @ w, g
        history.append([times(1 / w[i], x[i]) for i in range(a.n)])
    return history
