"""saddle check: holds anything that is brought, or a name of ours, to the laws of its kind."""

from collections.abc import Sequence

from absl import flags

from saddle_jax.base import checks
from saddle_jax.cli.output import Output, output_options
from saddle_jax.cli.streams import passing
from saddle_jax.cli.usage import mistakes, parse
from saddle_jax.testing import kinds
from saddle_jax.testing.verdicts import Verdict

_SHOWN = {"holds": "holds", "fails": "FAILS", "does not apply": "does not apply"}


def run(arguments: Sequence[str]) -> int:
    """Prints what each law says; returns 2 if one does not hold."""
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
        verdicts = kinds.check(kind, text, around, tell=lambda law: passing(f"{law} ..."))
    passing()
    output = Output(options)
    output.give([{"kind": kind, **each._asdict()} for each in verdicts])
    output.table(_rows(verdicts))
    output.say(f"\n{kind} {text}: {_counted(verdicts)}")
    return 2 if any(each.status == "fails" for each in verdicts) else 0


def _rows(verdicts: Sequence[Verdict]) -> list[list[str]]:
    rows = [["law", "", "what was seen"]]
    return rows + [[each.law, _SHOWN[each.status], each.seen] for each in verdicts]


def _counted(verdicts: Sequence[Verdict]) -> str:
    holding, failing = (sum(each.status == status for each in verdicts) for status in ("holds", "fails"))
    told = f"of {holding + failing} laws that apply {holding} hold"
    return f"{told}, {failing} {'fails' if failing == 1 else 'fail'}"
