"""saddle check: tries the invariants of its kind on anything that is plugged in, or on a built-in name."""

from collections.abc import Sequence

from absl import flags

from saddle_jax.base import checks
from saddle_jax.cli.output import Output, output_options
from saddle_jax.cli.streams import passing
from saddle_jax.cli.usage import mistakes, parse
from saddle_jax.testing import kinds
from saddle_jax.testing.invariants import InvariantError, Result

_SHOWN = {"holds": "holds", "fails": "FAILS", "does not apply": "does not apply"}


def run(arguments: Sequence[str]) -> int:
    """Prints a line for each invariant; returns 2 if one does not hold."""
    options = flags.FlagValues()
    meaning = f"What it is: {', '.join(kinds.KINDS)} (default: found from what it is)."
    flags.DEFINE_string("kind", None, meaning, flag_values=options)
    flags.DEFINE_integer("agents", 8, "How many agents a graph is made for.", flag_values=options)
    flags.DEFINE_string("dataset", "digits", "What a model or a loss is tried on.", flag_values=options)
    flags.DEFINE_string(
        "model", "", "What a loss is tried with (default: the dataset's).", flag_values=options
    )
    output_options(options)
    (text,) = parse(options, arguments, ["THING"])
    around = kinds.Surroundings(options.agents, options.dataset, options.model)
    with mistakes():
        if options.kind is not None:
            checks.choice("kind", options.kind, kinds.KINDS)
        kind = options.kind or kinds.kind_of(text)
        try:
            results = kinds.check(kind, text, around, tell=lambda name: passing(f"{name} ..."))
        except InvariantError as error:
            results = error.results
    passing()
    output = Output(options)
    output.give([{"kind": kind, **each._asdict()} for each in results])
    output.table(_rows(results))
    output.say(f"\n{kind} {text}: {_counted(results)}")
    return 2 if any(each.status == "fails" for each in results) else 0


def _rows(results: Sequence[Result]) -> list[list[str]]:
    rows = [["invariant", "", "what was seen"]]
    return rows + [[each.invariant, _SHOWN[each.status], each.seen] for each in results]


def _counted(results: Sequence[Result]) -> str:
    holding, failing = (sum(each.status == status for each in results) for status in ("holds", "fails"))
    told = f"of {holding + failing} invariants that apply {holding} hold"
    return f"{told}, {failing} {'fails' if failing == 1 else 'fail'}"
