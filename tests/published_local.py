"""Methods with local steps, transcribed one by one in plain NumPy float64 from their published descriptions.

This is the second, independent route against which the vectorised JAX code is tested. It imports nothing of
the package and loops over rounds, local steps and agents; the arithmetic on models and the rounds of gossip
are those of the printed algorithms.

As there, x is a list over agents of models, a model a list of tensors, gradient(i, model, t) the gradient of
agent i in step t, eta(t) the step size. Ws is the list of mixing matrices that take turns: the r-th gossip of
a run uses Ws[r % len(Ws)]. k is the number of local steps of a round, T the number of gradient steps of a
run, which may end inside a round. Every function returns the list of x after each gradient step.
"""
# ruff: noqa: N803, N806 (W, T, Q and Ws are the papers' names)

from printed_algorithms import add, copy, gossip, norm, subtract, times, zeros_like


def descent(gradient, i, model, t, rho, weight_decay):
    """The (SAM) gradient of agent i, and coupled weight decay taken at the unperturbed model."""
    g = gradient(i, model, t)
    if rho:
        g = gradient(i, add(model, times(rho / (norm(g) + 1e-12), g)), t)
    return add(g, times(weight_decay, model))


def gossip_every_k(
    x0, Ws, gradient, T, eta, k, *, beta=0.0, nesterov=True, weight_decay=0.0, rho=0.0, gamma=1.0, Q=None
):
    """Round: y = x; k times y <- y - eta d(g(y)); x <- W y. The momentum buffers are kept through rounds."""
    y, history, n = copy(x0), [], len(x0)
    m, x_hat = [zeros_like(v) for v in y], [zeros_like(v) for v in y]
    for t in range(T):
        for i in range(n):
            g = descent(gradient, i, y[i], t, rho, weight_decay)
            m[i] = add(times(beta, m[i]), g)
            d = add(g, times(beta, m[i])) if nesterov else m[i]
            y[i] = subtract(y[i], times(eta(t), d))
        if t % k == k - 1:
            y = gossip(y, x_hat, Ws[t // k % len(Ws)], gamma, Q, "choco")
        history.append(copy(y))
    return history


def local_qgm(
    x0, Ws, gradient, T, eta, k, *, beta=0.9, mu=None, nesterov=True, weight_decay=0.0, rho=0.0, gamma=1.0,
    Q=None,
):  # fmt: skip
    """QGM whose m_hat is fixed inside a round and then takes the mean of the round's displacements / eta."""
    mu = beta if mu is None else mu
    x, history, n = copy(x0), [], len(x0)
    m_hat, x_hat = [zeros_like(v) for v in x], [zeros_like(v) for v in x]
    before = []  # of this round: the models before each step, and the step's learning rate
    for t in range(T):
        before.append((copy(x), eta(t)))
        for i in range(n):
            g = descent(gradient, i, x[i], t, rho, weight_decay)
            m = add(times(beta, m_hat[i]), g)
            d = add(g, times(beta, m)) if nesterov else m
            x[i] = subtract(x[i], times(eta(t), d))
        if t % k == k - 1:
            x = gossip(x, x_hat, Ws[t // k % len(Ws)], gamma, Q, "choco")
            after = [models for models, _ in before[1:]] + [x]  # the gossip belongs to the last step
            for i in range(n):
                total = zeros_like(x[i])
                for (start, rate), end in zip(before, after, strict=True):
                    total = add(total, times(1 / rate, subtract(start[i], end[i])))
                m_hat[i] = add(times(mu, m_hat[i]), times((1 - mu) / k, total))
            before = []
        history.append(copy(x))
    return history


def dfedavgm(
    x0, Ws, gradient, T, eta, k, *, beta=0.9, gossips=1, weight_decay=0.0, rho=0.0, gamma=1.0, Q=None
):
    """Heavy ball y_{j+1} = y_j - eta g + beta (y_j - y_{j-1}), y_{-1} = y_0 in each round; then W^gossips."""
    y, history, n = copy(x0), [], len(x0)
    x_hat = [zeros_like(v) for v in y]
    y_before = copy(y)
    for t in range(T):
        for i in range(n):
            g = descent(gradient, i, y[i], t, rho, weight_decay)
            ahead = add(subtract(y[i], times(eta(t), g)), times(beta, subtract(y[i], y_before[i])))
            y_before[i], y[i] = y[i], ahead
        if t % k == k - 1:
            for _ in range(gossips):
                y = gossip(y, x_hat, Ws[t // k % len(Ws)], gamma, Q, "choco")
            y_before = copy(y)
        history.append(copy(y))
    return history


def kgt(x0, Ws, gradient, T, eta, k, *, eta_s=1.0, weight_decay=0.0, rho=0.0, gamma=1.0, Q=None):
    """K-GT; k eta is the sum of the round's learning rates."""
    x, history, n = copy(x0), [], len(x0)
    c = [zeros_like(v) for v in x]
    x_hat, z_hat = [zeros_like(v) for v in x], [zeros_like(v) for v in x]
    y, k_eta = copy(x), 0.0
    for t in range(T):
        k_eta += eta(t)
        for i in range(n):
            g = descent(gradient, i, y[i], t, rho, weight_decay)
            y[i] = subtract(y[i], times(eta(t), add(g, c[i])))
        if t % k == k - 1:
            W = Ws[t // k % len(Ws)]
            z = [times(1 / k_eta, subtract(x[i], y[i])) for i in range(n)]
            Wz = gossip(z, z_hat, W, gamma, Q, "choco")
            c = [add(subtract(c[i], z[i]), Wz[i]) for i in range(n)]
            x = [subtract(x[i], times(k_eta * eta_s, z[i])) for i in range(n)]
            x = gossip(x, x_hat, W, gamma, Q, "choco")
            y, k_eta = copy(x), 0.0
        history.append(copy(y))
    return history


def gradient_tracking_atc(x0, Ws, gradient, T, eta, *, weight_decay=0.0, rho=0.0):
    """y_0 = g_0; y_t = W y_{t-1} + g_t - g_{t-1}; x <- W (x - eta y), y_t sent together with x_t."""
    x, history, n = copy(x0), [], len(x0)
    Wy = g_before = None
    for t in range(T):
        W = Ws[t % len(Ws)]
        g = [descent(gradient, i, x[i], t, rho, weight_decay) for i in range(n)]
        y = g if t == 0 else [add(Wy[i], subtract(g[i], g_before[i])) for i in range(n)]
        x, Wy, g_before = _mixed(W, [subtract(x[i], times(eta(t), y[i])) for i in range(n)]), _mixed(W, y), g
        history.append(copy(x))
    return history


def slowmo(
    x0, Ws, gradient, T, eta, k, *, tau, outer_beta=0.5, alpha=1.0, average=True, beta=0.0, nesterov=True,
    weight_decay=0.0, rho=0.0,
):  # fmt: skip
    """D-PSGD that gossips every k steps; after every tau-th step u, a and x <- a. Base buffers are kept."""
    x, history, n = copy(x0), [], len(x0)
    a, u, m = copy(x0), [zeros_like(v) for v in x0], [zeros_like(v) for v in x0]
    for t in range(T):
        for i in range(n):
            g = descent(gradient, i, x[i], t, rho, weight_decay)
            m[i] = add(times(beta, m[i]), g)
            x[i] = subtract(x[i], times(eta(t), add(g, times(beta, m[i])) if nesterov else m[i]))
        if t % k == k - 1:
            x = _mixed(Ws[t // k % len(Ws)], x)
        if (t + 1) % tau == 0:
            x_bar = zeros_like(x[0])
            for i in range(n):
                x_bar = add(x_bar, times(1 / n, x[i]))
            for i in range(n):
                moved = subtract(a[i], x_bar if average else x[i])
                u[i] = add(times(outer_beta, u[i]), times(1 / eta(t), moved))
                a[i] = subtract(a[i], times(alpha * eta(t), u[i]))
            x = copy(a)
        history.append(copy(x))
    return history


def _mixed(W, x):
    """sum_j W_ij x_j of each agent i."""
    mixed = [zeros_like(v) for v in x]
    for i in range(len(x)):
        for j in range(len(x)):
            mixed[i] = add(mixed[i], times(W[i, j], x[j]))
    return mixed
