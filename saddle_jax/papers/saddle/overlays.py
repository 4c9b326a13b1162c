"""How the files in configs/ name one run of an experiment: VARIANT is [SCALE/][ROW]."""

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.papers.saddle.experiments import EXPERIMENTS
from saddle_jax.papers.saddle.scales import SCALES
from saddle_jax.settings.config import Config


def overlay(experiment: str, variant: str, row: str) -> Config:
    """Returns the settings of one row of an experiment.

    Args:
      experiment: a table, as `saddle reproduce --list` names it.
      variant: "", "cpu", "smoke", a row's name, or scale and row: "cpu/ROW".
      row: what runs if the variant names none.
    """
    scale, _, name = variant.partition("/")
    if scale not in SCALES:
        scale, name = "full", variant
    entries = {entry.name: entry for entry in EXPERIMENTS[experiment].entries}
    if (name or row) not in entries:
        hint = checks.did_you_mean(name, [*SCALES, *entries])
        raise ArgumentError(
            f"{hint}variant must be [SCALE/][ROW], a scale of {', '.join(SCALES)} and a row that "
            f"`saddle reproduce --table={experiment} --list` names, got {variant!r}"
        )
    entry = entries[name or row]
    return SCALES[scale].apply(entry.config(), entry.times)
