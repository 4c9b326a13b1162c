"""Communication, computation, memory and requirements of methods and gradient estimators.

They are measured by tracing a step of a small model on a small ring, since bytes are proportional to the
model. What cannot be measured is in the constant ABOUT of each file, see `saddle_jax.base.types.About`.
"""

import dataclasses
import fractions
import inspect
import math
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.registry import parameters_of, parse
from saddle_jax.base.types import About, Tree
from saddle_jax.core.comm_cost import comm_cost, passes_per_step
from saddle_jax.core.gossip import exact
from saddle_jax.core.method import Method
from saddle_jax.core.topology import Stochasticity
from saddle_jax.methods import METHODS, WRAPPERS
from saddle_jax.methods.slowmo import slowmo
from saddle_jax.sam import GRADIENTS
from saddle_jax.settings.settings import Settings, build_topology
from saddle_jax.training.build import build_method

_AGENTS = 8
_WEIGHTS = (100, 100)  # large enough that single scalars vanish in a number of models
_GRAPHS = ("ring", "path")  # the first one that a method accepts
_STOCHASTICITY: dict[Stochasticity | None, tuple[str, ...]] = {
    "doubly": ("doubly stochastic",),
    "row": ("rows sum to one",),
    "column": ("columns sum to one",),
    None: (),
}


def about(factory: Callable[..., Any]) -> About:
    """Returns the ABOUT of the file that defines a factory; an empty one if a user's file has none.

    A factory that wraps another one, as the SADDLe versions do, has its own citation; the rest is taken from
    the wrapped method.
    """
    own = getattr(sys.modules.get(getattr(factory, "__module__", "")), "ABOUT", None)
    if not isinstance(own, About):
        return About("")
    base = inspect.unwrap(factory)
    return own if base is factory else about(base)._replace(citation=own.citation)


@dataclasses.dataclass(frozen=True)
class MethodFacts:
    """Properties of a method, uncompressed and with its default settings."""

    name: str
    sends: str  # models per link and step, such as "2/5" or "1 + a number"
    bytes_per_model: float  # bytes per link and step over bytes of a model
    passes: float  # backward passes of an agent in a step
    state: float  # an agent's state, in models
    exact: bool  # reaches the optimum on heterogeneous data with a constant learning rate
    requires: str  # conditions on the graph; others are refused
    theory: str  # further assumptions of the theorem
    citation: str
    graph: str  # the graph of the measurement


@dataclasses.dataclass(frozen=True)
class GradientFacts:
    """Properties of a gradient estimator with its defaults."""

    name: str
    passes: float  # backward passes in a step, the mean over a period
    state: float  # its state, in models
    citation: str


def facts_of_method(name: str) -> MethodFacts:
    """Measures a method on a ring of eight agents, or on a path if it refuses rings."""
    graph, method = _on_a_graph(name)
    said = about(METHODS.factory(name))
    sends, share = _sent(method)
    return MethodFacts(
        name=name,
        sends=sends,
        bytes_per_model=share,
        passes=passes_per_step(method, _models()),
        state=_in_models(jax.eval_shape(method.init, _models())._replace(t=()), _AGENTS),
        exact=said.exact,
        requires=", ".join(
            [*_STOCHASTICITY[method.rule.requires], *([said.requires] if said.requires else [])]
        ),
        theory=said.theory,
        citation=said.citation,
        graph=f"{graph}({_AGENTS})",
    )


def facts_of_gradient(name: str) -> GradientFacts:
    """Measures an estimator on one model."""
    estimator = GRADIENTS.make(name)
    state = jax.eval_shape(estimator.init, {"w": jax.ShapeDtypeStruct(_WEIGHTS, jnp.float32)})
    return GradientFacts(
        name, estimator.passes_per_step, _in_models(state, 1), about(GRADIENTS.factory(name)).citation
    )


def text_of(method: str) -> str:
    """Returns what settings say of a method by its name: what wraps another one wraps D-PSGD."""
    return f"{method}(dpsgd)" if method in WRAPPERS else method


def _on_a_graph(name: str) -> tuple[str, Method]:
    """Builds a method from default settings, on the first graph that it accepts."""
    refusal: ArgumentError | None = None
    for graph in _GRAPHS:
        config = Settings(method=text_of(name), topology=graph, agents=_AGENTS)
        try:
            rate = optax.constant_schedule(config.learning_rate)
            return graph, build_method(config, build_topology(config), rate)
        except ArgumentError as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def _models() -> Tree:
    return {"w": jax.ShapeDtypeStruct((_AGENTS, *_WEIGHTS), jnp.float32)}


def _sent(method: Method) -> tuple[str, float]:
    """Returns the mean communication per link and step over a period, in models: as text and number."""
    cost, kinds = comm_cost(method, _models()), method.rule.kinds
    model = 4 * math.prod(_WEIGHTS)
    total = sum(cost.wire[kind].link for kind in kinds)
    models, rest = divmod(total, model)
    text = str(fractions.Fraction(models, len(kinds)))
    if rest:
        numbers = fractions.Fraction(rest, 4 * len(kinds))
        text += " + a number" if numbers == 1 else f" + {numbers} numbers"
    return text, total / (model * len(kinds))


def _in_models(state: Tree, agents: int) -> float:
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    result: float = round(size / (4 * agents * math.prod(_WEIGHTS)), 2)
    return result


# The options of a factory, from its signature and docstring.


# Arguments that a run passes itself.
_GIVEN = ("topology", "learning_rate", "share")


@dataclasses.dataclass(frozen=True)
class Option:
    """An option of a method or estimator; a `required` one has the default None."""

    name: str
    default: Any
    required: bool
    meaning: str

    def line(self) -> str:
        """Returns the option with its default, as in a call."""
        return self.name if self.required else f"{self.name}={self.default!r}"


def options_of(factory: Callable[..., Any], others: Iterable[Callable[..., Any]] = ()) -> list[Option]:
    """Lists a factory's options with their descriptions.

    Args:
      factory: makes a method or an estimator.
      others: factories whose docstrings describe options that the factory's own does not, the nearest first.
    """
    meanings: dict[str, str] = {}
    for each in (*reversed([*others]), inspect.unwrap(factory), factory):
        meanings |= _arguments(inspect.getdoc(each) or "")
    return [
        Option(
            name,
            None if parameter.default is inspect.Parameter.empty else parameter.default,
            parameter.default is inspect.Parameter.empty,
            meanings.get(name, ""),
        )
        for name, parameter in parameters_of(factory).items()
        if name not in _GIVEN
    ]


def _arguments(docstring: str) -> dict[str, str]:
    """Returns the description of each argument in the "Args:" section of a docstring, on one line each."""
    _, _, text = docstring.partition("Args:\n")
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if not line.startswith("  "):  # an empty line, or the next section
            break
        if begins := re.fullmatch(r"  (\w+): (.*)", line):
            name, found[begins.group(1)] = begins.groups()
        elif name:
            found[name] += f" {line.strip()}"
    return found


# Tables of methods and estimators, and a page of text for each.


_LEGEND = (
    "sends: uncompressed models per link and step; passes: backward passes of an agent in a step; state: "
    "models that an agent remembers; exact: on heterogeneous data, with a constant learning rate; "
    "requires: what a graph must be, or it is refused (theory for: others run, and nothing is proved of "
    "them). Measured on a ring of eight agents (a path where a tree is required), with the "
    "defaults."
)
_WIDTH = 80


def options_of_method(name: str) -> list[Option]:
    """Lists the options of a method; related factories describe those that its own docstring leaves out."""
    factory = METHODS.factory(name)
    ours = [METHODS[each] for each in METHODS.ours]
    relatives = [each for each in ours if each.__module__ == getattr(factory, "__module__", None)]
    return options_of(factory, [*relatives, METHODS["dpsgd"], exact, GRADIENTS["sam"]])


def options_of_gradient(name: str) -> list[Option]:
    """Lists the options of an estimator."""
    return options_of(GRADIENTS.factory(name))


def method_rows(methods: Sequence[MethodFacts]) -> list[list[str]]:
    """Returns the table of methods, one per row, with a heading."""
    rows = [["method", "sends", "passes", "state", "exact", "requires", "citation"]]
    for m in methods:
        requires = f"{m.requires} (theory for: {m.theory})" if m.theory else m.requires
        exact = "yes" if m.exact else "no"
        rows.append([m.name, m.sends, f"{m.passes:g}", f"{m.state:g}", exact, requires, m.citation])
    return rows


def about_methods() -> str:
    """Says what the columns of the table mean, and what can be put around each of the methods."""
    around = "--method='slowmo(METHOD, every=N)' puts SlowMo around any of them: " + _first_paragraph(slowmo)
    return "\n".join(["", _wrapped(around), "", _wrapped(_LEGEND), "saddle methods NAME tells more."])


def gradient_rows(gradients: Sequence[GradientFacts]) -> list[list[str]]:
    """Returns the table of estimators, one per row, with their options and a heading."""
    rows = [["gradient", "passes", "state", "options", "citation"]]
    for a in gradients:
        options = ", ".join(option.line() for option in options_of_gradient(a.name)) or "-"
        rows.append([a.name, f"{a.passes:g}", f"{a.state:g}", options, a.citation or "-"])
    return rows


def about_gradients() -> str:
    """Explains the columns of the table of estimators."""
    note = "passes: backward passes per gradient; state: models that it remembers."
    return f"\n{note}\nsaddle methods --gradients NAME tells more."


def describe_method(name: str) -> str:
    """Describes a method: its equations, costs, requirements and options, with an example."""
    facts, factory = facts_of_method(name), METHODS.factory(name)
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
    return "\n\n".join(
        [
            *modules,
            f"Measured on {facts.graph}, with the defaults:\n"
            + "\n".join(f"  {left:<10} {right}" for left, right in costs),
            f"Options, as --method.NAME=VALUE or within the method's text:\n{_list(options)}",
            f"Example:\n  saddle train --method={_call(text_of(name), options)} "
            f"--topology={facts.graph.partition('(')[0]}",
        ]
    )


def describe_gradient(name: str) -> str:
    """Describes an estimator: its equations, costs and options, with an example."""
    facts, options = facts_of_gradient(name), options_of_gradient(name)
    factory = GRADIENTS.factory(name)
    doc = inspect.getdoc(factory) or ""
    parts = [doc.splitlines()[0] if name == "plain" else _module_doc(factory)]
    passes = _count(facts.passes, "backward pass", "es")
    parts.append(f"It takes {passes} per gradient and remembers {_count(facts.state, 'model')}.")
    if options:
        parts.append(f"Options, as --gradient.NAME=VALUE or within the gradient's text:\n{_list(options)}")
    call = _call(name, options)
    return "\n\n".join([*parts, f"Example:\n  saddle train --method=qgm --gradient={call}"])


def _list(options: Sequence[Option]) -> str:
    lines = []
    for option in options:
        text = f"{option.line():<20} {option.meaning}"
        lines.append(textwrap.fill(text, _WIDTH, initial_indent="    ", subsequent_indent=" " * 25))
    return "\n".join(lines)


def _call(text: str, options: Sequence[Option]) -> str:
    """Returns a spec with its first option that has a number or a word as default, quoted for a shell."""
    for option in options:
        if isinstance(option.default, str | int | float):
            return f"'{parse('method', text).with_option(option.name, option.default)}'"
    return text


def _count(number: float, what: str, plural: str = "s") -> str:
    return f"{number:g} {what}{'' if number == 1 else plural}"


def _module_doc(factory: Callable[..., Any]) -> str:
    module = sys.modules.get(getattr(factory, "__module__", ""))
    return inspect.getdoc(module) or inspect.getdoc(factory) or ""


def _first_paragraph(factory: Callable[..., Any]) -> str:
    return " ".join(_module_doc(factory).split("\n\n")[0].split())


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDTH)
