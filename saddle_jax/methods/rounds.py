"""Rounds of k local steps, of which the last ends with gossip.

A step is always one gradient step of each agent. So a learning-rate schedule, a run's length and an
estimator's period count the same steps with and without rounds; only the network is used less often.
"""

from saddle_jax.base import checks
from saddle_jax.base.types import State
from saddle_jax.core.rule import Rule

# The kinds of steps. With k = 1 all steps are of kind 0, as in rules without rounds.
TALK, LOCAL = 0, 1


def in_rounds(rule: Rule[State], local_steps: int) -> Rule[State]:
    """Returns the rule with steps of kind LOCAL, but TALK in every k-th step, the last of a round.

    A time-varying graph changes once per round. With local_steps = 1 the rule is returned unchanged.
    """
    alone = checks.whole("local_steps", local_steps, at_least=1) - 1
    return rule._replace(kinds=(LOCAL,) * alone + (TALK,), local_kinds=(LOCAL,) if alone else ())
