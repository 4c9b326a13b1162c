"""saddle check: holds anything that is brought, or a name of ours, to the laws of its kind."""

import json
import sys
from collections.abc import Sequence

from absl import flags

from saddle_jax.base import checks
from saddle_jax.cli.usage import mistakes, parse
from saddle_jax.laws import kinds
from saddle_jax.laws.verdicts import Verdict
from saddle_jax.report.tables import as_text

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
    flags.DEFINE_bool("json", False, "Print a JSON list.", flag_values=options)
    (text,) = parse(options, arguments, ["THING"])
    around = kinds.Surroundings(options.agents, options.dataset, options.model)
    with mistakes():
        if options.kind is not None:
            checks.choice("kind", options.kind, kinds.KINDS)
        kind = options.kind or kinds.kind_of(text)
        verdicts = kinds.check(kind, text, around, tell=_progress)
    _clear()
    if options.json:
        print(json.dumps([{"kind": kind, **each._asdict()} for each in verdicts], indent=1))
    else:
        print(_table(kind, text, verdicts))
    return 2 if any(each.status == "fails" for each in verdicts) else 0


def _table(kind: str, text: str, verdicts: Sequence[Verdict]) -> str:
    rows = [["law", "", "what was seen"]]
    rows += [[each.law, _SHOWN[each.status], each.seen] for each in verdicts]
    holding, failing = (sum(each.status == status for each in verdicts) for status in ("holds", "fails"))
    told = f"of {holding + failing} laws that apply {holding} hold"
    return f"{as_text(rows)}\n\n{kind} {text}: {told}, {failing} {'fails' if failing == 1 else 'fail'}"


def _progress(law: str) -> None:
    """Shows the law that is tried on a line of its own, where somebody watches."""
    if sys.stderr.isatty():
        print(f"\r\033[K{law} ...", end="", file=sys.stderr, flush=True)


def _clear() -> None:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
