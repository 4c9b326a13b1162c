"""The invariants of methods, which hold for all methods of the package and should for yours."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from saddle_jax.base.errors import short_line
from saddle_jax.core.comm_cost import comm_cost
from saddle_jax.core.method import Method
from saddle_jax.core.trees import consensus
from saddle_jax.planning import compiled_text
from saddle_jax.testing import trial as trials
from saddle_jax.testing.invariants import (
    InapplicableError,
    Invariant,
    InvariantError,
    Result,
    results_of,
    verify,
)
from saddle_jax.testing.randomness import draws_of
from saddle_jax.testing.trial import (
    AGENTS,
    RATE,
    REVERSED,
    RUNS,
    SPREAD,
    Snapshot,
    Trial,
    arrivals,
    changes_elsewhere,
    distance,
    encoded_bytes,
    graphs,
    rows,
    start,
)

_CLOSE = 1e-9  # bound on float64 rounding errors in a run


# ---- initial state and shapes ----


def the_learning_rate_may_be_a_schedule(trial: Trial) -> str:
    """Checks that the method accepts a function of the step, as from the command line."""
    refusal, of_a_number = _refusal(trial, optax.constant_schedule(RATE)), _refusal(trial, RATE)
    if refusal is None:
        return "a schedule, or a number" if of_a_number is None else f"a schedule; a number: {of_a_number}"
    if of_a_number is None:
        raise InvariantError(f"it takes a number alone, and not eta(s.t) of a schedule eta: {refusal}")
    raise InapplicableError("it does not begin, with a schedule or with a number")


def every_leaf_of_a_state_is_of_agents_of_pairs_or_a_scalar(trial: Trial) -> str:
    """Checks that leaves are scalars, or [A, ...] for any number of agents A."""
    params = trials.start()
    state = jax.eval_shape(trial.method.init, params)
    if _shapes(state) != _shapes(trial.method.init(params)):
        raise InvariantError("init gives other shapes where it is only traced")
    idle = trial.make(RATE, trial.topology.padded(SPREAD))
    larger = jax.eval_shape(idle.init, trials.start(SPREAD))
    pairs = zip(jax.tree.leaves_with_path(state), jax.tree.leaves(larger), strict=True)
    for (path, leaf), other in pairs:
        expected = (SPREAD, *leaf.shape[1:]) if leaf.ndim else ()
        if other.shape != expected or (leaf.ndim and len(leaf.shape) and leaf.shape[0] != AGENTS):
            raise InvariantError(
                f"state{jax.tree_util.keystr(path)} is {list(leaf.shape)} for {AGENTS} agents "
                f"and {list(other.shape)} for {SPREAD}"
            )
    return f"{len(jax.tree.leaves(state))} leaves"


def a_step_keeps_shapes_and_dtypes(trial: Trial) -> str:
    """Checks that a step keeps the shapes and dtypes of models and state, in three dtypes."""
    key, traced = trials.key_of(0), trial.traces_rate  # determined in float64
    for dtype in (jnp.bfloat16, jnp.float32, jnp.float64):
        with jax.enable_x64(dtype == jnp.float64):
            snapshot = jax.eval_shape(trial.begin, trials.start(dtype=dtype))
            after = jax.eval_shape(trial.stepper, RATE, snapshot, trials.batch_of(0, dtype=dtype), key)
        for (path, old), new in zip(jax.tree.leaves_with_path(snapshot), jax.tree.leaves(after), strict=True):
            if (old.shape, old.dtype) != (new.shape, new.dtype):
                types = f"{old.dtype}{list(old.shape)}, became {new.dtype}{list(new.shape)}"
                raise InvariantError(f"{jax.tree_util.keystr(path)[1:]} was {types}")
    return f"in bfloat16, float32 and float64{', with a traced learning rate' if traced else ''}"


def a_second_step_does_not_compile_again(trial: Trial) -> str:
    """Checks that a step's outputs have exactly the types of its inputs."""
    steps, again = len(trial.history) - 1, trial.watched[1]
    if again:
        raise InvariantError(f"{again + 1} programs were compiled for {steps} equal steps")
    return f"one program for {steps} steps"


# ---- randomness and resuming ----


def a_run_that_was_stopped_goes_on_the_same_bit_for_bit(trial: Trial) -> str:
    """Checks that models and state are all that a step needs, and that tracing it again changes nothing."""
    middle = trial.length // 2
    snapshot = jax.device_get(trial.history[middle])
    for t in range(middle, trial.length):
        snapshot = trial.step(RATE, snapshot, trials.batch_of(t), trials.key_of(t))
    if not _same(snapshot, trial.history[-1]):
        raise InvariantError(
            f"it ends {distance(snapshot, trial.history[-1]):.1e} from the run that was not stopped"
        )
    one, other = trial.traced, trial.trace()
    if _text(one) != _text(other) or not _same(one.consts, other.consts):
        raise InvariantError(
            "traced again, the step is another program: what does it keep or draw outside of JAX?"
        )
    return f"stopped after {middle} of {trial.length} steps"


def every_random_number_follows_from_the_step(trial: Trial) -> str:
    """Checks that no random number is drawn from a key that is the same in every step."""
    draws = draws_of(trial.traced, trial.changing)
    if draws.constant:
        shapes = ", ".join(sorted(set(draws.constant.values())))
        raise InvariantError(
            f"{shapes} is drawn from a key that is the same in every step: use s.network.key()"
        )
    return f"{len(draws.all)} draws, each from the step's key or number" if draws.all else "it draws none"


# ---- communication ----


def what_the_network_does_not_deliver_does_not_arrive(trial: Trial) -> str:
    """Checks that agents communicate only through the network, which counts all messages."""
    trial.check_rounds()
    snapshot = Snapshot(trials.start(), trial.without_communication.init(trials.start()))
    for t in range(trial.length):
        seen = changes_elsewhere(trial.deaf_step, snapshot, t)
        if seen:
            raise InvariantError(f"without communication agent 0 changed {seen} in step {t}")
        snapshot = trial.deaf_step(snapshot, trials.batch_of(t), trials.key_of(t))
    return f"agent 0 changed nobody in {trial.length} steps without messages"


def what_an_agent_knows_goes_one_link_in_a_round(trial: Trial) -> str:
    """Checks that in one step information travels at most one link per round."""
    trial.check_rounds()
    hops = _hops(trial)
    tried = 0
    for t in range(trial.length):
        rounds = len(trial.rounds(t))
        far = np.flatnonzero(hops > rounds).tolist()
        if not far:
            continue
        tried += 1
        step = lambda snapshot, batch, key: trial.step(RATE, snapshot, batch, key)  # noqa: E731
        seen = changes_elsewhere(step, trial.history[t], t, far)
        if seen:
            raise InvariantError(f"agent 0 changed {seen} in step {t}, in which {rounds} rounds are counted")
    if not tried:
        raise InapplicableError(f"its rounds cross the whole graph, {max(hops)} links, in one step")
    return f"agent 0 changed nobody farther away in {tried} steps"


def no_more_arrives_than_is_counted(trial: Trial) -> str:
    """Checks that no more numbers cross a link in a step than the rounds count."""
    trial.check_rounds()
    trial.check_uncompressed()
    most = 0
    rule = trial.method.rule
    rounds = [t for t in range(trial.length) if rule.kind(t) in rule.comm_kinds]
    for t in rounds[:2]:
        counted = sum(tensor.size for each in trial.rounds(t) for tensor in each.tensors)
        arrived = arrivals(lambda *arguments: trial.step(RATE, *arguments), trial.history[t], t)
        if arrived > counted:
            raise InvariantError(
                f"{arrived} numbers of agent 1 reach agent 0 in step {t}, and {counted} are counted"
            )
        most = max(most, counted)
    return f"at most {most} numbers over a link"


def the_counted_bytes_equal_the_encodings(trial: Trial) -> str:
    """Checks that the communication cost is the encoded size of all messages."""
    trial.check_rounds()
    method = trial.method
    cost, crossed = comm_cost(method, trials.start()), []
    for t in range(len(method.rule.first_kinds) + len(method.rule.kinds)):
        crossed.append(encoded_bytes(method, trial.history[t], t))
        counted = cost.wire[method.rule.kind(t)].link
        if crossed[-1] != counted:
            raise InvariantError(f"{crossed[-1]} bytes cross a link in step {t}, and {counted} are counted")
    first = next((size for size in crossed if size), 0)
    sent = tuple(first * int(count) for count in trial.topology.out_degree)
    if cost.wire_bytes != sent:
        raise InvariantError(f"agents send {sent} bytes over their links, and {cost.wire_bytes} are counted")
    return f"{cost.link_bytes} bytes over a link"


def the_mean_of_all_models_stays_where_gradients_vanish(trial: Trial) -> str:
    """Checks that gossip preserves the mean, for rules that require a doubly stochastic W and are linear.

    It is compared with a run in which all agents start at the mean, since a method may decay weights.
    """
    if trial.method.rule.requires != "doubly":
        raise InapplicableError("its rule does not demand a graph that keeps the average")
    trial.check_uncompressed()
    models = trials.start()
    doubled = jax.tree.map(lambda leaf: 2 * leaf, models)
    together = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf.mean(axis=0), leaf.shape), models)
    once, twice, agreed = (
        trial.run(trial.begin(params), weight=0.0)[-1].params for params in (models, doubled, together)
    )
    if distance(twice, jax.tree.map(lambda leaf: 2 * leaf, once)) > _CLOSE:
        raise InapplicableError("it is not linear: twice the models do not become twice the result")
    gap = distance(consensus(once), consensus(agreed))
    if gap > _CLOSE:
        raise InvariantError(f"gradients were zero, and gossip moved the mean by {gap:.1e}")
    return f"moved by {gap:.0e} in {trial.length} steps"


def permuting_the_agents_permutes_the_result(trial: Trial) -> str:
    """Checks equivariance: reversing the agents maps the graph onto itself, and must reverse the result."""
    if draws_of(trial.traced, trial.changing).all:
        raise InapplicableError("it draws random numbers, which are each agent's own")
    first = trial.begin(jax.tree.map(lambda leaf: leaf[REVERSED], trials.start()))
    turned = trial.run(first, order=REVERSED)
    for t, (one, other) in enumerate(zip(turned, trial.history, strict=True)):
        gap = distance(one.params, jax.tree.map(lambda leaf: leaf[REVERSED], other.params))
        if gap > _CLOSE:
            raise InvariantError(
                f"after {t} steps models are {gap:.1e} away from those of the agents turned round"
            )
    return f"{trial.length} steps of all agents turned round"


# ---- devices ----


def four_devices_give_the_same_numbers(trial: Trial) -> str:
    """Checks that agents may be sharded over devices, and that models and states stay sharded."""
    seen = f"{SPREAD // trials.DEVICES} agents on each"
    if _apart(trial.spread[0], trial.history) <= _CLOSE:
        return seen
    if (gap := _apart(trial.spread[0], trial.beside_idle)) > _CLOSE:
        raise InvariantError(f"numbers on {trials.DEVICES} devices are {gap:.1e} away from those on one")
    return seen


def idle_agents_change_nothing(trial: Trial) -> str:
    """Checks that agents added as padding for the devices have no influence."""
    seen = f"{SPREAD - AGENTS} idle agents beside {AGENTS}"
    if len(jax.devices()) >= trials.DEVICES and _apart(trial.spread[0], trial.history) <= _CLOSE:
        return seen
    if (gap := _apart(trial.beside_idle, trial.history)) > _CLOSE:
        raise InvariantError(f"with {seen} numbers are {gap:.1e} away from those without")
    return seen


def only_rows_that_the_graph_asks_for_cross_devices(trial: Trial) -> str:
    """Checks the compiled program's collectives: only a collective-permute moves single rows."""
    trial.check_rounds()
    collectives = compiled_text.collectives(trial.spread[1])
    if others := sorted(
        {f"{one.kind} of {one.shape}" for one in collectives if one.kind != "collective-permute"}
    ):
        raise InvariantError(f"the program has {', '.join(others)}")
    return f"{len(collectives)} collective-permutes, nothing else"


# ---- runs and SADDLe ----


def replicas_run_in_one_program_with_a_learning_rate_each(trial: Trial) -> str:
    """Checks that a traced learning rate under vmap gives the same results."""
    for (rate, _), run in zip(RUNS[:2], trial.runs[:2], strict=True):
        alone = trial.history if rate == RATE else trial.run(trial.begin(), rate=rate)
        gap = max(distance(one, other) for one, other in zip(run, alone[1:], strict=True))
        if gap > _CLOSE:
            raise InvariantError(f"the run with learning rate {rate} is {gap:.1e} away from its own run")
    return f"learning rates {RUNS[0][0]} and {RUNS[1][0]}"


def saddle_with_rho_zero_is_the_method(trial: Trial) -> str:
    """Checks that SAM with a traced radius of zero gives the method's own run."""
    _check_plain(trial)
    gap = max(distance(one, other) for one, other in zip(trial.runs[0], trial.history[1:], strict=True))
    if gap > _CLOSE:
        raise InvariantError(f"with rho 0 it is {gap:.1e} away from the method")
    return f"{trial.length} steps, rho is traced"


def the_saddle_version_runs(trial: Trial) -> str:
    """Checks that the method works with sharpness-aware gradients: its results change and are finite."""
    _check_plain(trial)
    end = trial.runs[2][-1]
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(end.params)):
        raise InvariantError(f"with rho {RUNS[2][1]} models are not finite after {trial.length} steps")
    if (gap := distance(end.params, trial.history[-1].params)) == 0:
        raise InvariantError(f"with rho {RUNS[2][1]} it is the same run: does the rule ask s.gradient?")
    return f"with rho {RUNS[2][1]} models end {gap:.1e} away"


def _shapes(tree: Any) -> list[Any]:
    return [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree)]


def _same(one: Any, other: Any) -> bool:
    pairs = list(zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))
    return all(np.array_equal(trials.numbers(a), trials.numbers(b), equal_nan=True) for a, b in pairs)


def _text(closed: Any) -> str:
    return re.sub(r"0x[0-9a-f]+", "", str(closed))  # without addresses in memory


def _hops(trial: Trial) -> np.ndarray:
    """Returns the distance from agent 0 to each agent in links, int [A]."""
    adjacency = (trial.topology.mixing > 0).astype(int)
    ways = [np.linalg.matrix_power(adjacency, links)[:, 0] for links in range(AGENTS)]
    result: np.ndarray = np.argmax(np.array(ways) > 0, axis=0)  # the shortest walk that reaches it
    return result


def _apart(run: list[Snapshot], other: list[Snapshot]) -> float:
    """Returns the largest distance between two runs, without idle agents."""
    pairs = zip(run, other, strict=True)
    return max(distance(rows(one), rows(two)) for one, two in pairs)


def _check_plain(trial: Trial) -> None:
    if not trial.is_plain:
        raise InapplicableError(f"it takes its gradients by {trial.method.gradient} already")


def _refusal(trial: Trial, rate: Any) -> str | None:
    """Returns why the method accepts no graph of the trial; None if it accepts one."""
    refusal = None
    for graph in graphs():
        try:
            method = trial.factory(graph, learning_rate=rate, **trial.options)
            jax.eval_shape(method.init, start())  # which traces a step
            return None
        except Exception as error:  # any error of the user's code is a failure
            refusal = refusal or f"{type(error).__name__}: {short_line(error)}"
    return refusal


_GATES = (  # prerequisites: without them there is no run to check
    the_learning_rate_may_be_a_schedule,
    every_leaf_of_a_state_is_of_agents_of_pairs_or_a_scalar,
)
INVARIANTS = (
    *_GATES,
    a_step_keeps_shapes_and_dtypes,
    a_second_step_does_not_compile_again,
    a_run_that_was_stopped_goes_on_the_same_bit_for_bit,
    every_random_number_follows_from_the_step,
    what_the_network_does_not_deliver_does_not_arrive,
    what_an_agent_knows_goes_one_link_in_a_round,
    no_more_arrives_than_is_counted,
    the_counted_bytes_equal_the_encodings,
    the_mean_of_all_models_stays_where_gradients_vanish,
    permuting_the_agents_permutes_the_result,
    four_devices_give_the_same_numbers,
    idle_agents_change_nothing,
    only_rows_that_the_graph_asks_for_cross_devices,
    replicas_run_in_one_program_with_a_learning_rate_each,
    saddle_with_rho_zero_is_the_method,
    the_saddle_version_runs,
)


def check_method(
    factory: Callable[..., Method],
    options: dict[str, Any] | None = None,
    *,
    invariants: Sequence[Invariant] = INVARIANTS,
    tell: Callable[[str], None] | None = None,
) -> list[Result]:
    """Checks every invariant of a method.

    Args:
      factory: (topology, learning_rate, **options) -> Method.
      options: further arguments of the factory.
      invariants: the invariants to check; if one of _GATES fails, the others do not apply.
      tell: called with each invariant before it is checked.
    """
    return verify(step_results(Trial(factory, options or {}), invariants, tell))


def step_results(
    trial: Trial, invariants: Sequence[Invariant], tell: Callable[[str], None] | None = None
) -> list[Result]:
    """Checks invariants of a step on a method."""
    with jax.enable_x64(True):
        return results_of(invariants, trial, tell, gates=sum(each in _GATES for each in invariants))
