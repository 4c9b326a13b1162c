"""One step of one run, to be traced: from a step's number to batches, to the method, to the next carry."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from saddle_jax.base.types import Array, Batch, Key, Params, Tree
from saddle_jax.core.method import MethodState
from saddle_jax.core.metrics import Metrics
from saddle_jax.core.mixing import Graphs
from saddle_jax.data import take
from saddle_jax.data.batches import augmentation_key, counting
from saddle_jax.devices.lifting import on_shards
from saddle_jax.devices.placement import Placement
from saddle_jax.models.precision import products
from saddle_jax.training.build import Replica, method_key


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
    """The step of one run on its devices; `replica` stands for all runs of a program that share it."""

    replica: Replica
    placement: Placement
    topology: Graphs  # with its idle agents
    group: int  # how many of a device's agents are computed at a time

    def take(
        self, carry: Carry, inputs: Inputs, root: Key, numbers: dict[str, Any], step: Any, phase: int | None
    ) -> tuple[Carry, Metrics]:
        """Takes one step; its epoch and place in that epoch follow from its number.

        Args:
          carry: from the step before, leaves [A, ...].
          inputs: with the samples [n, A, B] of this run.
          root: the key that all random numbers of the run come from.
          numbers: settings of this run alone, which may be traced.
          step: its number, int32 [].
          phase: which kind of step it is, see `Method.phase`.
        """
        replica = self.replica
        method, schedule = replica.method_on(self.topology, numbers)
        batch = self.placement.cut_batches(self._batch(inputs, root, step))
        with products():  # which the model's own precision is an exception from
            params, state, metrics = method.step(
                replica.loss_fn,
                carry.params,
                carry.state,
                batch,
                method_key(root, step),
                phase=phase,
                diagnostics=replica.config.diagnostics,
                group=self.group,
            )
        # A method that asks for no gradient, which may be, sees no loss.
        is_bad = ~jnp.all(jnp.isfinite(metrics["loss"])) if "loss" in metrics else jnp.bool_(False)
        first_bad = jnp.where((carry.first_bad < 0) & is_bad, step, carry.first_bad)
        rate = {} if schedule is None else {"learning_rate": schedule(carry.state.t)}
        metrics = metrics.adding(**rate, first_bad=first_bad)
        return Carry(params, state, first_bad), metrics

    def _batch(self, inputs: Inputs, root: Key, step: Any) -> Batch:
        """Returns every agent's samples and, if the objective reads one, mask [A, B, ...].

        Idle agents' samples do not count.
        """
        dataset, batches = self.replica.dataset, self.replica.batches
        epoch, number = jnp.divmod(step, batches.steps_per_epoch)
        row = 0 if dataset.is_streamed else number
        samples, mask = inputs.samples[row], inputs.mask[row]
        # Of stored samples every device has all, of streamed ones those of its own agents.
        pick = on_shards(take, everywhere=() if dataset.is_streamed else (0,))
        batch = dataset.augmented(augmentation_key(root, epoch, number), pick(inputs.data, samples))
        if not self.replica.objective.masked:
            return batch
        present = jnp.asarray(self.topology.present, mask.dtype)
        return {**batch, "mask": present[:, None] * counting(samples, mask)}
