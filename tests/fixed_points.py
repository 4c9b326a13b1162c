"""What must be zero at the models [A, D] where a method ends, on quadratics, in plain NumPy.

With W the mixing matrix, L = W - I, and g_i = h_i (x_i - c_i), the gradient on the agent's own data. An exact
method ends where all agents agree and the mean gradient is zero. The others end where gossip undoes what the
agents' own gradients do. No momentum is left there but for what a constant gradient keeps up.
"""

import numpy as np
import scipy.optimize


class FixedPoints:
    """The equations of each method on one graph: W [A, A], curvatures h and minima c [A, D], rate eta."""

    def __init__(self, mixing, h, c, eta):
        self.W, self.L = mixing, mixing - np.eye(len(mixing))
        self.h, self.c, self.eta = h, c, eta

    def g(self, x, rho=0.0):
        """The gradients [A, D], with rho those of SAM."""
        g = self.h * (x - self.c)
        return g + rho * self.h * g / np.linalg.norm(g, axis=1, keepdims=True)

    def pair(self, i, j, x, rho):
        """The gradient on the data of j at the model of i."""
        g = self.h[j] * (x[i] - self.c[j])
        return g + rho * self.h[j] * g / np.linalg.norm(g)

    def agreement(self, x):
        return np.concatenate([x - x.mean(axis=0), [self.g(x).mean(axis=0)]])

    def adapt_then_combine(self, x, factor=1.0, gamma=1.0, rho=0.0):
        half = x - factor * self.eta * self.g(x, rho)
        return half + gamma * self.L @ half - x

    def adapt_while_combining(self, x):
        return self.L @ x - self.eta * self.g(x)

    def ngm(self, x, beta, rho=0.0):
        everyone = range(len(x))
        mean = np.array([sum(self.W[i, j] * self.pair(i, j, x, rho) for j in everyone) for i in everyone])
        return self.L @ x - self.eta / (1 - beta) * mean

    def cga(self, x, beta):
        """min |g + M'v| over v >= 1/2: with v = 1/2 + u, non-negative least squares for u."""
        directions = []
        for i in range(len(x)):
            own = self.W[i, i] * self.pair(i, i, x, 0.0)
            others = [j for j in range(len(x)) if j != i and self.W[i, j] > 0]
            rows = np.array([self.W[i, j] * self.pair(i, j, x, 0.0) for j in others])
            base = own + rows.sum(axis=0) / 2
            u, _ = scipy.optimize.nnls(rows.T, -base)
            directions.append(base + rows.T @ u)
        return self.L @ x - self.eta / (1 - beta) * np.array(directions)

    def gut(self, x, mu):
        return (1 - mu) * self.g(self.W @ x) - self.L @ x / self.eta

    def sgp(self, z):
        """The mass w comes to rest at W w = w, whose sum is the number of agents."""
        values, vectors = np.linalg.eig(self.W)
        w = np.real(vectors[:, np.argmax(np.real(values))])
        w = (len(w) * w / w.sum())[:, None]
        return self.W @ (w * z - self.eta * self.g(z)) - w * z

    def ada_gossip(self, x, gamma):
        half = x - self.eta * self.g(x)
        r = self.L @ half
        return half + np.minimum(gamma / (np.abs(r) + 1e-8), 1) * r - x

    def local_steps(self, x, steps, beta, rho=0.0):
        y, v = x, np.zeros_like(x)
        for _ in range(steps):
            v = beta * v - self.eta * self.g(y, rho)
            y = y + v
        return self.W @ y - x
