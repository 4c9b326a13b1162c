"""What a method is: a topology, a rule, and how gradients are taken. The algorithm itself is the rule."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array, Batch, Key, LossFn, Params, Tree
from saddle_jax.core import metrics, requirements, trees
from saddle_jax.core.conditions import FaultState
from saddle_jax.core.estimator import GradientEstimator, plain_gradient
from saddle_jax.core.faults import Faults
from saddle_jax.core.gradients import AbstractGradients, Gradients, Kind, initial_states
from saddle_jax.core.graphs import TimeVarying
from saddle_jax.core.hyperparams import Hyperparams
from saddle_jax.core.messages import Round
from saddle_jax.core.metrics import Axes, Metrics
from saddle_jax.core.mixing import Graphs
from saddle_jax.core.network import Network
from saddle_jax.core.printed import Call, text_of
from saddle_jax.core.rule import Rule, Step
from saddle_jax.core.timing import Clock, Timing
from saddle_jax.core.topology import Topology

# What the random numbers of a step are for, beside those that the network hands out one after the other.
_FAULTS, _TIMING = 2**30, 2**30 + 1


class MethodState(NamedTuple):
    """A method remembers its step number and the states of its estimator and of its rule.

    >>> sj.qgm(sj.ring(2), 0.1).init(jnp.zeros(2)).t
    Array(0, dtype=int32)
    """

    t: Array  # steps taken, int32 []: the only counter of a run
    gradient: tuple[Any, ...]  # one entry for each gradient that a step asks for, [A, ...] or [A, K, ...]
    rule: Any  # the rule's state: [A, ...], [A, K, ...] or scalars
    faults: Any = ()  # what the network's faults remember; () without faults
    clock: Any = ()  # the agents' clocks; () if nobody measures time
    hyperparams: Any = ()  # arrays [] by name, see `sj.inject_hyperparams`; () if all are constants


class Trace(NamedTuple):
    """A trace lists what a step of one kind does; an abstract run of the step finds it."""

    rounds: tuple[Round, ...]  # what each link carries, round by round
    calls: tuple[Kind, ...]  # which gradients the rule asked for
    late: tuple[Tree, ...] = ()  # the shapes [A, ...] of what is sent in rounds that are delayed


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Method:
    """A method is a complete algorithm on a graph. The named ones (`sj.qgm`, ...) are made as yours is:

    >>> def step(s, x, state):  # D-PSGD: a local step, then an average with the neighbours
    ...     return s.network.mix(x - 0.1 * s.gradient(x)), state
    >>> method = sj.Method("mine", sj.complete(2), sj.Rule(lambda x: (), step))
    >>> x = jnp.array([0.0, 2.0])
    >>> method.step(lambda x, d: x * d, x, method.init(x), jnp.array([10.0, 0.0]))[0]
    Array([0.5, 0.5], dtype=float32)

    Attributes:
      name: the method's name.
      topology: who hears whom.
      rule: the algorithm.
      gradient: how the gradient of one model is taken, such as `sj.plain_gradient()` or `sj.sam(0.05)`.
      faults: what the network loses or delays, see `sj.Faults`; None: nothing.
      timing: how long messages and gradients take, see `sj.Timing`; None measures no time.
      call: what the named ones print, see `saddle_jax.core.printed`.
      hyperparams: how it is made of the numbers in its state, see `sj.inject_hyperparams`; None: it has none.
    """

    name: str
    topology: Graphs
    rule: Rule[Any]
    gradient: GradientEstimator[Any] = plain_gradient()
    faults: Faults | None = None
    timing: Timing | None = None
    call: Call | None = None
    hyperparams: Hyperparams | None = None

    def __post_init__(self) -> None:
        checks.instance("name", self.name, str, "'mine'")
        checks.instance("topology", self.topology, (Topology, TimeVarying), "sj.ring(10)")
        checks.instance("rule", self.rule, Rule, "sj.Rule(init, step)")
        checks.instance("gradient", self.gradient, GradientEstimator, "sj.sam(0.05)")
        self.rule.check()
        requirements.check_stochasticity(self.name, self.rule.requires, self.topology)
        agents = self.topology.size - self.topology.idle
        if self.faults is not None:
            checks.instance("faults", self.faults, Faults, "sj.Faults(drop=0.1)")
            self.faults.check_agents(agents)
            requirements.check_faults(self.faults, self.topology, self.rule)
        if self.timing is not None:
            checks.instance("timing", self.timing, Timing, "sj.Timing(latency=0.01)")
            self.timing.check_agents(agents)
        if self.hyperparams is not None:
            self.hyperparams.check(self)

    def __repr__(self) -> str:
        return text_of(self)

    def init(self, params: Params) -> MethodState:
        """Makes the state before the first step; params are stacked [A, ...], see `sj.replicate`."""
        trees.check_params(params, self.topology.size)
        params = jax.tree.map(jnp.asarray, params)
        state = self.rule.init(params)
        requirements.check_state(self.name, state, self.topology.size)
        calls = self.calls(params)  # raises an error if a step would fail
        self._check_kept_per_link(calls, params)
        estimator = initial_states(self.gradient, params, calls, self.topology.slots)
        return MethodState(
            jnp.zeros([], jnp.int32),
            estimator,
            state,
            () if self.faults is None else self._first_faults(self.faults, params),
            () if self.timing is None else self.timing.init(self.topology.size),
            () if self.hyperparams is None else self.hyperparams.first(params),
        )

    def step(
        self,
        loss_fn: LossFn,
        params: Params,
        state: MethodState,
        batch: Batch,
        key: Key | None = None,
        *,
        phase: int | None = None,
        diagnostics: bool = False,
        agents_per_call: int = 0,
    ) -> tuple[Params, MethodState, Metrics]:
        """Takes one step of all agents.

        It is pure: jit it with loss_fn, phase, diagnostics and agents_per_call static.

        Args:
          loss_fn: (params, batch) -> scalar loss of ONE agent, or (loss, aux); no agent axis.
          params: stacked models [A, ...].
          state: the state from `init` or from the step before.
          batch: one batch per agent, stacked [A, B, ...].
          key: consumed; compressors and estimators that draw random numbers need one, and so do faults and
            agents that straggle.
          phase: which kind of step this is, see `phase`. None decides by the state's t inside the compiled
            program, which then holds all kinds.
          diagnostics: whether to measure what costs extra passes over the parameters.
          agents_per_call: of a device's agents, how many are computed at a time; 0: see `policy.group_size`.

        Returns:
          The new models, the new state, and the metrics: loss [A], of the first backward pass (in a
          step that reuses a perturbation, at the perturbed point); aux (stacked [A, ...]) if
          loss_fn returns it; with diagnostics also gradient_norm ([A], or [A, K] for pairs),
          update_norm [A], consensus_distance [] of the new models, and what the rule notes:
          compression_error ||Q(theta) - theta|| and compression_input ||theta|| of compressed
          models [A], and the same with gradient_ in front of compressed cross-gradients [A, K]. Vectors
          [L] have one number for each parameter tensor in tree order, the mean over agents or pairs: of
          these norms, and zeta, the measured contraction. `metrics.axes` says which axes each one has.
        """
        if self.hyperparams is not None:
            numbers = self.hyperparams.at(state.t, state.hyperparams, params)
            method = self.hyperparams.method(self, numbers)
            params, state, taken = method.step(
                loss_fn, params, state._replace(hyperparams=()), batch, key,
                phase=phase, diagnostics=diagnostics, agents_per_call=agents_per_call,
            )  # fmt: skip
            return params, state._replace(hyperparams=numbers), taken
        trees.check_params(params, self.topology.size)
        trees.check_stacked("batch", batch, self.topology.size)
        self._check_phase(phase)
        batch = jax.tree.map(jnp.asarray, batch)
        call = _Call(loss_fn, params, state, batch, key, diagnostics, agents_per_call)
        kinds, stride = self.rule.all_kinds, self._gradient_kinds
        if phase is not None:
            return self._take(call, phase // stride, phase % stride)
        if len(kinds) == 1:
            return self._take(call, kinds[0], None)
        branches = [lambda kind=kind: self._take(call, kind, None) for kind in kinds]
        result: tuple[Params, MethodState, Metrics] = jax.lax.switch(
            self.rule.place(state.t), metrics.aligned(branches)
        )
        return result

    def _take(self, call: "_Call", kind: int, phase: int | None) -> tuple[Params, MethodState, Metrics]:
        """Takes a step of one kind of the rule; `phase` is the estimator's, or None to decide by t."""
        params, state = call.params, call.state
        network = Network(self.topology, self.rule.comm_round(state.t), call.key)
        faults: Any = () if self.faults is None else self._draw(self.faults, call, kind, network)
        oracle = Gradients(
            call.loss_fn,
            self.gradient,
            call.batch,
            network,
            state.t,
            list(state.gradient),
            phase,
            call.agents_per_call,
        )
        step = Step(state.t, params, network, oracle, call.diagnostics, kind)
        new, rule_state = self.rule.step(step, params, state.rule)
        requirements.check_alike("models", new, params)
        requirements.check_alike("state", rule_state, state.rule)
        if call.diagnostics:
            step.note("update_norm", trees.agent_norms(jax.tree.map(jnp.subtract, new, params)), "A")
            present = self.topology.present if self.topology.idle else None
            step.note("consensus_distance", trees.consensus_distance(new, present), "")
        after = MethodState(state.t + 1, tuple(oracle.states), rule_state, faults)
        if network.conditions is not None:
            # Whoever is away stands still, with all that it remembers.
            old = (params, state.gradient, state.rule)
            new, estimator, rule_state = network.conditions.frozen(old, (new, after.gradient, after.rule))
            after = after._replace(gradient=estimator, rule=rule_state)
            after = after._replace(faults=faults._replace(past=tuple(network.conditions.past or ())))
            step.note("sent", faults.sent, "A")
            if kind in self.rule.comm_kinds and self.faults is not None and self.faults.loses:
                step.note("messages_lost", network.conditions.lost(network.table), "")
        if self.timing is not None:
            clock = self._advance(self.timing, call, phase, network, oracle)
            step.note("simulated_seconds", clock.seconds, "")
            after = after._replace(clock=clock)
        return new, after, self._metrics(step.notes, oracle)

    def _first_faults(self, faults: Faults, params: Params) -> FaultState:
        comm_kinds = self.rule.comm_kinds
        late = [
            trace.late
            for kind, trace in zip(self.rule.all_kinds, self.trace(params), strict=True)
            if kind in comm_kinds
        ]
        first = self.topology.graphs[0].occupied
        return faults.init(first, len(comm_kinds), late[0] if late else ())

    def _draw(self, faults: Faults, call: "_Call", kind: int, network: Network) -> FaultState:
        """Draws what goes wrong in this step and tells the network; returns what the faults remember."""
        key = None if call.key is None else jax.random.fold_in(call.key, _FAULTS)
        comm_kinds = self.rule.comm_kinds.index(kind) if kind in self.rule.comm_kinds else None
        network.conditions, state = faults.draw(
            key, call.state.t, network.table, call.state.faults, comm_kinds
        )
        return state

    def _advance(
        self, timing: Timing, call: "_Call", phase: int | None, network: Network, oracle: Gradients
    ) -> Clock:
        """Returns the agents' clocks after the step."""
        key = None if call.key is None else jax.random.fold_in(call.key, _TIMING)
        t, estimator = call.state.t, self.gradient
        by_phase = jnp.array([estimator.passes(each) for each in estimator.phases], jnp.float32)
        passes = by_phase[t % estimator.period] if phase is None else jnp.float32(estimator.passes(phase))
        degrees = network.table.occupied.sum(axis=1)  # each agent answers all of its neighbours, and itself
        calls = [jnp.float32(1) if kind == "own" else degrees for kind in oracle.calls]
        total = passes * sum(calls, start=jnp.zeros(self.topology.size, jnp.float32))
        return timing.advance(key, t, network, total, call.state.clock)

    def phase(self, t: int) -> int:
        """Returns the kind of step number t, counted from 0, for loops that count steps themselves.

        It tells both the rule's kind and the estimator's: steps of one kind are one compiled program.
        """
        return self.rule.phase(checks.whole("t", t, at_least=0)) * self._gradient_kinds + self.gradient.phase(
            t
        )

    @property
    def _gradient_kinds(self) -> int:
        return max(self.gradient.phases) + 1

    def calls(self, params: Params) -> tuple[Kind, ...]:
        """Lists the gradients that a step asks for, for stacked parameters (or their shapes) [A, ...].

        Steps of other kinds may ask for fewer; the estimator's states are kept for each question.
        """
        lists = [trace.calls for trace in self.trace(params)]
        most = max(lists, key=len)
        for calls in lists:
            if calls != most[: len(calls)]:
                raise ArgumentError(
                    f"{self.name} must ask for the same gradients in the same order in steps of all kinds, "
                    f"got {calls} and {most}"
                )
        return most

    def trace(self, params: Params) -> tuple[Trace, ...]:
        """Lists what a step does for stacked parameters (or their shapes) [A, ...]; computes nothing.

        There is one trace for each kind of step, in the order of `Rule.all_kinds`. `comm_cost`, the memory
        estimate and `init` all ask for them: they are remembered for each set of shapes.
        """
        leaves, structure = jax.tree.flatten(params)
        shapes = (structure, *((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves))
        traces: dict[Any, tuple[Trace, ...]] = self.__dict__.setdefault("_traces", {})
        if shapes not in traces:
            traces[shapes] = tuple(self._trace(params, kind) for kind in self.rule.all_kinds)
        return traces[shapes]

    def _trace(self, params: Params, kind: int) -> Trace:
        rounds: list[Round] = []
        oracle = AbstractGradients(self.topology.slots)

        def abstract_step(x: Params, t: Array, key: Key) -> Any:
            network = Network(self.topology, t, key, rounds=rounds)
            if self.faults is not None:
                network.conditions = self.faults.abstract_conditions(network.table)
            state = self.rule.init(x)
            step = Step(t, x, network, oracle, diagnostics=False, phase=kind)
            new, new_state = self.rule.step(step, x, state)
            requirements.check_alike("models", new, x)
            requirements.check_alike("state", new_state, state)
            return () if network.conditions is None else tuple(network.conditions.noted)

        t, key = jax.ShapeDtypeStruct((), jnp.int32), jax.eval_shape(jax.random.key, 0)
        late = jax.eval_shape(abstract_step, params, t, key)
        if rounds and kind in self.rule.local_kinds:
            raise ArgumentError(
                f"{self.name} must send nothing in steps of kind {kind}, which it calls local"
            )
        return Trace(tuple(rounds), tuple(oracle.calls), late)

    def _check_kept_per_link(self, calls: tuple[Kind, ...], params: Params) -> None:
        """Checks that an estimator which remembers something of pairs meets the same ones in every step."""
        one = jax.tree.map(lambda leaf: leaf[0], params)
        per_pair = set(calls) - {"own"} and self.gradient.keeps_state(one)
        if per_pair and self.faults is not None and self.faults.loses:
            raise ArgumentError(
                f"faults must lose nothing for {self.gradient}, which remembers pairs, got {self.faults!r}"
            )
        if per_pair and not self.topology.has_fixed_links:
            raise ArgumentError(
                f"topology must have the same links in every step for {self.gradient}, which remembers "
                f"pairs, got {self.topology.name}"
            )

    def _check_phase(self, phase: Any) -> None:
        if phase is None:
            return
        if not isinstance(phase, int):
            raise ArgumentError(
                f"phase must be a static integer: jit with static_argnames=('phase',), got {phase!r}"
            )
        stride = self._gradient_kinds
        allowed = sorted(
            {kind * stride + other for kind in self.rule.all_kinds for other in self.gradient.phases}
        )
        if phase not in allowed:
            raise ArgumentError(f"phase must be one of {allowed}, got {phase}")

    def _metrics(self, notes: dict[str, tuple[Any, Axes]], oracle: Gradients) -> Metrics:
        """Makes metrics of all notes, without the rows of idle agents."""
        if oracle.evaluations:
            first = oracle.evaluations[0]
            notes = {"loss": (first.loss, "A"), "aux": (first.aux, "A"), **notes}
        count = self.topology.size - self.topology.idle

        def of_present(value: Tree, axes: Axes) -> Tree:
            return jax.tree.map(lambda x: x[:count], value) if axes in ("A", "AK") else value

        notes = {name: note for name, note in notes.items() if note[0] is not None}
        return Metrics(
            {name: of_present(*note) for name, note in notes.items()},
            {name: axes for name, (_, axes) in notes.items()},
        )


class _Call(NamedTuple):
    """What `Method.step` was called with, for steps of all kinds."""

    loss_fn: LossFn
    params: Params
    state: MethodState
    batch: Batch
    key: Key | None
    diagnostics: bool
    agents_per_call: int
