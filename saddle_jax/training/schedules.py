"""The learning rate over a run, as an optax schedule of the step."""

import optax

from saddle_jax.settings.config import Config

_MILESTONES = {"step": (0.5, 0.75), "imagenet": (0.33, 0.67, 0.9)}  # parts of the epochs
_DECAY_AT_MILESTONES = 0.1
_DECAY_PER_EPOCH = 0.981


def build_schedule(config: Config, steps_per_epoch: int) -> optax.Schedule:
    """Builds the schedule that the settings name. Like the paper's, it changes at whole epochs."""
    eta, total = config.learning_rate, config.epochs * steps_per_epoch
    if config.schedule == "constant":
        schedule = optax.constant_schedule(eta)
    elif config.schedule == "cosine":
        schedule = optax.cosine_decay_schedule(eta, total)
    elif config.schedule == "exponential":
        schedule = optax.exponential_decay(eta, steps_per_epoch, _DECAY_PER_EPOCH, staircase=True)
    else:
        boundaries: dict[int, float] = {}
        for part in _MILESTONES[config.schedule]:
            step = int(part * config.epochs) * steps_per_epoch
            if step:  # in very short runs, milestones can fall on the start or on each other
                boundaries[step] = boundaries.get(step, 1.0) * _DECAY_AT_MILESTONES
        schedule = optax.piecewise_constant_schedule(eta, boundaries)
    warmup = config.warmup_epochs * steps_per_epoch
    if not warmup:
        return schedule
    # The rate rises to the schedule's own value, and then follows the schedule.
    return lambda step: schedule(step) * optax.linear_schedule(0.0, 1.0, warmup)(step + 1)
