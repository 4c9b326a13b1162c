"""saddle data: which datasets there are, what is in them, how they are partitioned."""

from collections.abc import Callable, Sequence

from absl import flags

from saddle_jax.base.checks import known
from saddle_jax.cli import data_shown
from saddle_jax.cli.data_shown import data_options
from saddle_jax.cli.helping import HelpWanted
from saddle_jax.cli.output import Output, output_options
from saddle_jax.cli.usage import mistakes, parse
from saddle_jax.data import prepared, sources
from saddle_jax.data.sources import is_builtin


def run(arguments: Sequence[str]) -> None:
    """Runs one of the four verbs below."""
    verb, *rest = arguments or [""]
    if verb in ("--help", "-h"):
        raise HelpWanted(flags.FlagValues(), ["VERB"])
    with mistakes():
        known("data VERB", verb, _VERBS)
    _VERBS[verb](rest)


def _list(arguments: Sequence[str]) -> None:
    options = data_options()
    output_options(options)
    parse(options, arguments)
    output, folder = Output(options), prepared.data_dir_or_default(options.data_dir)
    states = sources.states(folder)
    output.note(f"prepared datasets are looked for in {folder}")
    output.table([["dataset", "state"], *([name, state] for name, state in states.items())])
    output.give([{"dataset": name, "state": state} for name, state in states.items()])


def _prepare(arguments: Sequence[str]) -> None:
    options = data_options()
    (name,) = parse(options, arguments, ["NAME"])
    if is_builtin(name):
        print(f"{name} is embedded: there is nothing to prepare")
        return
    with mistakes():
        print(f"{name} is prepared in {sources.prepare(name, options.data_dir)}")


_VERBS: dict[str, Callable[[Sequence[str]], None]] = {
    "list": _list,
    "prepare": _prepare,
    "show": data_shown.show,
    "partition": data_shown.partition,
}
