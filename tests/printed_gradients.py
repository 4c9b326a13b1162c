"""SAM's relatives in plain NumPy float64, from their published formulas: gradients for printed loops.

It imports nothing of the package. A model is a list of tensors. An estimator is a function

    estimator(grad, model, t, memory) -> gradient

of one model: grad(model) is the plain gradient on the batch of step t, grad(model, rows) that on some of its
samples, grad.losses(model) [B] the loss of each sample by itself. `memory` is a dict of this agent or pair
alone. `source` makes a gradient(i, model, t) of it, as the loops of printed_algorithms.py ask for.
"""

import numpy as np
from printed_algorithms import add, norm, subtract, times, zeros_like


def source(estimator, problem):
    """The n-th question to agent i in a step is always about the same model: they share a memory."""
    memories, visits = {}, {}

    def gradient(i, model, t):
        visit = visits[i, t] = visits.get((i, t), -1) + 1
        memory = memories.setdefault((i, visit), {"agent": i, "visit": visit})

        def grad(at, rows=None):
            return problem.gradient(i, at, t, rows)

        grad.losses = lambda at: problem.losses(i, at, t)
        return estimator(grad, model, t, memory)

    return gradient


def inner(u, v):
    return sum(np.sum(a * b) for a, b in zip(u, v, strict=True))


def unit(u):
    length = norm(u)
    return zeros_like(u) if length == 0 else times(1 / length, u)


def without(u, v):
    """u - <u, v^> v^, v^ = v / ||v||."""
    return subtract(u, times(inner(u, unit(v)), unit(v)))


def asam(rho, eta, is_weight):
    """Kwon et al.: eps = rho T^2 g / ||T g||, T = |x| + eta at weights and 1 elsewhere."""

    def estimator(grad, model, t, memory):
        g = grad(model)
        scale = [np.abs(x) + eta if w else np.ones_like(x) for x, w in zip(model, is_weight, strict=True)]
        length = norm([s * a for s, a in zip(scale, g, strict=True)])
        epsilon = [rho * s**2 * a / length for s, a in zip(scale, g, strict=True)]
        return grad(add(model, epsilon))

    return estimator


def looksam(rho, every, alpha):
    """Liu et al., Algorithm 1: SAM when t % k = 0, else g + alpha ||g|| / ||g_v|| g_v."""

    def estimator(grad, model, t, memory):
        g = grad(model)
        if t % every == 0:
            g_s = grad(add(model, times(rho, unit(g))))
            memory["g_v"] = without(g_s, g)
            return g_s
        return add(g, times(alpha * norm(g), unit(memory["g_v"])))

    return estimator


def gsam(rho_max, rho_min, alpha, share):
    """Zhuang et al., Algorithm 1: g_p - alpha (g - <g, g_p^> g_p^), g_p at radius rho_t."""

    def estimator(grad, model, t, memory):
        rho = rho_min + (rho_max - rho_min) * share(t)
        g = grad(model)
        g_p = grad(add(model, times(rho, unit(g))))
        return subtract(g_p, times(alpha, without(g, g_p)))

    return estimator


def esam(rho, beta, gamma, masks):
    """Du et al., Algorithm 1; masks(agent, visit, t) says which tensors are perturbed."""

    def estimator(grad, model, t, memory):
        chosen = masks(memory["agent"], memory["visit"], t)
        masked = [keep * g for keep, g in zip(chosen, grad(model), strict=True)]
        above = add(model, times(rho / beta, unit(masked)))
        rise = grad.losses(above) - grad.losses(model)
        count = max(1, int(gamma * len(rise)))
        return grad(above, sorted(range(len(rise)), key=lambda b: -rise[b])[:count])

    return estimator


def lesam(rho):
    """Fan et al., with the agent's own last movement: eps = rho (x_old - x_new) / ||x_old - x_new||."""

    def estimator(grad, model, t, memory):
        way = subtract(memory.get("last", model), model)
        memory["last"] = model
        return grad(add(model, times(rho, unit(way))))

    return estimator


def lesam_along_m_hat(rho, mu, eta):
    """The same along QGM's m_hat <- mu m_hat + (1 - mu) (x_old - x_new) / eta, recomputed from the models."""

    def estimator(grad, model, t, memory):
        if t == 0:
            memory["m_hat"] = zeros_like(model)
        else:
            d = times(1 / eta(t - 1), subtract(memory["last"], model))
            memory["m_hat"] = add(times(mu, memory["m_hat"]), times(1 - mu, d))
        memory["last"] = model
        return grad(add(model, times(rho, unit(memory["m_hat"]))))

    return estimator
