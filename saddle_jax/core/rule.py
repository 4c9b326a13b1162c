"""A rule is an algorithm; a step is all that it sees.

    rule.step(s, x, state) -> x, state        s.gradient(x)   the agents' gradients, through the estimator
                                              s.network       the only place where agents meet

Every leaf of a state is [A, ...], [A, K, ...] or a scalar; `Method.init` checks it. So whoever cuts a state
over devices or stacks it over trials knows which axis is the agents'.

Steps may be of several kinds: local ones and one in which agents communicate, or a first one unlike the
others. A kind is a small integer that is known when a step is compiled, `s.phase`; each kind is a program of
its own.
"""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, Generic, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Params, State
from saddle_jax.core import trees
from saddle_jax.core.gradients import Oracle
from saddle_jax.core.network import Message, Network
from saddle_jax.core.topology import Stochasticity

# What a metric's axes mean: a number, one per agent, one per pair, one per parameter tensor.
Axes = Literal["", "A", "AK", "L"]


@dataclasses.dataclass(eq=False)
class Step:
    """A step is all that a rule sees of it: models, gradients and the network.

    Attributes:
      t: the number of the step, int32 []: the only counter of a run, the argument of schedules.
      x: the models that the step began with [A, ...].
      network: where agents meet.
      oracle: answers `gradient` and `cross_gradients`.
      diagnostics: whether to measure what costs extra passes over the parameters.
      phase: which kind of step this is, a Python integer; see `Rule.kinds`.
      notes: what was measured, with its axes.

    >>> step = lambda s, x, state: (x - 0.1 * s.gradient(x), s.t)  # nobody talks
    >>> method = sj.Method("alone", sj.ring(2), sj.Rule(lambda x: jnp.int32(0), step))
    >>> x = jnp.array([0.0, 2.0])
    >>> method.step(lambda x, d: x * d, x, method.init(x), jnp.array([10.0, 0.0]))[0]
    Array([-1.,  2.], dtype=float32)
    """

    t: Any
    x: Params
    network: Network
    oracle: Oracle
    diagnostics: bool = False
    phase: int = 0
    notes: dict[str, tuple[Any, Axes]] = dataclasses.field(default_factory=dict)

    def gradient(self, x: Params, along: Params | None = None) -> Params:
        """Returns every agent's gradient on its own batch at the models x, [A, ...].

        Args:
          x: models [A, ...].
          along: a direction [A, ...] uphill that the rule has at hand, for estimators that climb along one
            instead of computing it (`sj.lesam`); the others do not look at it.
        """
        gradient = self.oracle.own(x, along)
        self._note_norms(gradient, "A")
        return gradient

    def cross_gradients(self, x: Params, own: Params | None = None, sent: Any = None) -> Params:
        """Returns g_ij = grad F_j(x_i; d_j), [A, K, ...], for every neighbour j of i, itself in slot 0.

        Models go out in one round, and gradients come back in another. They are recorded uncompressed, unless
        `network.returned` says afterwards how they travelled.

        Args:
          x: models [A, ...].
          own: where each agent takes its own g_ii; None takes it at x.
          sent: how the models travel; None sends them as they are, `()` if a round of this step has
            brought them already.
        """
        self._send_models(x, sent)
        pairs = self.oracle.pairs(x, own)
        if self.network.conditions is not None:
            pairs = trees.scale_slices(pairs, self.network.conditions.arrived)
        self.network.expect_return(pairs)
        self._note_norms(pairs, "AK")
        return pairs

    def cross_gradient_mean(self, x: Params, own: Params | None = None, sent: Any = None) -> Params:
        """Returns sum_j w_ij g_ij, [A, ...], the neighbourhood's mean of `cross_gradients`, in less memory.

        The gradients come back uncompressed.
        """
        self._send_models(x, sent)
        mean = self.oracle.mean(x, own)
        self.network.record(Message(mean))
        self._note_norms(mean, "A")
        return mean

    def note(self, name: str, value: Any, axes: Axes) -> None:
        """Puts a value into the step's metrics; the second of a name becomes name_2, and so on."""
        checks.choice("axes", axes, ("", "A", "AK", "L"))
        names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
        self.notes[next(free for free in names if free not in self.notes)] = (value, axes)

    def _send_models(self, x: Params, sent: Any) -> None:
        if self.network.topology.is_directed:
            raise ArgumentError(
                f"topology must be undirected to exchange cross-gradients, got {self.network.topology.name}"
            )
        faults = self.network.faults
        if faults is not None and (faults.is_one_way or faults.delay):
            # A model goes there and a gradient comes back in the same step.
            raise ArgumentError(
                f"faults must be symmetric and without delay for cross-gradients, got {faults!r}"
            )
        if sent is None or len(sent):
            self.network.record(Message(x) if sent is None else sent)

    def _note_norms(self, gradient: Params, axes: Literal["A", "AK"]) -> None:
        if not self.diagnostics:
            return
        present = jnp.asarray(self.network.topology.present if axes == "A" else self.network.occupied)
        norms = trees.agent_norms(gradient, present.ndim)
        self.note("gradient_norm", jnp.where(present, norms, 0), axes)
        by_layer = trees.layer_norms(gradient, present.ndim)
        self.note("gradient_norm_by_layer", trees.mean_by_layer(by_layer, present[None]), "L")


class Rule(NamedTuple, Generic[State]):
    """A rule is an algorithm: a pure pair of functions over stacked trees.

    The kind of step t is first_kinds[t] in the first steps, and kinds[t % period] in all others. So
    `kinds=(0, 0, 1)` makes every third step of kind 1, and `first_kinds=(0,), kinds=(1,)` makes the first
    step alone of kind 0.

    >>> step = lambda s, x, state: (s.network.mix(x - 0.1 * s.gradient(x)), state)
    >>> method = sj.Method("mine", sj.complete(2), sj.Rule(lambda x: (), step, requires="doubly"))
    >>> x = jnp.array([0.0, 2.0])
    >>> method.step(lambda x, d: x * d, x, method.init(x), jnp.array([10.0, 0.0]))[0]
    Array([0.5, 0.5], dtype=float32)
    """

    init: Callable[[Params], State]  # x [A, ...] -> state
    step: Callable[[Step, Params, State], tuple[Params, State]]  # (s, x, state) -> (x, state)
    requires: Stochasticity | None = None  # what W must be; None requires nothing
    kinds: tuple[int, ...] = (0,)  # the kinds of the steps of one period
    first_kinds: tuple[int, ...] = ()  # the kinds of the first steps
    local_kinds: tuple[int, ...] = ()  # the kinds in which nobody communicates: changing graphs wait then
    restartable: bool = True  # whether the models may be set from outside between two steps, as SlowMo does

    @property
    def all_kinds(self) -> tuple[int, ...]:
        """All kinds of steps that there are, in ascending order."""
        return tuple(sorted({*self.first_kinds, *self.kinds}))

    @property
    def comm_kinds(self) -> tuple[int, ...]:
        """The kinds of steps in which agents communicate, in ascending order."""
        return tuple(kind for kind in self.all_kinds if kind not in self.local_kinds)

    def phase(self, t: int) -> int:
        """Returns the kind of step number t, counted from 0."""
        return self.first_kinds[t] if t < len(self.first_kinds) else self.kinds[t % len(self.kinds)]

    def comm_round(self, t: Any) -> Any:
        """Counts the steps before step t, a number or traced, in which agents communicated."""
        if not self.local_kinds:
            return t
        first, period = len(self.first_kinds), len(self.kinds)
        talks = np.cumsum([0, *(self.phase(step) not in self.local_kinds for step in range(first))])
        before = np.cumsum([0, *(kind not in self.local_kinds for kind in self.kinds)])
        skipped = first // period * before[-1] + before[first % period]  # of the periods, by the first steps
        if not isinstance(t, int):
            later = t // period * before[-1] + jnp.asarray(before)[t % period] - skipped + talks[-1]
            return jnp.where(t < first, jnp.asarray(talks)[jnp.minimum(t, first)], later)
        later = t // period * before[-1] + before[t % period] - skipped + talks[-1]
        return int(talks[t] if t < first else later)

    def place(self, t: Any) -> Any:
        """Returns the position in `all_kinds` of the kind of step t, which may be traced, int32 []."""
        places = jnp.array([self.all_kinds.index(kind) for kind in self.kinds])[t % len(self.kinds)]
        if not self.first_kinds:
            return places
        first = jnp.array([self.all_kinds.index(kind) for kind in self.first_kinds])
        return jnp.where(t < len(self.first_kinds), first[jnp.minimum(t, len(self.first_kinds) - 1)], places)

    def check(self) -> None:
        """Checks that the kinds of steps are whole numbers, and that local kinds are among them."""
        for name, kinds in (
            ("kinds", self.kinds),
            ("first_kinds", self.first_kinds),
            ("local_kinds", self.local_kinds),
        ):
            if not isinstance(kinds, tuple) or any(type(kind) is not int or kind < 0 for kind in kinds):
                raise ArgumentError(f"{name} must be a tuple of integers >= 0, got {kinds!r}")
        if not self.kinds:
            raise ArgumentError("kinds must name at least one kind of step, got none")
        if not set(self.local_kinds) <= set(self.all_kinds):
            raise ArgumentError(f"local_kinds must name kinds of {self.all_kinds}, got {self.local_kinds!r}")
