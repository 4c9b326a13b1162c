"""saddle completion: prints a script that completes verbs, options and settings in a shell."""

from collections.abc import Sequence

from absl import flags

from saddle_jax.cli import completion_scripts, completion_words
from saddle_jax.cli.usage import UsageError, parse


def run(arguments: Sequence[str]) -> None:
    """Prints the script of a shell; or writes down again what there is to complete."""
    options = flags.FlagValues()
    meaning = "Write down again, in the package, what can be completed: after a change of verbs or options."
    flags.DEFINE_bool("update", False, meaning, flag_values=options)
    shells = parse(options, arguments, ["[SHELL]"])
    if options.update:
        print(f"written: {completion_words.write()}")
        return
    (shell,) = shells or [""]
    if shell not in completion_scripts.SHELLS:
        raise UsageError(f"SHELL must be one of {', '.join(completion_scripts.SHELLS)}, got {shell!r}")
    print(completion_scripts.script(shell, completion_words.read()), end="")
