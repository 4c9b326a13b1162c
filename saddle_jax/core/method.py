"""A method: a topology, a rule (the algorithm itself) and a gradient estimator."""

import dataclasses
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeAlias

import jax
import jax.numpy as jnp

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array, Batch, Key, LossFn, Params, Tree
from saddle_jax.core import trees
from saddle_jax.core.faults import Clock, Faults, FaultState, Timing
from saddle_jax.core.gradients import (
    AbstractGradients,
    Evaluation,
    FixedGradients,
    GradientEstimator,
    Gradients,
    Scope,
    initial_states,
    plain_gradient,
)
from saddle_jax.core.network import Network, Round
from saddle_jax.core.rule import Axes, Rule, Step
from saddle_jax.core.topology import Graphs, Stochasticity, TimeVarying, Topology, check_topology

# Which kind of step it is: the rule's kind, such as a local step, and the gradient's, such as SAM's reuse.
StepKind: TypeAlias = tuple[int, int]

# The parts that users change with `dataclasses.replace`, apart from the rule.
_PARTS = ("name", "topology", "gradient", "faults", "timing")
# Folded into the step's key; the network's own keys count up from one.
_FAULTS, _TIMING = 2**30, 2**30 + 1


class MethodState(NamedTuple):
    """State of a method: the number of steps taken, and the states of its estimator, rule and faults.

    >>> sj.qgm(sj.ring(2), 0.1).init(jnp.zeros(2)).t
    Array(0, dtype=int32)
    """

    t: Array  # steps taken, int32 []: the only counter of a run
    gradient: tuple[Any, ...]  # one entry for each gradient that a step asks for, [A, ...] or [A, K, ...]
    rule: Any  # the rule's state: [A, ...], [A, K, ...] or scalars
    faults: Any = ()  # a `FaultState`; () without faults
    clock: Any = ()  # the agents' clocks; () without timing
    hyperparams: Any = ()  # arrays [] by name, see `sj.inject_hyperparams`; () if all are constants


class Trace(NamedTuple):
    """The rounds and gradients of a step of one kind, found by tracing the step abstractly."""

    rounds: tuple[Round, ...]  # what each link carries, round by round
    calls: tuple[Scope, ...]  # which gradients the rule asked for
    late: tuple[Tree, ...] = ()  # the shapes [A, ...] of what is sent in rounds that are delayed


@jax.tree_util.register_pytree_with_keys_class
@dataclasses.dataclass(frozen=True)
class Metrics(Mapping[str, Any]):
    """The metrics of a step by name; `axes` gives the meaning of each one's axes.

    `aux`, the auxiliary output of the loss function, is a tree of arrays [A, ...].

    >>> method, x = sj.dpsgd(sj.ring(2), 0.1, beta=0.0, weight_decay=0.0), jnp.array([0.0, 2.0])
    >>> _, _, metrics = method.step(lambda x, d: x * d, x, method.init(x), jnp.array([10.0, 3.0]))
    >>> metrics["loss"], metrics.axes
    (Array([0., 6.], dtype=float32), {'loss': 'A'})
    """

    arrays: dict[str, Any]
    axes: dict[str, Axes]

    def __getitem__(self, name: str) -> Any:
        return self.arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    def adding(self, **numbers: Any) -> "Metrics":
        """Returns these metrics with further scalars []."""
        return Metrics({**self.arrays, **numbers}, {**self.axes, **dict.fromkeys(numbers, "")})

    def tree_flatten_with_keys(self) -> Any:
        """Returns the named values, and the axes as static data; called by JAX."""
        names = sorted(self.arrays)
        children = [(jax.tree_util.DictKey(name), self.arrays[name]) for name in names]
        return children, tuple((name, self.axes[name]) for name in names)

    @classmethod
    def tree_unflatten(cls, axes: Any, values: Any) -> "Metrics":
        """Rebuilds the metrics from axes and values; called by JAX."""
        return cls({name: value for (name, _), value in zip(axes, values, strict=True)}, dict(axes))


class Call(NamedTuple):
    """The call that made a method, and the parts that the method had then."""

    factory: Callable[..., "Method"]
    arguments: dict[str, Any]  # by name, with the defaults
    rule: Any
    parts: dict[str, str]  # the others, as they print

    def __repr__(self) -> str:
        """Returns the call without default arguments; the first one is written without its name."""
        parameters = inspect.signature(self.factory).parameters
        shown = {name: _shown(value) for name, value in self.arguments.items()}
        first, *others = shown
        words = [f"{name}={shown[name]}" for name in others
                 if shown[name] != _shown(parameters[name].default)]  # fmt: skip
        return f"{self.factory.__name__}({', '.join([shown[first], *words])})"


@dataclasses.dataclass(frozen=True, eq=False)
class Hyperparams:
    """How a method is rebuilt from the hyperparameters in its state, see `sj.inject_hyperparams`.

    Attributes:
      make: (**numbers) -> the method with these numbers.
      numbers: the initial values by name; a function of the step is evaluated in every step.
      made: the method with these numbers as arrays, to find the parts that were replaced since.
    """

    make: Callable[..., "Method"]
    numbers: Mapping[str, Any]
    made: "Method"

    def first(self, params: Params) -> dict[str, Array]:
        """Returns the initial numbers, arrays [] of the dtype of the parameters."""
        first = {name: each(0) if callable(each) else each for name, each in self.numbers.items()}
        return trees.scalars_like(first, params)

    def init(self, current: "Method", numbers: Mapping[str, Any], params: Params) -> MethodState:
        """Returns the state before the first step with other numbers, which may be traced."""
        arrays = trees.scalars_like(numbers, params)
        return self.method(current, numbers).init(params)._replace(hyperparams=arrays)

    def now(self, current: "Method", params: Params, state: MethodState) -> tuple["Method", dict[str, Array]]:
        """Returns the method of a step and its numbers: those in the state, schedules evaluated at t."""
        said = {name: each(state.t) for name, each in self.numbers.items() if callable(each)}
        numbers = {**state.hyperparams, **trees.scalars_like(said, params)}
        return self.method(current, numbers), numbers

    def method(self, current: "Method", numbers: Mapping[str, Any]) -> "Method":
        """Returns the method with other numbers, and with the parts that were replaced in `current`."""
        parts = {name: getattr(current, name) for name in _PARTS}
        own = {name: part for name, part in parts.items() if part is not getattr(self.made, name)}
        return dataclasses.replace(self.make(**numbers), **own)

    def check(self, method: "Method") -> None:
        """Checks that the rule was not replaced: another one would not depend on the numbers."""
        if method.rule is not self.made.rule:
            raise ArgumentError(
                f"the rule of {method.name} must not be replaced once its hyperparameters are in the state: "
                "give inject_hyperparams a function that makes the whole method"
            )


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Method:
    """A complete algorithm on a graph. The named methods (`sj.qgm`, ...) are made like one of your own:

    >>> def step(s, x, state):  # D-PSGD: a local step, then an average with the neighbours
    ...     return s.network.mix(x - 0.1 * s.gradient(x)), state
    >>> method = sj.Method("mine", sj.complete(2), sj.Rule(lambda x: (), step))
    >>> x = jnp.array([0.0, 2.0])
    >>> method.step(lambda x, d: x * d, x, method.init(x), jnp.array([10.0, 0.0]))[0]
    Array([0.5, 0.5], dtype=float32)

    Attributes:
      name: the method's name.
      topology: the communication graph.
      rule: the algorithm.
      gradient: the gradient estimator, such as `sj.plain_gradient()` or `sj.sam(0.05)`.
      faults: what the network loses or delays, see `sj.Faults`; None: nothing.
      timing: how long messages and gradients take, see `sj.Timing`; None does not simulate time.
      call: the call that made a named method, see `printed`.
      hyperparams: the hyperparameters in its state, see `sj.inject_hyperparams`; None: all are constants.
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
        check_topology(self.topology)
        checks.instance("rule", self.rule, Rule, "sj.Rule(init, step)")
        checks.instance("gradient", self.gradient, GradientEstimator, "sj.sam(0.05)")
        self.rule.check()
        check_stochasticity(self.name, self.rule.requires, self.topology)
        agents = self.topology.size - self.topology.idle
        if self.faults is not None:
            checks.instance("faults", self.faults, Faults, "sj.Faults(drop=0.1)")
            self.faults.check_agents(agents)
            check_faults(self.faults, self.topology, self.rule)
        if self.timing is not None:
            checks.instance("timing", self.timing, Timing, "sj.Timing(latency=0.01)")
            self.timing.check_agents(agents)
        if self.hyperparams is not None:
            self.hyperparams.check(self)

    def __repr__(self) -> str:
        return text_of(self)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by name, with defaults, that made this rule; empty for a method of your own.

        >>> sj.qgm(sj.ring(2), 0.1).arguments["weight_decay"]
        0.0001
        >>> sj.slowmo(sj.qgm(sj.ring(2), 0.1), 0.1).arguments["method"].arguments["beta"]
        0.9
        """
        made = self.call is not None and self.call.rule is self.rule
        return dict(self.call.arguments) if self.call is not None and made else {}

    def init(self, params: Params) -> MethodState:
        """Returns the state before the first step; params are stacked [A, ...], see `sj.replicate`."""
        trees.check_params("params", params, self.topology.size)
        params = jax.tree.map(jnp.asarray, params)
        state = self.rule.init(params)
        check_state(self.name, state, self.topology.size)
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
        kind: StepKind | None = None,
        diagnostics: bool = False,
        agents_per_call: int = 0,
    ) -> tuple[Params, MethodState, Metrics]:
        """Takes one step of all agents.

        It is pure: jit it with loss_fn, kind, diagnostics and agents_per_call static, or see `compile`.

        Args:
          loss_fn: (params, batch) -> scalar loss of ONE agent, or (loss, aux); no agent axis.
          params: stacked models [A, ...].
          state: the state from `init` or from the step before.
          batch: one batch per agent, stacked [A, B, ...].
          key: consumed; needed by compressors and estimators that draw random numbers, by faults, and by
            `compute_sigma` of the timing.
          kind: the kind of this step, see `kind`. None decides by the state's t inside the compiled
            program, which then contains all kinds.
          diagnostics: whether to add metrics that cost extra passes over the parameters.
          agents_per_call: of a device's agents, how many are computed at a time; 0: see `policy.group_size`.

        Returns:
          The new models, the new state, and the metrics: loss [A], of the first backward pass (in a
          step that reuses a perturbation, at the perturbed point); aux (stacked [A, ...]) if
          loss_fn returns it; with diagnostics also gradient_norm ([A], or [A, K] for pairs),
          update_norm [A], consensus_distance [] of the new models, and the rule's own metrics:
          compression_error ||Q(theta) - theta|| and compression_input ||theta|| of compressed
          models [A], and the same with the prefix gradient_ for compressed cross-gradients [A, K]. Vectors
          [L] have one number for each parameter tensor in tree order, the mean over agents or pairs: of
          these norms, and zeta, the measured contraction. `metrics.axes` gives the axes of each.
        """
        trees.check_params("params", params, self.topology.size)
        trees.check_stacked("batch", batch, self.topology.size)
        self._check_kind(kind)
        batch = jax.tree.map(jnp.asarray, batch)
        gradient_kind = None if kind is None else kind[1]

        def oracle(method: Method, network: Network) -> Gradients:
            states = list(state.gradient)
            return Gradients(
                loss_fn, method.gradient, batch, network, state.t, states, gradient_kind, agents_per_call
            )

        return self._step(oracle, params, state, key, kind, diagnostics)

    def step_with(
        self,
        oracle: Callable[[Network], Gradients | FixedGradients],
        params: Params,
        state: MethodState,
        key: Key | None = None,
        *,
        kind: StepKind | None = None,
        diagnostics: bool = False,
    ) -> tuple[Params, MethodState, Metrics]:
        """Takes one step as `step` does, with the gradients of oracle(network)."""
        return self._step(lambda method, network: oracle(network), params, state, key, kind, diagnostics)

    def _step(
        self,
        oracle: Callable[["Method", Network], Gradients | FixedGradients],
        params: Params,
        state: MethodState,
        key: Key | None,
        kind: StepKind | None,
        diagnostics: bool,
    ) -> tuple[Params, MethodState, Metrics]:
        """Takes one step with the gradients of oracle(method with its hyperparameters, network)."""
        if self.hyperparams is not None:
            method, numbers = self.hyperparams.now(self, params, state)
            state = state._replace(hyperparams=())
            params, state, metrics = method._step(oracle, params, state, key, kind, diagnostics)
            return params, state._replace(hyperparams=numbers), metrics
        call = _Call(functools.partial(oracle, self), params, state, key, diagnostics)
        kinds = self.rule.all_kinds if kind is None else (kind[0],)
        gradient_kind = None if kind is None else kind[1]
        branches = [lambda each=each: self._take(call, each, gradient_kind) for each in kinds]
        if len(branches) == 1:
            return branches[0]()
        taken: tuple[Params, MethodState, Metrics] = jax.lax.switch(
            self.rule.place(state.t), aligned(branches)
        )
        return taken

    def compile(
        self, loss_fn: LossFn, *, diagnostics: bool = False, agents_per_call: int = 0
    ) -> Callable[..., tuple[Params, MethodState, Metrics]]:
        """Returns a jitted step (params, state, batch, key=None) -> (params, state, metrics) for your loop.

        Each kind of step is compiled by itself; the state's t chooses among them. See `step` for the rest.

        >>> method = sj.dpsgd(sj.complete(2), 0.1, local_steps=2, beta=0.0, weight_decay=0.0)
        >>> x = jnp.array([0.0, 2.0])
        >>> step, state = method.compile(lambda x, d: x * d), method.init(x)
        >>> for _ in range(2):
        ...     x, state, metrics = step(x, state, jnp.array([10.0, 0.0]))
        >>> x  # (0 - 1 - 1 + 2) / 2
        Array([0., 0.], dtype=float32)
        """
        of_loss = functools.partial(
            self.step, loss_fn, diagnostics=diagnostics, agents_per_call=agents_per_call
        )
        compiled = jax.jit(of_loss, static_argnames="kind")
        is_one_kind = len(self.rule.all_kinds) == len(set(self.gradient.kinds)) == 1

        def step(
            params: Params, state: MethodState, batch: Batch, key: Key | None = None
        ) -> tuple[Params, MethodState, Metrics]:
            decides_itself = is_one_kind or isinstance(state.t, jax.core.Tracer)
            kind = None if decides_itself else self.kind(int(state.t))
            taken: tuple[Params, MethodState, Metrics] = compiled(params, state, batch, key, kind=kind)
            return taken

        return step

    def _take(
        self, call: "_Call", kind: int, gradient_kind: int | None
    ) -> tuple[Params, MethodState, Metrics]:
        """Takes a step of one kind of the rule; with gradient_kind None, t decides the kind of gradient."""
        params, state = call.params, call.state
        network = Network(self.topology, self.rule.comm_round(state.t), call.key)
        faults: Any = () if self.faults is None else self._draw(self.faults, call, kind, network)
        oracle = call.oracle(network)
        step = Step(state.t, params, network, oracle, call.diagnostics, kind)
        new, rule_state = self.rule.step(step, params, state.rule)
        check_alike("models", new, params)
        check_alike("state", rule_state, state.rule)
        if call.diagnostics:
            step.note("update_norm", trees.agent_norms(jax.tree.map(jnp.subtract, new, params)), "A")
            present = self.topology.present if self.topology.idle else None
            step.note("consensus_distance", trees.consensus_distance(new, present), "")
        after = MethodState(state.t + 1, tuple(oracle.states), rule_state, faults)
        if network.conditions is not None:
            # Agents that are offline are frozen, with all of their state.
            old = (params, state.gradient, state.rule)
            new, estimator, rule_state = network.conditions.frozen(old, (new, after.gradient, after.rule))
            after = after._replace(gradient=estimator, rule=rule_state)
            after = after._replace(faults=faults._replace(past=tuple(network.conditions.past or ())))
            step.note("sent", faults.sent, "A")
            if kind in self.rule.comm_kinds and self.faults is not None and self.faults.loses:
                step.note("messages_lost", network.conditions.lost(network.table), "")
        if self.timing is not None:
            clock = self._advance(self.timing, call, gradient_kind, network, oracle.calls)
            step.note("simulated_seconds", clock.seconds, "")
            after = after._replace(clock=clock)
        return new, after, self._metrics(step.notes, oracle.evaluations)

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
        """Draws the network's conditions in this step and returns the new state of the faults."""
        key = None if call.key is None else jax.random.fold_in(call.key, _FAULTS)
        index = self.rule.comm_kinds.index(kind) if kind in self.rule.comm_kinds else None
        network.conditions, state = faults.draw(key, call.state.t, network.table, call.state.faults, index)
        return state

    def _advance(
        self, timing: Timing, call: "_Call", kind: int | None, network: Network, calls: Sequence[Scope]
    ) -> Clock:
        """Returns the agents' clocks after the step."""
        key = None if call.key is None else jax.random.fold_in(call.key, _TIMING)
        t, estimator = call.state.t, self.gradient
        by_kind = jnp.array([estimator.passes(each) for each in estimator.kinds], jnp.float32)
        passes = by_kind[t % estimator.period] if kind is None else jnp.float32(estimator.passes(kind))
        degrees = network.table.occupied.sum(axis=1)  # an agent computes for all its neighbours and itself
        batches = [jnp.float32(1) if each == "own" else degrees for each in calls]
        total = passes * sum(batches, start=jnp.zeros(self.topology.size, jnp.float32))
        return timing.advance(key, t, network, total, call.state.clock)

    def kind(self, t: int) -> StepKind:
        """Returns the kinds of rule and gradient in step number t, counted from 0.

        A loop that counts steps itself passes it to `step`, so that each kind is compiled by itself.
        """
        return self.rule.kind(checks.whole("t", t, at_least=0)), self.gradient.kind(t)

    def calls(self, params: Params) -> tuple[Scope, ...]:
        """Lists the gradients that a step asks for, for stacked parameters (or their shapes) [A, ...].

        Steps of other kinds may ask for fewer; the estimator has a state for each.
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
        """Lists the rounds and gradients of a step for stacked parameters (or their shapes) [A, ...].

        There is one trace for each kind of step, in the order of `Rule.all_kinds`. Nothing is computed, and
        traces are cached by shapes: `comm_cost`, the memory estimate and `init` all need them.
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
            step = Step(t, x, network, oracle, diagnostics=False, kind=kind)
            new, new_state = self.rule.step(step, x, state)
            check_alike("models", new, x)
            check_alike("state", new_state, state)
            return () if network.conditions is None else tuple(network.conditions.noted)

        t, key = jax.ShapeDtypeStruct((), jnp.int32), jax.eval_shape(jax.random.key, 0)
        late = jax.eval_shape(abstract_step, params, t, key)
        if rounds and kind in self.rule.local_kinds:
            raise ArgumentError(
                f"{self.name} must send nothing in steps of kind {kind}, which it calls local"
            )
        return Trace(tuple(rounds), tuple(oracle.calls), late)

    def _check_kept_per_link(self, calls: tuple[Scope, ...], params: Params) -> None:
        """Checks that an estimator with a state for each pair has the same pairs in every step."""
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

    def _check_kind(self, kind: Any) -> None:
        if kind is None:
            return
        if any(isinstance(each, jax.core.Tracer) for each in (kind if isinstance(kind, tuple) else [kind])):
            raise ArgumentError("kind must be static, got a traced one: jit with static_argnames=('kind',)")
        allowed = list(itertools.product(self.rule.all_kinds, sorted(set(self.gradient.kinds))))
        if kind not in allowed:
            raise ArgumentError(f"kind must be one of {allowed}, got {kind!r}")

    def _metrics(self, notes: dict[str, tuple[Any, Axes]], evaluations: Sequence[Evaluation]) -> Metrics:
        """Returns the noted values as metrics, without the rows of idle agents."""
        if evaluations:
            first = evaluations[0]
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
    """The arguments of a step, for steps of all kinds."""

    oracle: Callable[[Network], Gradients | FixedGradients]
    params: Params
    state: MethodState
    key: Key | None
    diagnostics: bool


# ---- what a step measured ----


def aligned(branches: Sequence[Callable[[], tuple[Any, Any, Metrics]]]) -> list[Callable[[], Any]]:
    """Makes steps of several kinds return the same metrics, as `jax.lax.switch` requires of its branches.

    Each branch returns (models, state, metrics). A metric that a branch lacks is NaN, or -1 if it is an
    integer.
    """
    measured = [jax.eval_shape(branch)[2] for branch in branches]
    shapes = {name: value for each in measured for name, value in each.items()}
    axes = {name: kind for each in measured for name, kind in each.axes.items()}

    def filled(branch: Callable[[], tuple[Any, Any, Metrics]]) -> Callable[[], Any]:
        def run() -> Any:
            models, state, metrics = branch()
            others = {
                name: jax.tree.map(_nothing, shape) for name, shape in shapes.items() if name not in metrics
            }
            return models, state, Metrics({**metrics.arrays, **others}, axes)

        return run

    return [filled(branch) for branch in branches]


def _nothing(like: Any) -> Any:
    return jnp.full(like.shape, jnp.nan if jnp.issubdtype(like.dtype, jnp.floating) else -1, like.dtype)


# ---- whether the parts fit together, and whether a rule returns what it must ----


_MEANING: dict[Stochasticity, str] = {
    "doubly": "the agents' average (W doubly stochastic)",
    "row": "agreement (rows of W sum to one)",
    "column": "the agents' sum (columns of W sum to one)",
}


def check_stochasticity(name: str, required: Stochasticity | None, topology: Graphs) -> None:
    """Checks that the graph has the stochasticity that a rule requires."""
    stochasticity = topology.stochasticity
    if required is not None and stochasticity not in (required, "doubly"):
        raise ArgumentError(
            f"{name} needs a topology that keeps {_MEANING[required]}, "
            f"got {topology.name}, which keeps {_MEANING[stochasticity]}"
        )


def check_faults(faults: Faults, topology: Graphs, rule: Rule[Any]) -> None:
    """Checks that the faults are defined for this graph and rule."""
    if topology.stochasticity == "column":
        if faults.lost_weight != "self":
            raise ArgumentError(
                f"lost_weight must be 'self' on {topology.name}, whose senders keep what they cannot "
                f"deliver, got {faults.lost_weight!r}"
            )
        if faults.delay and faults.has_absences:
            raise ArgumentError(
                f"delay must be 0 on {topology.name} where agents are away: what is under way to them would "
                f"take mass away, got {faults.delay}"
            )
    if faults.burst is not None and not topology.has_fixed_links:
        raise ArgumentError(
            f"burst must be None on {topology.name}, whose links are others in every step, got {faults.burst}"
        )
    if faults.delay and not topology.has_fixed_links:
        raise ArgumentError(
            f"delay must be 0 on {topology.name}, whose links are others in every step, got {faults.delay}"
        )
    if faults.delay and len(rule.comm_kinds) > 1:
        raise ArgumentError(
            f"delay must be 0 for a method with {len(rule.comm_kinds)} kinds of steps that communicate, "
            f"got {faults.delay}"
        )


def check_state(name: str, state: Any, size: int) -> None:
    """Checks that every leaf of a rule's state is [A, ...] or a scalar."""
    for path, leaf in jax.tree.leaves_with_path(state):
        if jnp.ndim(leaf) and jnp.shape(leaf)[0] != size:
            raise ArgumentError(
                f"state{jax.tree_util.keystr(path)} of {name} must be a scalar or have leading axis "
                f"A = {size}, got shape {jnp.shape(leaf)}"
            )


def check_alike(what: str, new: Tree, old: Tree) -> None:
    """Checks that a rule returned a tree of the same structure, shapes and dtypes as it was given."""
    given: Any = jax.tree.structure(old)
    returned: Any = jax.tree.structure(new)
    if returned != given:
        raise ArgumentError(
            f"the rule must return {what} of the structure that it got, {given}, got {returned}"
        )
    for (path, x), y in zip(jax.tree.leaves_with_path(new), jax.tree.leaves(old), strict=True):
        if jnp.shape(x) != jnp.shape(y) or jnp.result_type(x) != jnp.result_type(y):
            raise ArgumentError(
                f"the rule must return {what} of the shapes and dtypes that it got, "
                f"{jnp.result_type(y)}{list(jnp.shape(y))} for {what}{jax.tree_util.keystr(path)}, "
                f"got {jnp.result_type(x)}{list(jnp.shape(x))}"
            )


# ---- how a method prints ----


_P = ParamSpec("_P")


def printed(factory: Callable[_P, "Method"]) -> Callable[_P, "Method"]:
    """Wraps a factory so that its methods know the call that makes them, which `repr` shows.

    Parts that were replaced later are shown as a call of `dataclasses.replace`.
    """
    signature = inspect.signature(factory)

    @functools.wraps(factory)
    def make(*args: _P.args, **options: _P.kwargs) -> "Method":
        method = factory(*args, **options)
        bound = signature.bind(*args, **options)
        bound.apply_defaults()
        return dataclasses.replace(method, call=Call(factory, bound.arguments, method.rule, _parts(method)))

    return make


def text_of(method: "Method") -> str:
    """Returns the `repr` of a method, one line."""
    parts, call = _parts(method), method.call
    if call is not None and call.rule is method.rule:
        text, first = repr(call), call.parts
    else:
        text = f"Method({parts['name']}, {parts['topology']}, ..., {parts['gradient']})"
        first = parts | {"faults": "None", "timing": "None"}
    changed = [f"{name}={part}" for name, part in parts.items() if part != first[name]]
    return f"dataclasses.replace({text}, {', '.join(changed)})" if changed else text


def _parts(method: "Method") -> dict[str, str]:
    return {name: _shown(getattr(method, name)) for name in _PARTS}


def _shown(value: Any) -> str:
    return value.name if isinstance(value, Topology | TimeVarying) else checks.argument_text(value)
