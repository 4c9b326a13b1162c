"""What is computed and measured about the theorem, as contents of a JSON file."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from saddle_jax.analysis.theory.bound import Setting, bound, conditions
from saddle_jax.analysis.theory.runs import MeasuredRun
from saddle_jax.analysis.theory.speedup import Point, Slope
from saddle_jax.analysis.theory.testbed import Measured


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


def of_run(run: MeasuredRun) -> dict[str, Any]:
    """Returns a run's constants, their bound and conditions, and what lies outside of the theorem."""
    return {
        "step": run.step,
        "estimates": run.estimates._asdict(),
        **of_setting(run.setting),
        "outside_the_theorem": run.outside,
    }
