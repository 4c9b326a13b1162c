"""What is due after which step: logging, evaluating, measuring, saving."""

import dataclasses
from typing import NamedTuple

from saddle_jax.settings.config import Config
from saddle_jax.training.program import Program


class Due(NamedTuple):
    """What is to be done after a step."""

    log: bool
    evaluate: bool
    measure: bool  # the curvature of the consensus model
    save: bool
    end: bool  # it was the last step

    @property
    def stop(self) -> bool:
        """Whether the models are looked at, so that a run that diverged is noticed."""
        return self.evaluate or self.measure or self.save or self.end


@dataclasses.dataclass(frozen=True)
class Calendar:
    """When things are due in a run.

    Attributes:
      config: the settings.
      steps: how many steps the run takes.
      steps_per_epoch: how many of them are an epoch.
      steps_per_dispatch: how many one call takes where it can.
    """

    config: Config
    steps: int
    steps_per_epoch: int
    steps_per_dispatch: int

    @property
    def keep_every(self) -> int:
        """After how many steps a checkpoint is kept for good; 0: never."""
        return self.config.keep_every_epochs * self.steps_per_epoch

    def due(self, step: int) -> Due:
        """Returns what is due once `step` steps are taken."""
        config = self.config
        epoch, within = divmod(step, self.steps_per_epoch)
        is_kept = self.keep_every > 0 and step % self.keep_every == 0
        is_last = step == self.steps
        return Due(
            log=step % config.log_every_steps == 0 or is_last,
            evaluate=within == 0 and epoch % config.eval_every_epochs == 0,
            measure=within == 0
            and config.sharpness_every_epochs > 0
            and epoch % config.sharpness_every_epochs == 0,
            save=is_kept or step % config.checkpoint_every_steps == 0,
            end=is_last,
        )

    def together(self, step: int) -> int:
        """Returns how many steps the next call takes: several only if nothing is to be done between them.

        Calls of several steps start at multiples of their number, whether a run was resumed or not:
        that keeps a resumed run the same, bit for bit.
        """
        several = self.steps_per_dispatch
        stops = (self.config.log_every_steps, self.config.checkpoint_every_steps, self.steps_per_epoch)
        free = min(stop - step % stop for stop in stops)
        return several if step % several == 0 and free >= several else 1


def calendar_of(program: Program) -> Calendar:
    """Returns the calendar of a program's runs, which is the same for all of them."""
    replica = program.replica
    return Calendar(
        program.config, replica.steps, replica.batches.steps_per_epoch, program.steps_per_dispatch
    )
