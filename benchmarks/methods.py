"""Step time and compile time of each method and gradient estimator relative to D-PSGD."""

import functools
import time
from typing import Any

import jax

from benchmarks.measure import Row, compared, interleaved
from benchmarks.work import Job, Options, Work
from saddle_jax.base.registry import parameters_of
from saddle_jax.base.types import Array
from saddle_jax.core.method import Method, StepKind
from saddle_jax.core.topology import Graphs
from saddle_jax.devices.placement import place
from saddle_jax.graphs.named import path
from saddle_jax.methods import METHODS, base_methods
from saddle_jax.methods.saddle import saddle
from saddle_jax.sam import GRADIENTS
from saddle_jax.tasks import supervised

BASE = "dpsgd"
_STEPS = 10  # steps per call: a multiple of the rounds of local steps and the periods of estimators
_RATE, _RHO = 0.01, 0.1
_TREES = ("relay_sgd",)  # methods that need a tree
_KEY = jax.random.key(0)  # the same in every step, since only the time counts


def method_jobs(case: str, options: Options) -> list[Job]:
    """Lists a job for each method with its defaults and for QGM with each estimator, without compression."""
    size = (3, 4) if options.quick else (10, 32)
    (work,) = options.applied([Work(BASE, "mlp", *size, (8, 8, 1))])
    names = [*base_methods(), *(f"qgm+{estimator}" for estimator in GRADIENTS if estimator != "plain")]
    return [Job(case, name, functools.partial(_measure, case, name, work, options)) for name in names]


def _measure(case: str, name: str, work: Work, options: Options) -> Row:
    ours, base = MethodSteps(name, work), _base(work)
    timing = interleaved({"ours": ours, "base": base}, options.repeats)
    timing = timing._replace(rounds={n: [t / _STEPS for t in each] for n, each in timing.rounds.items()})
    figures = {
        "step / dpsgd's": timing.ratio("ours", "base").median,
        "compile CPU s": ours.compile_seconds,
        "compile / dpsgd's": ours.compile_seconds / base.compile_seconds,
    }
    return compared(case, name, timing, "ours", "base", BASE, figures)


@functools.cache
def _base(work: Work) -> "MethodSteps":
    MethodSteps(BASE, work)  # excludes the setup of a first compilation
    return MethodSteps(BASE, work)


def _built(name: str, topology: Graphs) -> Method:
    """Builds a method by its name, or "METHOD+GRADIENT", with its defaults."""
    method_name, _, estimator = name.partition("+")
    options = {"rho": _RHO} if "rho" in METHODS.options(method_name) else {}
    method = METHODS[method_name](topology, _RATE, **options)
    if not estimator:
        return method
    needed = [
        each.name for each in parameters_of(GRADIENTS[estimator]).values() if each.default is each.empty
    ]
    return saddle(method, GRADIENTS[estimator](**dict.fromkeys(needed, _RHO)))


class MethodSteps:
    """A method's models and state on the device, and a compiled program for each kind of its steps.

    Args:
      name: a method, or "METHOD+GRADIENT".
      work: its model, agents and data; the graph is its ring, or a path for methods that need a tree.

    Attributes:
      compile_seconds: CPU time of tracing, lowering and compiling the programs, which other processes hardly
        affect.
    """

    def __init__(self, name: str, work: Work):
        placement = place(work.agents, work.batch_size)
        topology = path(work.agents) if name in _TREES else work.topology
        self._method = _built(name, placement.graph(topology))
        self._active, self._t = placement.active, 0
        loss_fn = supervised.cross_entropy(work.network())
        params = jax.tree.map(placement.by_agents, work.params())
        self._batch = jax.tree.map(placement.by_agents, work.batch())
        with self._active():
            self._carry: Any = (params, self._method.init(params))
            shardings = placement.shardings(self._carry)  # the same for all programs, which run in turn
            self._carry = jax.device_put(self._carry, shardings)

            def step(carry: Any, batch: Any, kind: StepKind) -> tuple[Any, Array]:
                params, state = carry
                params, state, metrics = self._method.step(
                    loss_fn, params, state, batch, _KEY, kind=kind, agents_per_call=work.agents_per_call
                )
                return (params, state), metrics["loss"]

            steps = jax.jit(step, donate_argnums=0, static_argnums=2, out_shardings=(shardings, None))
            started = time.process_time()
            kinds = {self._method.kind(t) for t in range(2 * _STEPS)}
            self._programs = {
                kind: steps.lower(self._carry, self._batch, kind).compile() for kind in sorted(kinds)
            }
        self.compile_seconds = time.process_time() - started

    def __call__(self) -> Array:
        """Takes ten steps and returns the agents' losses [A] in the last one."""
        for _ in range(_STEPS):
            program = self._programs[self._method.kind(self._t)]
            self._carry, loss = program(self._carry, self._batch)
            self._t += 1
        return loss
