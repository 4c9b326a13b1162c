"""Rounds of local steps: every agent works alone in k - 1 of them, and the k-th ends with gossip.

A step is always one gradient step of each agent. So a learning-rate schedule, a run's length and an
estimator's period count the same steps with and without rounds; only the network is used more rarely.
"""

from saddle_jax.base import checks
from saddle_jax.base.types import State
from saddle_jax.core.rule import Rule

# The kinds of steps. A rule whose every step talks has steps of kind 0, as rules without rounds do.
TALK, LOCAL = 0, 1


def in_rounds(rule: Rule[State], local_steps: int) -> Rule[State]:
    """Returns a rule that meets steps of kind TALK in every k-th step, the last of a round, LOCAL in others.

    Graphs that take turns move on once per round. With local_steps = 1 the rule is as it was.
    """
    alone = checks.whole("local_steps", local_steps, at_least=1) - 1
    return rule._replace(kinds=(LOCAL,) * alone + (TALK,), local_kinds=(LOCAL,) if alone else ())
