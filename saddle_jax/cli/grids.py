"""The lists that a comparison is a grid of, as options of a command."""

from absl import flags

from saddle_jax.cli.usage import UsageError, mistakes
from saddle_jax.training.sweep import Grid, parse_grid

# The lists of the grid: the setting that each varies, its default, its meaning.
_LISTS = {
    "methods": ("method", "qgm,q_saddle", "Methods to compare, with or without options: qgm,gut(mu=0.5)."),
    "compressors": ("compressor", "none", "Compressors; drops of accuracy are relative to the first one."),
    "seeds": ("seed", "0,1,2", "Seeds."),
    "gradients": (
        "gradient",
        "",
        "How gradients are taken, such as none,sam,looksam(every=10) (default: auto).",
    ),
    "topologies": ("topology", "", "Graphs, such as ring,torus (default: that of the settings)."),
    "drop_rates": (
        "",
        "",
        "Shares of lost messages, such as 0,0.01,0.1 (default: that of the settings).",
    ),
}


def grid_options(options: flags.FlagValues) -> None:
    """Defines an option for each list of the grid."""
    for name, (_, default, meaning) in _LISTS.items():
        flags.DEFINE_string(name, default, meaning, flag_values=options)


def read_grid(options: flags.FlagValues) -> Grid:
    """Returns the grid that the options list; those that contradict it are a UsageError."""
    _check(options)
    with mistakes():
        return parse_grid(**{name: options[name].value or "" for name in _LISTS})


def _check(options: flags.FlagValues) -> None:
    """Refuses options that contradict the grid."""
    if not options.workdir:
        raise UsageError("workdir must be given: --workdir=DIR, one folder for all runs")
    for name, (setting, default, _) in _LISTS.items():
        if setting and options[f"config.{setting}"].present and (default or options[name].value):
            raise UsageError(f"config.{setting} must not be given to compare: --{name}=... lists them")
    for name in ("seeds", "sweep"):
        if options[f"config.{name}"].present:
            raise UsageError(f"config.{name} must not be given to compare, which lists --seeds")
