"""Our side: `method.step` as training calls it, compiled once, its state donated."""

import time
from typing import Any

import jax

from benchmarks.work import Work
from saddle_jax.base.types import Array, Params
from saddle_jax.devices.placement import place
from saddle_jax.tasks import supervised


class OurStep:
    """Models and state on the device, and the compiled step; each call is one step further.

    Args:
      work: what to step on.
      compiler_options: of XLA; None is how training compiles.

    Attributes:
      placement: on which devices.
      compile_seconds: what tracing, lowering and compiling took.
      memory: bytes that the compiled program asks for on all devices: argument, output, temp, alias.
    """

    def __init__(self, work: Work, compiler_options: dict[str, Any] | None = None):
        self.placement = place(work.agents, work.batch_size)
        method = work.build_method(self.placement.graph(work.topology))
        loss_fn = supervised.cross_entropy(work.network())
        self._params = jax.tree.map(self.placement.by_agents, work.params())
        self._batch = jax.tree.map(self.placement.by_agents, work.batch())
        step = jax.jit(lambda p, s, b: method.step(loss_fn, p, s, b, group=work.group), donate_argnums=(0, 1))
        with self.placement.active():
            self._state = method.init(self._params)
            started = time.perf_counter()
            self._step = step.lower(self._params, self._state, self._batch).compile(compiler_options)
        self.compile_seconds = time.perf_counter() - started
        self.memory = _memory(self._step, self.placement.devices * self.placement.batch_devices)

    @property
    def params(self) -> Params:
        """Returns the models as they are now [A, ...]."""
        return jax.tree.map(lambda x: x[: self.placement.agents], self._params)

    def __call__(self) -> Array:
        """Takes one step and returns the agents' losses [A]."""
        self._params, self._state, metrics = self._step(self._params, self._state, self._batch)
        return metrics["loss"]


def _memory(compiled: Any, devices: int) -> dict[str, int]:
    analysis = compiled.memory_analysis()  # of each device
    parts = ("argument", "output", "temp", "alias")
    return {part: devices * int(getattr(analysis, f"{part}_size_in_bytes")) for part in parts}
