"""Finding out what kind of object a user's code is, and running the checks of that kind."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from saddle_jax import testing
from saddle_jax.base import checks, user_code
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.registry import Registry, is_code, parameters_of, parse
from saddle_jax.base.types import Operator
from saddle_jax.compression import COMPRESSORS
from saddle_jax.core.gradients import GradientEstimator
from saddle_jax.core.method import Method
from saddle_jax.core.topology import TimeVarying, Topology
from saddle_jax.data.dataset import Dataset
from saddle_jax.data.sources import BUILTIN, dataset_of, load
from saddle_jax.graphs import GRAPHS, make_graph
from saddle_jax.methods import METHODS
from saddle_jax.models import MODELS, make_model
from saddle_jax.models.functions import parameters
from saddle_jax.sam import GRADIENTS
from saddle_jax.tasks import OBJECTIVES
from saddle_jax.tasks.objectives import Objective, is_loss
from saddle_jax.testing.invariants import Result

KINDS = ("method", "gradient", "compressor", "graph", "model", "dataset", "objective")
_REGISTRIES: dict[str, Registry] = {
    "method": METHODS,
    "gradient": GRADIENTS,
    "compressor": COMPRESSORS,
    "graph": GRAPHS,
    "model": MODELS,
    "dataset": BUILTIN,
    "objective": OBJECTIVES,
}
_MADE = {
    Method: "method",
    GradientEstimator: "gradient",
    Topology: "graph",
    TimeVarying: "graph",
    Dataset: "dataset",
    Objective: "objective",
    Operator: "compressor",
}
# Values for required options that a spec does not set.
_USUAL = {"rho": 0.1}


class CheckContext(NamedTuple):
    """The context of a check: the number of agents for graphs, dataset and model for objectives."""

    agents: int = 8
    dataset: str = "digits"
    model: str = ""  # for an objective; "" is the dataset's default


def kind_of(text: str) -> str:
    """Returns the kind of object that a text names, from the registries or by importing it."""
    name = parse("thing", text).name
    if is_code(name):
        kind = guess(user_code.load("thing", name))
        if kind is None:
            raise ArgumentError(f"kind must be one of {', '.join(KINDS)}, it cannot be told what {text} is")
        return kind
    kinds = [kind for kind, registry in _REGISTRIES.items() if name in registry]
    kinds += ["gradient"] if name == "none" else []
    if len(kinds) == 1:
        return kinds[0]
    if kinds:
        raise ArgumentError(f"kind must be {' or '.join(kinds)}, which {name} both is")
    names = [each for registry in _REGISTRIES.values() for each in registry]
    raise ArgumentError(
        f"{checks.suggestion(name, names)}"
        f"thing must be FILE.py:NAME, module:NAME or a name of ours, got {text!r}"
    )


def guess(thing: Any) -> str | None:
    """Returns the kind of an object, or of a function's result if it can be called without arguments."""
    if (made := _kind_of_made(thing)) is not None:
        return made
    if not callable(thing):
        return _kind_of_data(thing)
    if isinstance(thing, type) and issubclass(thing, tuple(_MADE)[:-1]):
        return next(kind for base, kind in _MADE.items() if issubclass(thing, base))
    if isinstance(thing, type) and all(hasattr(thing, each) for each in ("compress", "bits", "stochastic")):
        return "compressor"
    try:
        names, returned = parameters(thing), inspect.signature(thing).return_annotation
    except (TypeError, ValueError):
        return None
    if isinstance(returned, type) and returned in _MADE:
        return _MADE[returned]
    if {"topology", "learning_rate"} & {*names}:
        return "method"
    if {"num_classes", "rngs"} & {*names} or (isinstance(thing, type) and _is_module(thing)):
        return "model"
    if names[:1] == ["n"]:
        return "graph"
    if names[:1] == ["apply"] or is_loss(thing):
        return "objective"
    if (names[:1] or [""])[0].startswith("rho"):
        return "gradient"
    needed = [p for p in parameters_of(thing).values() if p.default is p.empty]
    if any(each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL) for each in needed):
        return None
    with user_code.failing_as("thing failed"):
        result = thing()
    return _kind_of_made(result) or _kind_of_data(result)


def check(
    kind: str,
    text: str,
    context: CheckContext,
    tell: Callable[[str], None] | None = None,
) -> list[Result]:
    """Checks the invariants of a kind on the object that a text names."""
    checks.choice("kind", kind, KINDS)
    if kind in ("method", "gradient", "compressor", "graph"):
        factory, options = _factory(kind, text, context)
        checked: Callable[..., list[Result]] = getattr(testing, f"check_{kind}")
        return checked(factory, options, tell=tell)
    if kind == "dataset":
        if not is_code(text):
            return testing.check_dataset(functools.partial(load, text), tell=tell)
        return testing.check_dataset(*_users(kind, text), tell=tell)
    dataset = load(context.dataset)
    if kind == "model":
        model = make_model(text, dataset.num_outputs, "evonorm", "fast")
        return testing.check_model(model, dataset=dataset, tell=tell)
    learner = make_model(context.model, dataset.num_outputs, "evonorm", "fast") if context.model else None
    objective: Any = text
    if is_code(text):
        thing, options = _users(kind, text)
        objective = functools.partial(thing, **options) if options else thing
    return testing.check_objective(objective, model=learner, dataset=dataset, tell=tell)


def _factory(kind: str, text: str, context: CheckContext) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Returns the factory that a text names, and its options."""
    registry = _REGISTRIES[kind]
    if is_code(parse(kind, text).name):
        thing, options = _users(kind, text)
        return (thing, _completed(thing, options)) if callable(thing) else (lambda: thing, options)
    if kind == "compressor":
        return lambda: registry.make(text), {}
    if kind == "graph":
        return lambda n: make_graph(text, n, 0), {"n": context.agents}
    spec = registry.parse("plain" if text == "none" else text)
    return registry[spec.name], _completed(registry[spec.name], registry.arguments(spec))


def _users(kind: str, text: str) -> tuple[Any, dict[str, Any]]:
    """Loads user code, and returns it with its options."""
    registry = _REGISTRIES[kind]
    spec = parse(kind, text)
    thing = user_code.load(kind, spec.name)
    made = _kind_of_made(thing)
    if kind == "method" and made == "method":
        raise ArgumentError(
            f"method must be a function of topology and learning_rate that makes one, got the method {text}"
        )
    if made is not None and made != kind:
        raise ArgumentError(f"{kind} {spec.name} must be a {kind}, got a {made}")
    return thing, registry.arguments(spec) if callable(thing) else {}


def _completed(factory: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    takes = parameters_of(factory)
    needed = [name for name, each in takes.items() if each.default is each.empty]
    return {name: value for name, value in _USUAL.items() if name in needed} | options


def _kind_of_made(thing: Any) -> str | None:
    if isinstance(thing, type):
        return None
    is_pair = isinstance(thing, tuple | list) and len(thing) == 2 and all(map(callable, thing))
    if is_pair or _is_module(type(thing)):
        return "model"
    return next((kind for base, kind in _MADE.items() if isinstance(thing, base)), None)


def _kind_of_data(thing: Any) -> str | None:
    try:
        dataset_of(thing, "thing")
    except ArgumentError:
        return None
    return "dataset"


def _is_module(kind: type) -> bool:
    """Returns whether a class is one of flax's modules, without importing flax."""
    names = [(each.__module__.partition(".")[0], each.__name__) for each in kind.__mro__]
    return ("flax", "Module") in names
