"""One compiled step for R runs that differ in seed and numbers; R = 1 is the ordinary case.

Each run's step is its own: agents gossip within their run, and each run has its own data order, partition,
initialisation and noise. The numbers in which runs differ are in the states of their methods, see
`sj.inject_hyperparams`.

The compiled program takes C of the R runs at a time and is called R / C times for a step. What is carried
from step to step is a list of R / C trees. With C = 1 a tree's leaves are those of one run, [A, ...]: XLA is
slow with axes of one. With more they are [C, A, ...], by vmap. What is saved is one tree, [A, ...] of a
single run and [R, A, ...] of several, wherever it was computed.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array, Batch, Key, Params, Tree
from saddle_jax.core.comm_cost import CommCost, comm_cost
from saddle_jax.core.method import Method, MethodState, Metrics, StepKind
from saddle_jax.core.trees import consensus, consensus_distance, replicate
from saddle_jax.data import take
from saddle_jax.data.batches import augmentation_key, counting
from saddle_jax.devices import policy
from saddle_jax.devices.lifting import on_shards
from saddle_jax.devices.placement import Placement, in_turn, place
from saddle_jax.models.precision import products
from saddle_jax.settings.settings import Settings, check_seeds
from saddle_jax.training import memory
from saddle_jax.training.build import Trial, check_one_program, checked, method_key, of_settings


class Carry(NamedTuple):
    """What one step hands to the next."""

    params: Params  # all agents' models
    state: MethodState
    first_bad: Array  # the first step whose loss was not finite, int32; -1: none yet


class Inputs(NamedTuple):
    """What steps are fed with, on the devices."""

    data: Tree  # all training samples, on every device; streamed, the batches of each device's own agents
    samples: Array  # int [R, n, A, B]: which samples each agent sees in the n steps of an epoch, or in one
    mask: Array  # float [n, B]: 1 where a sample counts


class RunStep(NamedTuple):
    """The step of one run on its devices; `trial` stands for all runs of a program that share it."""

    trial: Trial
    placement: Placement
    method: Method  # on the graph with its idle agents
    agents_per_call: int  # how many of a device's agents are computed at a time

    def take(
        self, carry: Carry, inputs: Inputs, root: Key, step: Any, kind: StepKind | None
    ) -> tuple[Carry, Metrics]:
        """Takes one step; its epoch and place in that epoch follow from its number.

        Args:
          carry: from the step before, leaves [A, ...].
          inputs: with the samples [n, A, B] of this run.
          root: the key that all random numbers of the run come from.
          step: its number, int32 [].
          kind: which kind of step it is, see `Method.kind`.
        """
        trial = self.trial
        batch = self.placement.cut_batches(self._batch(inputs, root, step))
        with products():  # which the model's own precision is an exception from
            params, state, metrics = self.method.step(
                trial.loss_fn,
                carry.params,
                carry.state,
                batch,
                method_key(root, step),
                kind=kind,
                diagnostics=trial.config.diagnostics,
                agents_per_call=self.agents_per_call,
            )
        # A method that asks for no gradient, which may be, sees no loss.
        is_bad = ~jnp.all(jnp.isfinite(metrics["loss"])) if "loss" in metrics else jnp.bool_(False)
        first_bad = jnp.where((carry.first_bad < 0) & is_bad, step, carry.first_bad)
        schedule = trial.rate(carry.state.hyperparams or {})
        rate = {} if schedule is None else {"learning_rate": schedule(carry.state.t)}
        metrics = metrics.adding(**rate, first_bad=first_bad)
        return Carry(params, state, first_bad), metrics

    def _batch(self, inputs: Inputs, root: Key, step: Any) -> Batch:
        """Returns every agent's samples and, if the objective reads one, mask [A, B, ...].

        Idle agents' samples do not count.
        """
        dataset, batches = self.trial.dataset, self.trial.batches
        epoch, number = jnp.divmod(step, batches.steps_per_epoch)
        row = 0 if dataset.is_streamed else number
        samples, mask = inputs.samples[row], inputs.mask[row]
        # Of stored samples every device has all, of streamed ones those of its own agents.
        pick = on_shards(take, everywhere=() if dataset.is_streamed else (0,))
        batch = dataset.augmented(augmentation_key(root, epoch, number), pick(inputs.data, samples))
        if not self.trial.objective.masked:
            return batch
        present = jnp.asarray(self.method.topology.present, mask.dtype)
        return {**batch, "mask": present[:, None] * counting(samples, mask)}


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
    """R runs, the devices they are on, and the step that trains them.

    Attributes:
      config: the settings of all of them together.
      trials: each run's own, R of them.
      placement: where the agents lie.
    """

    config: Settings
    trials: tuple[Trial, ...]
    placement: Placement

    @property
    def trial(self) -> Trial:
        """The first of the runs: all have the same model, batches of the same size and as many steps."""
        return self.trials[0]

    @functools.cached_property
    def method(self) -> Method:
        """The method of the first run, on the graph with its idle agents."""
        return self.trial.method_on(self.placement.graph(self.trial.topology))

    @functools.cached_property
    def comm_cost(self) -> CommCost:
        """The communication cost of what the agents send."""
        return comm_cost(self.method, self.shapes_of_one.params)

    @functools.cached_property
    def _at_a_time(self) -> int:
        """How many of a device's agents are computed at a time, of all runs, at the most."""
        count, agents_per_call = len(self.trials), self.config.agents_per_call
        runs = count if agents_per_call else policy.trials_at_once(count)
        taken = self.trials, self.method, self.shapes_of_one, self.placement, runs
        return policy.group_size(
            runs * self.placement.per_device, agents_per_call, lambda: memory.of_agent(*taken)
        )

    @property
    def at_once(self) -> int:
        """C, how many runs one call computes; it divides R. `agents_per_call` is of all of them."""
        count, most = len(self.trials), max(1, self._at_a_time // self.placement.per_device)
        return max(n for n in range(1, count + 1) if count % n == 0 and n <= most)

    @property
    def agents_per_call(self) -> int:
        """How many of a device's agents of one run are computed at a time."""
        return max(1, min(self._at_a_time // self.at_once, self.placement.per_device))

    @property
    def steps_per_dispatch(self) -> int:
        """How many steps one call of `steps` takes, where nothing is to be done between them."""
        chosen = self.config.steps_per_dispatch or policy.steps_per_dispatch()
        return 1 if self.trial.dataset.is_streamed else chosen  # streamed samples come batch by batch

    # Before the first step, and what is saved

    def start(self) -> list[Carry]:
        """Returns what is carried before the first step, on the devices where it belongs."""
        models = self._first_models()  # under a mesh each operation would be a program on all devices
        with self.placement.active():
            first = jax.jit(self._first, out_shardings=self._saved_shardings)
            carry = in_turn(first, models, self._hyperparams)
        return self.loaded(carry)

    def _first_models(self) -> Params:
        models = [trial.first_model() for trial in self.trials]
        return models[0] if len(models) == 1 else jax.tree.map(lambda *x: jnp.stack(x), *models)

    def _first(self, models: Params, numbers: dict[str, Any]) -> Carry:
        if len(self.trials) == 1:
            return self._first_of_one(models, {name: values[0] for name, values in numbers.items()})
        return jax.vmap(self._first_of_one)(models, numbers)

    def _first_of_one(self, model: Params, numbers: dict[str, Any]) -> Carry:
        params, injected = replicate(model, self.placement.size), self.method.hyperparams
        state = injected.init(self.method, numbers, params) if injected else self.method.init(params)
        return Carry(params, state, jnp.int32(-1))

    @property
    def _hyperparams(self) -> dict[str, np.ndarray]:
        """The runs' values of what is swept, each [R]."""
        names = self.trial.numbers
        return {name: np.array([each.numbers[name] for each in self.trials], np.float32) for name in names}

    @functools.cached_property
    def shapes_of_one(self) -> Carry:
        """The shapes of one run's carry, idle agents included."""
        numbers = {name: jax.ShapeDtypeStruct((), np.float32) for name in self._hyperparams}
        result: Carry = jax.eval_shape(self._first_of_one, jax.eval_shape(self.trial.first_model), numbers)
        return result

    @property
    def carry_shapes(self) -> Carry:
        """The shapes of what is saved, idle agents included."""
        return self._shapes_of(len(self.trials))

    @property
    def agent_axis(self) -> int:
        """Which axis of what is saved is the agents'."""
        return 0 if len(self.trials) == 1 else 1

    def _shapes_of(self, count: int) -> Carry:
        if count == 1:
            return self.shapes_of_one
        result: Carry = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((count, *x.shape), x.dtype), self.shapes_of_one
        )
        return result

    @functools.cached_property
    def _saved_shardings(self) -> Any:
        return self.placement.shardings(self.carry_shapes, axis=self.agent_axis)

    @functools.cached_property
    def _part_shardings(self) -> Any:
        return self.placement.shardings(self._shapes_of(self.at_once), axis=min(self.at_once - 1, 1))

    @property
    def saved_like(self) -> Any:
        """Shapes, dtypes and places of what is saved."""
        return self.placement.like(self.carry_shapes, axis=self.agent_axis)

    @property
    def part_like(self) -> Any:
        """Shapes, dtypes and places of one tree of what is carried, that of C runs."""
        return self.placement.like(self._shapes_of(self.at_once), axis=min(self.at_once - 1, 1))

    def saved(self, carry: list[Carry]) -> Tree:
        """Returns what is carried, as the one tree that is saved."""
        return carry[0] if len(self.trials) == 1 else in_turn(self._joined, *carry)

    def loaded(self, tree: Tree) -> list[Carry]:
        """Returns what was saved, as it is carried."""
        if len(self.trials) == 1:
            return [Carry(*tree)]
        return [in_turn(self._part, tree, first) for first in range(0, len(self.trials), self.at_once)]

    @functools.cached_property
    def _joined(self) -> Any:
        def join(*parts: Carry) -> Carry:
            joined = jnp.stack if self.at_once == 1 else jnp.concatenate
            result: Carry = jax.tree.map(lambda *x: joined(x), *parts)
            return result

        return jax.jit(join, out_shardings=self._saved_shardings)

    @functools.cached_property
    def _part(self) -> Any:
        def part(tree: Any, first: Any) -> Carry:
            return Carry(*self._those_of(tree, first))

        return jax.jit(part, out_shardings=self._part_shardings)

    def _those_of(self, tree: Tree, first: Any) -> Tree:
        """Returns the C runs from `first` on: leaves [R, ...] become [C, ...], or [...] where C is one."""
        if self.at_once == 1:
            return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, first, keepdims=False), tree)
        return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, first, self.at_once), tree)

    # The step

    def steps(
        self, carry: list[Carry], inputs: Inputs, first: int, count: int = 1
    ) -> tuple[list[Carry], list[Metrics]]:
        """Takes `count` steps from number `first` on; returns the last one's metrics, call by call."""
        kind, done = self.kind(first, count), []
        with self.placement.active():
            for number, part in enumerate(carry):
                runs = np.int32(number * self.at_once)
                done.append(in_turn(self.compiled, part, inputs, runs, np.int32(first), count, kind))
        return [part for part, _ in done], [metrics for _, metrics in done]

    def kind(self, first: int, count: int) -> StepKind | None:
        """Tells which kind of steps these are, see `Method.kind`; None where they differ in that."""
        kinds = {self.method.kind(step) for step in range(first, first + count)}
        return kinds.pop() if len(kinds) == 1 else None

    @functools.cached_property
    def compiled(self) -> Any:
        """The jitted (carry, inputs, runs, first, count, kind) -> (carry, metrics); the carry is donated.

        `runs` is the number of the first of the C runs that it computes, `first` the first of `count` steps.
        """

        def run_steps(
            carry: Carry, inputs: Inputs, runs: Any, first: Any, count: int, kind: StepKind | None
        ) -> tuple[Carry, Metrics]:
            if count == 1:
                return self._step(carry, inputs, runs, first, kind)
            carry, metrics = jax.lax.scan(
                lambda carry, step: self._step(carry, inputs, runs, step, kind),
                carry,
                first + jnp.arange(count, dtype=jnp.int32),
            )
            return carry, jax.tree.map(lambda x: x[-1], metrics)

        everywhere = self.placement.sharding()
        shardings = None if everywhere is None else (self._part_shardings, everywhere)
        return jax.jit(run_steps, static_argnums=(4, 5), donate_argnums=0, out_shardings=shardings)

    def _step(
        self, carry: Carry, inputs: Inputs, runs: Any, step: Any, kind: StepKind | None
    ) -> tuple[Carry, Metrics]:
        def single(carry: Carry, root: Key, samples: Array) -> tuple[Carry, Metrics]:
            return run.take(carry, inputs._replace(samples=samples), root, step, kind)

        run = RunStep(self.trial, self.placement, self.method, self.agents_per_call)
        arguments = self._those_of((self._roots, inputs.samples), runs)
        if self.at_once == 1:
            return single(carry, *arguments)
        # The step's number is the same for all runs: without an axis it can decide what is computed.
        state: Any = MethodState(t=None, gradient=0, rule=0, faults=0, clock=0, hyperparams=0)  # type: ignore[arg-type]
        axes = Carry(0, state, 0)  # type: ignore[arg-type]
        vmapped = jax.vmap(single, in_axes=(axes, 0, 0), out_axes=(axes, 0))
        carry = carry._replace(state=carry.state._replace(t=carry.state.t[0]))
        carry, metrics = vmapped(carry, *arguments)
        same = jnp.broadcast_to(carry.state.t, (self.at_once,))
        return carry._replace(state=carry.state._replace(t=same)), metrics

    @property
    def _roots(self) -> Array:
        return jnp.stack([trial.root for trial in self.trials])

    # The data, and what comes out of steps

    @functools.cached_property
    def device_data(self) -> Tree:
        """All training samples, on every device; subsets of the runs one after the other."""
        runs = self.trials if self.has_subsets else self.trials[:1]
        trees = [trial.dataset.train for trial in runs]
        joined = jax.tree.map(lambda *leaves: np.concatenate(leaves), *trees)
        return self.placement.everywhere(joined)

    @property
    def has_subsets(self) -> bool:
        """Whether the runs train on subsets of their own, which the seed chooses."""
        return bool(self.config.subset) and len(self.trials) > 1

    def models(self, carry: list[Carry], number: int) -> Params:
        """Returns all agents' models [A, ...] of one run."""
        part, place = divmod(number, self.at_once)
        return (
            carry[part].params if self.at_once == 1 else in_turn(self._models_at, carry[part].params, place)
        )

    @functools.cached_property
    def _models_at(self) -> Any:
        def at(params: Any, place: Any) -> Any:
            return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, place, keepdims=False), params)

        return jax.jit(at, out_shardings=self.placement.shardings(self.shapes_of_one.params))

    def counted(self, carry: list[Carry], number: int) -> dict[str, Any]:
        """Returns what the network of one run has counted: links `sent` and `seconds`, if it does."""
        part, place = divmod(number, self.at_once)
        state, kept = carry[part].state, {}
        if state.faults:
            kept["sent"] = state.faults.sent
        if state.clock:
            kept["seconds"] = state.clock.seconds
        fetched: dict[str, Any] = jax.device_get(self.whole(kept))
        return fetched if self.at_once == 1 else {name: leaf[place] for name, leaf in fetched.items()}

    def whole(self, tree: Tree) -> Tree:
        """Returns arrays that lie on several devices on one of them."""
        return tree if self.placement.mesh is None else self.placement.fetch(_same, tree)

    def first_bad(self, carry: list[Carry]) -> np.ndarray:
        """Returns the first step of each run whose loss was not finite, int [R]; -1: none yet."""
        return np.concatenate([np.atleast_1d(jax.device_get(part.first_bad)) for part in carry])

    def of_each(self, metrics: list[Metrics]) -> list[Metrics]:
        """Returns every run's metrics, once they are fetched from the devices."""
        if self.at_once == 1:
            return metrics
        places = [(part, place) for part in metrics for place in range(self.at_once)]
        return [jax.tree.map(lambda x, place=place: x[place], part) for part, place in places]

    def consensus(self, params: Params) -> Params:
        """Returns the average model of agents on their devices, on one device."""
        return self.placement.fetch(consensus, params, self.method.topology.present)

    def consensus_distance(self, params: Params) -> Array:
        """Tells how far agents on their devices are from their average."""
        result: Array = self.placement.fetch(consensus_distance, params, self.method.topology.present)
        return result


def build(config: Settings, trial: Trial | None = None) -> Program:
    """Makes the program of a run, or of all runs that the settings name.

    `trial` is the run as objects, before its seeds and swept numbers; None makes it of the settings.
    """
    check_seeds(config)
    trial = of_settings(config) if trial is None else dataclasses.replace(trial, config=config)
    check_one_program(trial)
    runs = trial.each()
    checked(runs[0])
    for run in runs if config.sweep else ():
        run.method_on(runs[0].topology)  # which checks its numbers
    # They decide steps and mask, which are the same for all.
    shares = {trial.partition.samples.shape[1] for trial in runs}
    if len(shares) > 1:
        raise ArgumentError(
            f"seeds must give equally long epochs to be trained at once, got {sorted(shares)} samples "
            f"with partition {config.partition}: train them one by one"
        )
    return Program(config, runs, place(config.agents, runs[0].batches.size, config.devices))


def _same(tree: Tree) -> Tree:
    return tree
