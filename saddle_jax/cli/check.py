"""Verbs for your own code and for the installation: check and new."""

import pathlib

from absl import flags

from saddle_jax.base import checks
from saddle_jax.base.errors import MISTAKE
from saddle_jax.cli.process import BY_EXTRA
from saddle_jax.cli.verb import Output, integer, passing, refuse, text, verb


@verb(
    "Data, and your own",
    "[THING]",
    text("kind", None, "What it is: method, estimator, graph, ... (default: found from what it is)."),
    integer("agents", 8, "How many agents a graph is made for."),
    text("dataset", "digits", "What a model or a loss is tried on."),
    text("model", "", "What a loss is tried with (default: the dataset's)."),
    text("data_dir", None, "Folder of prepared datasets (default: TFDS_DATA_DIR, or ~/tensorflow_datasets)."),
    example="check mine.py:method",
    devices=4,  # it compares results on several devices
)
def check(options: flags.FlagValues, out: Output, thing: str = "") -> int:
    """Test the invariants of your own method, model and so on; without a name, test the installation."""
    if not thing:
        refuse(options, ("kind", "agents", "dataset", "model"), "be given with a THING to check")
        return _installation(options, out)
    refuse(options, ("data_dir",), "not be given with a THING, which is tried on embedded data")

    from saddle_jax.testing import kinds
    from saddle_jax.testing.invariants import InvariantError

    around = kinds.CheckContext(options.agents, options.dataset, options.model)
    if options.kind is not None:
        checks.choice("kind", options.kind, kinds.KINDS)
    kind = options.kind or kinds.kind_of(thing)
    try:
        results = kinds.check(kind, thing, around, tell=lambda name: passing(f"{name} ..."))
    except InvariantError as error:
        results = error.results
    passing()
    out.give([{"kind": kind, **each._asdict()} for each in results])
    rows = [[each.invariant, each.status.replace("fails", "FAILS"), each.seen] for each in results]
    out.table([["invariant", "", "what was seen"], *rows])
    holding, failing = (sum(each.status == status for each in results) for status in ("holds", "fails"))
    counted = f"of {holding + failing} invariants that apply {holding} hold, {failing}"
    out.say(f"\n{kind} {thing}: {counted} {'fails' if failing == 1 else 'fail'}")
    return MISTAKE if failing else 0


def _installation(options: flags.FlagValues, out: Output) -> int:
    """Prints what works, what is missing and how to install it; returns 2 if something is broken."""
    from saddle_jax.report.health import examine

    found = examine(BY_EXTRA, options.data_dir)
    out.table([["what", "state", "found"], *([one.what, one.state, one.seen] for one in found)])
    for one in found:
        if one.remedy:
            out.say(f"{one.what}: {one.remedy}")
    states = [one.state for one in found]
    if "broken" in states:
        out.note("\nsomething that is needed is broken: see above")
    else:
        out.note("\nsaddle works here" + (", without what is missing above" if "missing" in states else ""))
    out.give({"usable": "broken" not in states, "findings": [one._asdict() for one in found]})
    return MISTAKE if "broken" in states else 0


@verb("Data, and your own", "KIND", "NAME", text("folder", ".", "Where the two files are written."))
def new(options: flags.FlagValues, out: Output, kind: str, name: str) -> None:
    """Write a template and a test for your own method, model, dataset and so on."""
    from saddle_jax.testing import scaffold

    folder = pathlib.Path(options.folder)
    commands = scaffold.write(kind, name, folder)
    out.say(f"wrote {folder / name}.py and {folder / name}_test.py; to go on:")
    for command in commands:
        out.say(f"  {command}")
    out.give({"files": [f"{folder / name}.py", f"{folder / name}_test.py"], "commands": commands})
