"""Methods and ascents in words: a table of all of them, and a page of text for each."""

import inspect
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from saddle_jax.methods import METHODS
from saddle_jax.methods.slowmo import slowmo
from saddle_jax.report.algorithms import (
    AscentFacts,
    MethodFacts,
    factory_of,
    facts_of_ascent,
    facts_of_method,
    method_factory,
)
from saddle_jax.report.options import Option, options_of
from saddle_jax.settings.config import Config
from saddle_jax.training.build import SETTINGS

_LEGEND = (
    "sends: uncompressed models per link and step; passes: backward passes of an agent in a step; state: "
    "models that an agent remembers; exact: on heterogeneous data, with a constant learning rate; "
    "requires: what a graph must be, or it is refused (theory for: others run, and nothing is proved of "
    "them). Measured on a ring of eight agents (a chain where a tree is required), with the options that "
    "settings give."
)
_WIDTH = 80


def options_of_method(name: str) -> list[Option]:
    """Lists the options of a method; what its own docstring leaves out, those of its relatives say."""
    factory = method_factory(name)
    ours = [METHODS[each] for each in METHODS.ours]
    relatives = [each for each in ours if each.__module__ == getattr(factory, "__module__", None)]
    return options_of(factory, SETTINGS, [*relatives, METHODS["dpsgd"]])


def options_of_ascent(name: str) -> list[Option]:
    """Lists the options of an ascent; SAM's radius alone is a setting of the same name, too."""
    return options_of(factory_of(name), {"rho"} if name == "sam" else set())


def method_rows(methods: Sequence[MethodFacts]) -> list[list[str]]:
    """Lists methods, one a row, as text under a heading."""
    rows = [["method", "sends", "passes", "state", "exact", "requires", "citation"]]
    for m in methods:
        requires = f"{m.requires} (theory for: {m.theory})" if m.theory else m.requires
        exact = "yes" if m.exact else "no"
        rows.append([m.name, m.sends, f"{m.passes:g}", f"{m.state:g}", exact, requires, m.citation])
    return rows


def about_methods() -> str:
    """Says what the columns of the table mean, and what can be put around each of the methods."""
    around = "slowmo_every=N puts SlowMo around any of them: " + _first_paragraph(slowmo)
    return "\n".join(["", _wrapped(around), "", _wrapped(_LEGEND), "saddle methods NAME tells more."])


def ascent_rows(ascents: Sequence[AscentFacts]) -> list[list[str]]:
    """Lists ascents, one a row, with their options, as text under a heading."""
    rows = [["ascent", "passes", "state", "options", "citation"]]
    for a in ascents:
        options = ", ".join(option.line() for option in options_of_ascent(a.name)) or "-"
        rows.append([a.name, f"{a.passes:g}", f"{a.state:g}", options, a.citation or "-"])
    return rows


def about_ascents() -> str:
    """Says what the columns of the table of ascents mean."""
    told = "passes: backward passes per gradient; state: models that it remembers."
    return f"\n{told}\nsaddle ascents NAME tells more."


def describe_method(name: str) -> str:
    """Writes a method's equations, what it costs and requires, its options and an example."""
    facts, factory = facts_of_method(name), method_factory(name)
    modules = dict.fromkeys(_module_doc(each) for each in (factory, inspect.unwrap(factory)))
    costs = [
        ["sends", f"{facts.sends} (models per link and step, uncompressed)"],
        ["computes", f"{_count(facts.passes, 'backward pass', 'es')} per step"],
        ["remembers", _count(facts.state, "model")],
        ["requires", facts.requires or "-"],
        *([["theory for", facts.theory]] if facts.theory else []),
        ["exact", "on heterogeneous data too" if facts.exact else "not on heterogeneous data"],
        ["citation", facts.citation or "-"],
    ]
    options = options_of_method(name)
    usual = [option.name for option in options if option.name in ("beta", "weight_decay", "gamma")]
    settings = ", ".join(f"{option} = {getattr(Config, option):g}" for option in usual)
    told = f"* a setting, too; a run has {settings}" if settings else "* a setting, too"
    return "\n\n".join(
        [
            *modules,
            f"Measured on {facts.graph}, with the options that settings give:\n"
            + "\n".join(f"  {left:<10} {right}" for left, right in costs),
            f"Options ({told}):\n{_list(options)}",
            f"Example:\n  saddle train --config.method={_call(name, options)} "
            f"--config.topology={facts.graph.partition('(')[0]}",
        ]
    )


def describe_ascent(name: str) -> str:
    """Writes an ascent's equations, what it costs, its options and an example."""
    facts, options = facts_of_ascent(name), options_of_ascent(name)
    doc = inspect.getdoc(factory_of(name)) or ""
    parts = [doc.splitlines()[0] if name == "none" else _module_doc(factory_of(name))]
    passes = _count(facts.passes, "backward pass", "es")
    parts.append(f"It takes {passes} per gradient and remembers {_count(facts.state, 'model')}.")
    if options:
        parts.append(f"Options (* a setting, too):\n{_list(options)}")
    call = _call(name, options)
    return "\n\n".join([*parts, f"Example:\n  saddle train --config.method=qgm --config.ascent={call}"])


def _list(options: Sequence[Option]) -> str:
    lines = []
    for option in options:
        mark = "*" if option.is_setting else " "
        text = f"{option.line():<20} {option.meaning}"
        lines.append(textwrap.fill(text, _WIDTH, initial_indent=f"  {mark} ", subsequent_indent=" " * 25))
    return "\n".join(lines)


def _call(name: str, options: Sequence[Option]) -> str:
    """Spells a call with the first option that only a spelling can give, for a shell."""
    for option in options:
        if not option.is_setting and isinstance(option.default, str | int | float):
            return f"'{name}({option.name}={option.default})'"
    return name


def _count(number: float, what: str, plural: str = "s") -> str:
    return f"{number:g} {what}{'' if number == 1 else plural}"


def _module_doc(factory: Callable[..., Any]) -> str:
    module = sys.modules.get(getattr(factory, "__module__", ""))
    return inspect.getdoc(module) or inspect.getdoc(factory) or ""


def _first_paragraph(factory: Callable[..., Any]) -> str:
    return " ".join(_module_doc(factory).split("\n\n")[0].split())


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDTH)
