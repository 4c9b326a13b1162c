"""What is computed and measured about the theorem, as contents of a JSON file."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from saddle_jax.papers.saddle.theory.bound import Setting, bound, conditions
from saddle_jax.papers.saddle.theory.corollary import Case
from saddle_jax.papers.saddle.theory.runs import MeasuredRun
from saddle_jax.papers.saddle.theory.speedup import Point, Slope
from saddle_jax.papers.saddle.theory.testbed import Measured


def of_setting(setting: Setting) -> dict[str, Any]:
    """Returns a setting with its bound and its conditions."""
    terms = bound(setting)
    return {
        "setting": dataclasses.asdict(setting),
        "bound": {**terms._asdict(), "total": terms.total},
        "conditions": [
            {
                "condition": condition.text,
                "printed": condition.is_printed,
                "value": condition.value,
                "limit": condition.limit,
                "holds": condition.holds,
                "factor": condition.factor,
            }
            for condition in conditions(setting)
        ],
    }


def of_testbed(measured: Measured, points: Sequence[Point], slope: Slope) -> dict[str, Any]:
    """Returns the error on the test-bed, and how it falls with the number of agents."""
    return {
        "measured": measured._asdict(),
        "speedup": [
            {
                "agents": point.setting.agents,
                "eta": point.setting.eta,
                "bound": point.bound.total,
                **point.measured._asdict(),
            }
            for point in points
        ],
        "slope": slope._asdict(),
    }


def of_corollary(cases: Sequence[Case]) -> dict[str, Any]:
    """Returns the errors over T and over n, by graph and momentum, and their slopes."""
    return {
        "corollary": [
            {
                "graph": case.graph,
                "beta": case.beta,
                "points": [
                    {
                        "agents": point.setting.agents,
                        "steps": point.setting.steps,
                        "lambda": point.setting.lambda_,
                        "bound": point.bound.total,
                        **point.measured._asdict(),
                    }
                    for point in dict.fromkeys((*case.over_steps, *case.over_agents))
                ],
                "slope_over_steps": case.slopes[0]._asdict(),
                "slope_over_agents": case.slopes[1]._asdict(),
            }
            for case in cases
        ]
    }


def of_run(run: MeasuredRun) -> dict[str, Any]:
    """Returns a run's constants, their bound and conditions, and what lies outside of the theorem."""
    return {
        "step": run.step,
        "estimates": run.estimates._asdict(),
        **of_setting(run.setting),
        "outside_the_theorem": run.outside,
    }
