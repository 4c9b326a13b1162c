"""The names that scripts and notebooks use, and where each lives."""

from saddle_jax.runs.comparing import Comparison as Comparison
from saddle_jax.runs.comparing import compare as compare
from saddle_jax.runs.problem import Problem as Problem
from saddle_jax.runs.run import Run as Run
from saddle_jax.training.objectives import Metric as Metric
from saddle_jax.training.objectives import Objective as Objective
from saddle_jax.training.own_losses import own_loss as own_loss
