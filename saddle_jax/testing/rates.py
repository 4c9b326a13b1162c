"""The law about what a method takes as its learning rate, before which there is no run to look at."""

from typing import Any

import jax
import optax

from saddle_jax.base.errors import short_line
from saddle_jax.testing.trial import RATE, Trial, graphs, start
from saddle_jax.testing.verdicts import InapplicableError, LawError


def the_learning_rate_may_be_a_schedule(trial: Trial) -> str:
    """Checks that the method takes what the command line hands it, a function of the step."""
    refusal, of_a_number = _refusal(trial, optax.constant_schedule(RATE)), _refusal(trial, RATE)
    if refusal is None:
        return "a schedule, or a number" if of_a_number is None else f"a schedule; a number: {of_a_number}"
    if of_a_number is None:
        raise LawError(f"it takes a number alone, and not eta(s.t) of a schedule eta: {refusal}")
    raise InapplicableError("it does not begin, with a schedule or with a number")


def _refusal(trial: Trial, rate: Any) -> str | None:
    """Returns why the method begins on no graph of the trial; None if it does on one."""
    refusal = None
    for graph in graphs():
        try:
            method = trial.factory(graph, learning_rate=rate, **trial.options)
            jax.eval_shape(method.init, start())  # which traces a step
            return None
        except Exception as error:  # whatever a brought thing raises is what was seen of it
            refusal = refusal or f"{type(error).__name__}: {short_line(error)}"
    return refusal
