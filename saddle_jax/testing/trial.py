"""A method under test: a small problem, a graph that the method accepts, and programs that compile once.

Most invariants compare runs of the same program. So a trial compiles four programs: the step, the step
without communication, the step on four devices with idle agents, and that of several runs under vmap. All
numbers are float64, to tell rounding from errors.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array, Batch, Key, Params, Tree
from saddle_jax.compression.base import identity
from saddle_jax.core.faults import Faults
from saddle_jax.core.gradients import Gradients
from saddle_jax.core.method import Method, MethodState
from saddle_jax.core.network import Message, Network, Round
from saddle_jax.core.rule import Step
from saddle_jax.core.topology import Topology, from_matrix
from saddle_jax.devices import lifting
from saddle_jax.devices.compilations import compilations
from saddle_jax.graphs.named import isolated, path
from saddle_jax.methods.saddle import saddle
from saddle_jax.sam.sam import sam
from saddle_jax.testing.invariants import InapplicableError, InvariantError

AGENTS, SPREAD, DEVICES = 10, 12, 4  # with two idle agents each of four devices has three
RATE = 0.1
RUNS = ((RATE, 0.0), (2 * RATE, 0.0), (RATE, 0.2))  # learning rates and radii of SAM
# Reversing the order of the agents maps the graphs below onto themselves.
REVERSED = np.arange(AGENTS)[::-1]
_LINKS = {(0, 1): 0.3, (1, 2): 0.2, (2, 3): 0.25, (3, 4): 0.15, (4, 5): 0.35, (0, 9): 0.2, (2, 7): 0.1}

# Trials spend more time compiling than computing.
compiled = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


class Snapshot(NamedTuple):
    """The carry of a run: models and state."""

    params: Params
    state: MethodState


def graphs() -> tuple[Topology, ...]:
    """Returns the graphs of a trial; a method gets the first one that it accepts.

    The first is a ring with a chord: weights and degrees vary, and its diameter is four.
    """
    matrix = np.zeros((AGENTS, AGENTS))
    for (i, j), weight in _LINKS.items():
        for a, b in ((i, j), (REVERSED[i], REVERSED[j])):
            matrix[a, b] = matrix[b, a] = weight
    matrix += np.diag(1 - matrix.sum(axis=1))
    return from_matrix(matrix, name="a ring with a chord"), path(AGENTS)


def loss_fn(params: Params, batch: Batch) -> Array:
    """Returns the loss of one agent: regression through tanh with sample weights [B]."""
    errors = jnp.tanh(batch["x"] @ params["w"] + params["b"][None]) - batch["y"]
    return jnp.mean(batch["weight"][:, None] * errors**2)


def start(agents: int = AGENTS, dtype: Any = np.float64) -> Params:
    """Draws different models of 8 numbers for the agents, [A, ...]."""
    random = np.random.default_rng(0)
    return {
        "b": jnp.asarray(random.normal(size=(agents, 2)), dtype),
        "w": jnp.asarray(random.normal(size=(agents, 3, 2)), dtype),
    }


def batch_of(t: int, agents: int = AGENTS, dtype: Any = np.float64, weight: float = 1.0) -> Batch:
    """Draws the batches of step t, three samples per agent, [A, B, ...]."""
    random = np.random.default_rng(1 + t)
    return {
        "weight": jnp.full((agents, 3), weight, dtype),
        "x": jnp.asarray(random.normal(size=(agents, 3, 3)), dtype),
        "y": jnp.asarray(random.normal(size=(agents, 3, 2)), dtype),
    }


def key_of(t: int) -> Key:
    """Returns the key of step t."""
    return jax.random.fold_in(jax.random.key(7), t)


@dataclasses.dataclass(eq=False)
class Trial:
    """The method under test, made by `factory(topology, learning_rate, **options)`."""

    factory: Callable[..., Method]
    options: dict[str, Any]

    def make(self, rate: Any, topology: Topology | None = None) -> Method:
        """Makes the method as the command line does, with a schedule, whose value may be traced."""
        graph = self.topology if topology is None else topology
        method = self.factory(graph, learning_rate=optax.constant_schedule(rate), **self.options)
        if not isinstance(method, Method):
            raise InvariantError(f"the factory must return a Method, got {method!r:.80}")
        return method

    @functools.cached_property
    def topology(self) -> Topology:
        """The first graph that the method accepts."""
        refusals = []
        for graph in graphs():
            try:
                jax.eval_shape(self.make(RATE, graph).init, start())
                return graph
            except ArgumentError as error:
                refusals.append(error)
        raise refusals[0]

    @functools.cached_property
    def method(self) -> Method:
        """The method with a constant learning rate."""
        return self.make(RATE)

    @functools.cached_property
    def length(self) -> int:
        """The number of steps of a run, enough for two steps of each kind."""
        rule, estimator = self.method.rule, self.method.gradient
        return min(len(rule.first_kinds) + max(4, 2 * len(rule.kinds), 2 * estimator.period), 12)

    def rounds(self, t: int) -> tuple[Round, ...]:
        """Returns the communication rounds of step t."""
        traces = dict(zip(self.method.rule.all_kinds, self.method.trace(start()), strict=True))
        return traces[self.method.rule.kind(t)].rounds

    @functools.cached_property
    def all_rounds(self) -> tuple[Round, ...]:
        """The communication rounds of all kinds of steps."""
        return tuple(each for trace in self.method.trace(start()) for each in trace.rounds)

    def check_rounds(self) -> None:
        """Checks that agents communicate over links, unlike in an exact global average."""
        if any(each.everyone for each in self.all_rounds):
            raise InapplicableError("all agents take an exact average, not over links")

    def check_uncompressed(self) -> None:
        """Checks that no message is compressed."""
        if any(packed is not None for each in self.all_rounds for packed in each.packings):
            raise InapplicableError("messages are compressed")

    # ---- programs ----

    def stepper(self, rate: Any, snapshot: Snapshot, batch: Batch, key: Key) -> Snapshot:
        """Takes a step: the function to compile, with a traced learning rate if the method allows it."""
        method = self.make(rate) if self.traces_rate else self.method
        return _take(method, snapshot, batch, key)

    @functools.cached_property
    def traces_rate(self) -> bool:
        """Whether the factory accepts a traced learning rate."""
        try:
            jax.eval_shape(lambda rate: self.make(rate).init(start()), RATE)
        except Exception:  # the invariant of runs reports it
            return False
        return True

    @functools.cached_property
    def traced(self) -> Any:
        """The step as a closed jaxpr."""
        return self.trace()

    def trace(self) -> Any:
        """Traces the step again, and returns its closed jaxpr."""
        return jax.make_jaxpr(lambda *arguments: self.stepper(*arguments))(
            RATE, self.begin(), batch_of(0), key_of(0)
        )

    @functools.cached_property
    def changing(self) -> list[bool]:
        """Which inputs of the traced step change: not the rate, nor those that a step returns unchanged."""
        inputs, outputs = self.traced.jaxpr.invars, self.traced.jaxpr.outvars
        return [n > 0 and not (n <= len(outputs) and outputs[n - 1] is x) for n, x in enumerate(inputs)]

    @functools.cached_property
    def step(self) -> Any:
        """The step as a compiled program."""
        return compiled(self.stepper)

    def begin(self, params: Params | None = None) -> Snapshot:
        """Returns the snapshot before the first step."""
        params = start() if params is None else params
        return Snapshot(params, self.method.init(params))

    def run(
        self,
        first: Snapshot,
        weight: float = 1.0,
        order: Any = None,
        rate: float = RATE,
        times: Sequence[int] | None = None,
    ) -> list[Snapshot]:
        """Returns the snapshots of a run of the compiled step over these times, with the initial one."""
        snapshots = [first]
        for t in range(self.length) if times is None else times:
            batch = batch_of(t, weight=weight)
            if order is not None:
                batch = jax.tree.map(lambda leaf: leaf[order], batch)
            snapshots.append(self.step(rate, snapshots[-1], batch, key_of(t)))
        return snapshots

    @functools.cached_property
    def watched(self) -> tuple[list[Snapshot], int]:
        """The reference run, and how often its step was compiled again."""
        snapshots = self.run(self.begin(), times=[0])
        with compilations() as programs:
            snapshots += self.run(snapshots[-1], times=range(1, self.length))[1:]
        return snapshots, programs.count(f"jit({self.stepper.__name__})")

    @property
    def history(self) -> list[Snapshot]:
        """The snapshots of the reference run."""
        return self.watched[0]

    @functools.cached_property
    def without_communication(self) -> Method:
        """The method without communication: all messages are lost or, if it refuses that, without links."""
        lost = Faults(arrived=np.eye(AGENTS, dtype=bool)[None])
        alone = isolated(AGENTS).widened(self.topology.slots)
        refusals = []
        makers: tuple[Callable[[], Method], ...] = (
            lambda: dataclasses.replace(self.method, faults=lost),
            lambda: self.make(RATE, alone),
        )
        for make in makers:
            try:
                method = make()
                jax.eval_shape(method.init, start())
                return method
            except ArgumentError as error:
                refusals.append(error)
        raise InapplicableError(f"it refuses a network without messages: {refusals[-1]}")

    @functools.cached_property
    def deaf_step(self) -> Any:
        """The compiled step without communication."""
        return compiled(lambda *arguments: _take(self.without_communication, *arguments))

    @functools.cached_property
    def runs(self) -> list[list[Snapshot]]:
        """The runs of `RUNS` in one program, with SAM in a method with plain gradients."""
        if not self.traces_rate:
            jax.eval_shape(lambda rate: self.make(rate).init(start()), RATE)  # raises the method's error

        def one(rate: Any, rho: Any, snapshot: Snapshot, batch: Batch, key: Key) -> Snapshot:
            method = self.make(rate)
            method = saddle(method, sam(rho)) if self.is_plain else method
            return _take(method, snapshot, batch, key)

        count = len(RUNS)
        snapshot_axes: Any = Snapshot(0, MethodState(*[cast(Any, axis) for axis in (None, 0, 0, 0, 0)]))
        step = compiled(jax.vmap(one, in_axes=(0, 0, snapshot_axes, None, None), out_axes=snapshot_axes))
        snapshot = jax.tree.map(lambda leaf: jnp.stack([leaf] * count), self.begin())
        snapshot = snapshot._replace(state=snapshot.state._replace(t=self.begin().state.t))
        rates, radii = (jnp.array(numbers) for numbers in zip(*RUNS, strict=True))
        runs: list[list[Snapshot]] = [[] for _ in RUNS]
        for t in range(self.length):
            snapshot = step(rates, radii, snapshot, batch_of(t), key_of(t))
            whole = snapshot._replace(state=snapshot.state._replace(t=jnp.repeat(snapshot.state.t, count)))
            for r, run in enumerate(runs):
                run.append(jax.tree.map(lambda leaf, r=r: leaf[r], whole))
        return runs

    @property
    def is_plain(self) -> bool:
        """Whether the method uses plain gradients."""
        return self.method.gradient.is_linear

    # ---- devices ----

    def padded(self, devices: int) -> tuple[list[Snapshot], str]:
        """Runs the method with idle agents on several devices; returns snapshots and the program's text.

        Idle agents hold copies of the first agent's models and data, so that an influence would be visible.
        """
        topology = self.topology.padded(SPREAD)
        mesh = lifting.agent_mesh(devices)
        placed = lifting.stacked_sharding(mesh)

        def place(leaf: Array) -> Array:
            return jax.device_put(leaf, placed) if leaf.ndim else leaf

        with jax.set_mesh(mesh):
            method = self.make(RATE, topology)
            params = jax.device_put(_pad(start()), placed)
            snapshot = Snapshot(params, jax.tree.map(place, method.init(params)))
            batches = [jax.device_put(_pad(batch_of(t)), placed) for t in range(self.length)]

            def step(snapshot: Snapshot, batch: Batch, key: Key) -> Snapshot:
                return _take(method, snapshot, batch, key)

            program = compiled(step).lower(snapshot, batches[0], key_of(0)).compile()
            snapshots = [snapshot]
            for t, batch in enumerate(batches):
                snapshots.append(program(snapshots[-1], batch, key_of(t)))
        return jax.device_get(snapshots), program.as_text() or ""

    @functools.cached_property
    def spread(self) -> tuple[list[Snapshot], str]:
        """The run on four devices with idle agents, and the text of its program."""
        if len(jax.devices()) < DEVICES:
            raise InapplicableError(f"it needs {DEVICES} devices, and there are {len(jax.devices())}")
        return self.padded(DEVICES)

    @functools.cached_property
    def beside_idle(self) -> list[Snapshot]:
        """The run on one device with idle agents."""
        return self.padded(1)[0]


def _take(method: Method, snapshot: Snapshot, batch: Batch, key: Key) -> Snapshot:
    params, state, _ = method.step(loss_fn, snapshot.params, snapshot.state, batch, key)
    return Snapshot(params, state)


def _pad(tree: Tree) -> Tree:
    return jax.tree.map(lambda leaf: jnp.concatenate([leaf, *[leaf[:1]] * (SPREAD - AGENTS)]), tree)


def row(tree: Tree, agent: int) -> Tree:
    """Returns one agent's slice of a stacked tree; scalars, which all agents share, stay."""
    return jax.tree.map(lambda leaf: leaf[agent] if jnp.ndim(leaf) else leaf, tree)


def rows(tree: Tree, count: int = AGENTS) -> Tree:
    """Returns the first agents' slices of a stacked tree; scalars stay."""
    return jax.tree.map(lambda leaf: leaf[:count] if jnp.ndim(leaf) else leaf, tree)


def distance(one: Tree, other: Tree) -> float:
    """Returns the largest difference between two trees, relative for numbers above one."""
    worst = 0.0
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        a, b = np.asarray(numbers(a), np.float64), np.asarray(numbers(b), np.float64)
        if a.size:
            gap = np.abs(a - b) / np.maximum(1.0, np.abs(b))
            worst = max(worst, float(np.where(a == b, 0.0, gap).max()) if np.isfinite(gap).all() else np.inf)
    return worst


def numbers(leaf: Any) -> Any:
    """Returns a leaf as a numeric array, also if it is a key."""
    return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


# ---- the flow of information in a step: one agent is changed, and the others are compared ----

StepFn = Callable[[Snapshot, Any, Any], Snapshot]  # (snapshot, batch, key) -> snapshot

_UNTOUCHED = 1e-13  # far below the effect of a changed agent, above rounding errors
_SMALL_STEP = 1e-5  # step of a central difference, whose error is its square
_RANK = 1e-6  # singular values below this fraction of the largest count as zero


def changes_elsewhere(step: StepFn, snapshot: Snapshot, t: int, watched: Sequence[int] | None = None) -> str:
    """Describes what else changes in step t if agent 0 has another model, state and batch; "" if nothing.

    Numbers that all agents share must not change either, since they would pass on information of agent 0.
    """
    batch, key = batch_of(t), key_of(t)
    estimator, rule = jax.tree.map(_scaled, (snapshot.state.gradient, snapshot.state.rule))
    changed = Snapshot(_altered(snapshot.params), snapshot.state._replace(gradient=estimator, rule=rule))
    before, after = step(snapshot, batch, key), step(changed, _altered(batch), key)
    for agent in range(1, AGENTS) if watched is None else watched:
        ends = [_of((end.params, end.state.gradient, end.state.rule), agent) for end in (before, after)]
        if (gap := distance(*ends)) > _UNTOUCHED:
            return f"agent {agent} by {gap:.1e}"
    shared = [
        [leaf for leaf in jax.tree.leaves((end.state.gradient, end.state.rule)) if not jnp.ndim(leaf)]
        for end in (before, after)
    ]
    gap = distance(*shared)
    return f"a number that all agents share by {gap:.1e}" if gap > _UNTOUCHED else ""


def arrivals(step: StepFn, snapshot: Snapshot, t: int) -> int:
    """Counts the numbers of agent 1 that reach agent 0 in step t.

    This is the rank of the derivative of agent 0's model and rule state after the step with respect to agent
    1's model and batch. Agent 1's state is left out, because its neighbours may know it from earlier
    messages, and so are the estimator's states, because in a real network those of a pair are stored by the
    agent with the batch.
    """
    batch, key = batch_of(t), key_of(t)
    arguments = {"params": snapshot.params, "batch": batch}
    columns = []
    for name, leaf in _named_leaves(arguments):
        for place in np.ndindex(leaf.shape[1:]):
            ends = []
            for sign in (1, -1):
                moved = leaf.at[(1, *place)].add(sign * _SMALL_STEP)
                other = _replaced(arguments, name, moved)
                end = step(Snapshot(other["params"], snapshot.state), other["batch"], key)
                ends.append(_flat(_of((end.params, end.state.rule), 0)))
            columns.append((ends[0] - ends[1]) / (2 * _SMALL_STEP))
    values = np.linalg.svd(np.stack(columns), compute_uv=False)
    return int(np.sum(values > _RANK * max(values[0], 1e-3)))


def _of(stacked: Tree, agent: int) -> Tree:
    """Returns an agent's slices of a stacked tree, without shared scalars."""
    return row([leaf for leaf in jax.tree.leaves(stacked) if jnp.ndim(leaf)], agent)


def _altered(tree: Tree) -> Tree:
    return jax.tree.map(lambda leaf: leaf.at[0].multiply(1.3).at[0].add(0.1), tree)


def _scaled(leaf: Any) -> Any:
    """Returns a state's leaf with the first agent's numbers scaled, which keeps their signs."""
    if not jnp.ndim(leaf) or not jnp.issubdtype(leaf.dtype, jnp.floating):
        return leaf
    return leaf.at[0].multiply(1.3)


def _named_leaves(tree: dict[str, Any]) -> list[tuple[Any, Any]]:
    return [(path, leaf) for path, leaf in jax.tree.leaves_with_path(tree)]


def _replaced(tree: Tree, path: Any, leaf: Any) -> Tree:
    return jax.tree.map_with_path(lambda other, old: leaf if other == path else old, tree)


def _flat(tree: Tree) -> np.ndarray:
    floating = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in floating])


# ---- the bytes that cross a link: each message is encoded and its size recorded ----

_LINK = (2, 1)  # from agent 2 to its first neighbour


class WeighingNetwork(Network):
    """A network that records the encoded bytes of each round that agent 2 sends over one link."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._bytes: dict[int, int] = {}

    def record(self, sent: Message | Sequence[Message], axes: int = 1) -> None:
        """Records a round, and encodes its messages."""
        super().record(sent, axes)
        messages = [sent] if isinstance(sent, Message) else list(sent)
        encoded: Any = [
            (each.packed or identity()).encode(leaf[_LINK[:axes]], jax.random.key(1)).data.size  # type: ignore[attr-defined]
            for each in messages
            for leaf in jax.tree.leaves(each.like)
        ]
        self._bytes[id(self.rounds[-1])] = sum(encoded)

    @property
    def weighed(self) -> int:
        """The bytes of all recorded rounds."""
        return sum(self._bytes[id(entry)] for entry in self.rounds)


def encoded_bytes(method: Method, snapshot: Snapshot, t: int) -> int:
    """Returns the bytes that cross a link in step t, from the encodings of the messages."""
    weighed = 0

    def take(snapshot: Snapshot, key: Any) -> Any:
        nonlocal weighed
        network = WeighingNetwork(method.topology, method.rule.comm_round(t), key)
        kind = method.gradient.kind(t)
        oracle = Gradients(
            loss_fn, method.gradient, batch_of(t), network, jnp.int32(t), list(snapshot.state.gradient), kind
        )
        step = Step(jnp.int32(t), snapshot.params, network, oracle, kind=method.rule.kind(t))
        after = method.rule.step(step, snapshot.params, snapshot.state.rule)
        weighed = network.weighed
        return after

    jax.eval_shape(take, snapshot, key_of(t))
    return weighed
