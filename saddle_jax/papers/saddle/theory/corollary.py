"""The corollary beyond complete graphs: over T and over n, with momentum, where agents hear few others.

With eta = c sqrt(n/T) and rho = c_rho sqrt(1/T) the error falls as 1 / sqrt(nT), whatever the graph, once T
is large. `speedup` holds the slope over n against it on complete graphs without momentum, where the bound is
tight enough to say the same. Here the method itself is measured where the bound says little: on
rings and tori, with momentum far beyond what the proof allows, and with curvatures that differ between
agents, so that what agents disagree on moves their mean. With momentum eta is c (1 - beta) sqrt(n/T): the
theorem is about eta / (1 - beta).
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from saddle_jax.core.topology import Topology
from saddle_jax.graphs.named import complete, ring, torus
from saddle_jax.papers.saddle.theory.bound import bound, corollary_schedule
from saddle_jax.papers.saddle.theory.speedup import Point, Slope, fit_slope
from saddle_jax.papers.saddle.theory.testbed import measure, quadratic

GRAPHS: dict[str, Callable[[int], Topology]] = {
    "complete": complete,
    "torus": lambda n: torus(round(n**0.5), round(n**0.5)),
    "ring": ring,
}
MOMENTA = (0.0, 0.5, 0.9)
# Squares, for the torus. The middle one is that of the sweep over T.
SIZES = (9, 16, 25)
STEPS = (1_000, 4_000, 16_000)
# eta T is at least 63, so that the start hardly shows, and eta at most 0.064.
_C, _C_RHO, _SPREAD, _DELTA = 0.5, 0.1, 0.5, 0.5


class Case(NamedTuple):
    """A graph and a momentum: the errors over T and over n, and their slopes.

    Attributes:
      graph: its name.
      beta: the momentum; mu is the same.
      over_steps: points of the middle size, T rising.
      over_agents: points of the largest T, n rising.
    """

    graph: str
    beta: float
    over_steps: tuple[Point, ...]
    over_agents: tuple[Point, ...]

    @property
    def slopes(self) -> tuple[Slope, Slope]:
        """Returns the slopes over log(T) and over log(n)."""
        return fit_slope(self.over_steps, "steps"), fit_slope(self.over_agents, "agents")

    @property
    def excess(self) -> float:
        """Returns the error at the largest T and the middle size in terms of c sigma^2 / sqrt(nT).

        This is the error of a single agent with n times the batch, but for orders of 1 / T: 1 in the limit.
        """
        setting, _, measured = self.over_steps[-1]
        return measured.mean * math.sqrt(setting.agents * setting.steps) / _C

    @property
    def last_slope(self) -> Slope:
        """Returns the slope over log(T) between the two largest T, where the corollary must show first."""
        return fit_slope(self.over_steps[-2:], "steps")


def measure_cases(
    graphs: Sequence[str] = tuple(GRAPHS),
    momenta: Sequence[float] = MOMENTA,
    *,
    sizes: Sequence[int] = SIZES,
    steps: Sequence[int] = STEPS,
    repetitions: int = 32,
    report: Callable[[Case], None] = lambda case: None,
) -> list[Case]:
    """Measures every graph with every momentum; `report` is called with each case once it is measured."""
    cases = []
    middle = sizes[len(sizes) // 2]
    for graph in graphs:
        for beta in momenta:
            over_steps = tuple(_point(graph, middle, T, beta, repetitions) for T in steps)
            over_agents = tuple(
                over_steps[-1] if n == middle else _point(graph, n, steps[-1], beta, repetitions)
                for n in sizes
            )
            cases.append(Case(graph, beta, over_steps, over_agents))
            report(cases[-1])
    return cases


def _point(graph: str, agents: int, steps: int, beta: float, repetitions: int) -> Point:
    eta, rho = corollary_schedule(agents, steps, _C, _C_RHO)
    problem = quadratic(
        GRAPHS[graph](agents),
        sigma=1.0,
        delta=_DELTA,
        gap=_C**2 / 2,  # both errors of a run are equal: gap / c = c sigma^2 / 2
        dimension=8,
        flattest=1.0,
        spread=_SPREAD,
        seed=agents,
    )
    options = {"eta": eta * (1 - beta), "beta": beta, "mu": beta, "rho": rho}
    setting = problem.setting(**options, steps=steps)
    measured = measure(problem, **options, steps=steps, repetitions=repetitions, seed=agents)
    return Point(setting, bound(setting), measured)
