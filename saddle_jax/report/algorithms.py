"""What methods and ascents send, compute, remember and require: measured where that is possible.

A small model on a small ring is enough: a trace of a step computes nothing, and bytes are proportional to the
model. What cannot be measured stands in the constant ABOUT of each file, see `saddle_jax.base.about`.
"""

import dataclasses
import fractions
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from saddle_jax.base import spelt, tables
from saddle_jax.base.about import about
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Tree
from saddle_jax.core.ledger import open_ledger, passes_per_step
from saddle_jax.core.method import Method
from saddle_jax.core.topology import Keeps
from saddle_jax.methods import METHODS
from saddle_jax.methods.spelling import parse_method
from saddle_jax.sam import ASCENTS
from saddle_jax.sam.spelling import make_ascent, parse_ascent
from saddle_jax.settings.config import Config, build_topology
from saddle_jax.training import build

_AGENTS = 8
_WEIGHTS = (100, 100)  # so many that single numbers do not show in a count of models
_GRAPHS = ("ring", "chain")  # the first that a method takes
_KEEPS: dict[Keeps | None, tuple[str, ...]] = {
    "average": ("doubly stochastic",),
    "rows": ("rows sum to one",),
    "mass": ("columns sum to one",),
    None: (),
}


@dataclasses.dataclass(frozen=True)
class MethodFacts:
    """What a method is like, uncompressed and with the options that settings give it."""

    name: str
    sends: str  # per link and step, such as "2/5" models or "1 + a number"
    bytes_per_model: float  # the same as a number: bytes per link and step over bytes of a model
    passes: float  # backward passes of an agent in a step
    state: float  # what an agent remembers between steps, in models
    exact: bool  # on heterogeneous data, with a constant learning rate
    requires: str  # what a graph must be, or it is refused
    theory: str  # what the theorem asks of a graph besides
    citation: str
    graph: str  # on which it was measured


@dataclasses.dataclass(frozen=True)
class AscentFacts:
    """What an ascent is like, with its own defaults."""

    name: str
    passes: float  # backward passes in a step, the mean over a period
    state: float  # what it remembers of a model, in models
    citation: str


def facts_of_method(name: str) -> MethodFacts:
    """Measures a method on a ring of eight agents, or on a chain if it refuses rings."""
    graph, method = _on_a_graph(name)
    said = about(method_factory(name))
    sends, share = _sent(method)
    return MethodFacts(
        name=name,
        sends=sends,
        bytes_per_model=share,
        passes=passes_per_step(method, _models()),
        state=_in_models(jax.eval_shape(method.init, _models())._replace(t=()), _AGENTS),
        exact=said.exact,
        requires=", ".join([*_KEEPS[method.rule.demands], *([said.requires] if said.requires else [])]),
        theory=said.theory,
        citation=said.citation,
        graph=f"{graph}({_AGENTS})",
    )


def facts_of_ascent(name: str) -> AscentFacts:
    """Measures an ascent on one model; "none" is the plain gradient."""
    rho = tables.options(factory_of(name)).get("rho")
    needs_rho = rho is not None and rho.default is rho.empty
    ascent = make_ascent(name, rho=Config.rho) if needs_rho else make_ascent(name)
    state = jax.eval_shape(ascent.init, {"w": jax.ShapeDtypeStruct(_WEIGHTS, jnp.float32)})
    return AscentFacts(name, ascent.passes_per_step, _in_models(state, 1), about(factory_of(name)).citation)


def ascents() -> list[str]:
    """Lists the ascents by the names that settings use: none is the plain gradient."""
    return ["none" if name == "plain" else name for name in ASCENTS]


def factory_of(ascent: str) -> Callable[..., Any]:
    """Returns the factory of an ascent by the name that settings use, or by the spelling of another."""
    name, _ = parse_ascent(ascent)
    return spelt.factory("ascent", "plain" if name == "none" else name, ASCENTS)


def method_factory(method: str) -> Callable[..., Method]:
    """Returns the factory of a method by its name, or by the spelling of another."""
    return spelt.factory("method", parse_method(method)[0], METHODS)


def _on_a_graph(name: str) -> tuple[str, Method]:
    """Builds a method as the settings do, on the first graph that it takes."""
    refusal: ArgumentError | None = None
    for graph in _GRAPHS:
        config = Config(method=name, topology=graph, agents=_AGENTS)
        try:
            rate = optax.constant_schedule(config.learning_rate)
            return graph, build.build_method(config, build_topology(config), rate)
        except ArgumentError as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def _models() -> Tree:
    return {"w": jax.ShapeDtypeStruct((_AGENTS, *_WEIGHTS), jnp.float32)}


def _sent(method: Method) -> tuple[str, float]:
    """Says what goes over a link in a step, the mean over a period: in models, and in the models' bytes."""
    ledger, phases = open_ledger(method, _models()), method.rule.phases
    model = 4 * math.prod(_WEIGHTS)
    total = sum(ledger.wire[phase].link for phase in phases)
    models, rest = divmod(total, model)
    text = str(fractions.Fraction(models, len(phases)))
    if rest:
        numbers = fractions.Fraction(rest, 4 * len(phases))
        text += " + a number" if numbers == 1 else f" + {numbers} numbers"
    return text, total / (model * len(phases))


def _in_models(state: Tree, agents: int) -> float:
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    return round(size / (4 * agents * math.prod(_WEIGHTS)), 2)
