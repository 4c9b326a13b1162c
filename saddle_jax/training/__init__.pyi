"""The names that scripts and notebooks use, and where each lives."""

from saddle_jax.experiment import Comparison as Comparison
from saddle_jax.experiment import Problem as Problem
from saddle_jax.experiment import Run as Run
from saddle_jax.experiment import compare as compare
from saddle_jax.tasks.objectives import Metric as Metric
from saddle_jax.tasks.objectives import Objective as Objective
from saddle_jax.tasks.objectives import own_loss as own_loss
