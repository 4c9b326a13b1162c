"""Dataflow analysis of a jaxpr that finds random numbers drawn from a constant key.

A number drawn from a key that does not depend on the step's inputs is the same in every step. A run cannot
tell it from a constant of the algorithm, but in the jaxpr each draw is an operation whose key can be traced
back.
"""

from typing import Any, NamedTuple, TypeAlias

from jax.extend.core import ClosedJaxpr, Literal

# The operations that draw from a key; splitting and folding in draw nothing.
_DRAWS = ("random_bits", "threefry2x32", "rng_bit_generator", "rng_uniform", "random_gamma")

Place: TypeAlias = tuple[int, ...]  # the path to an operation: its indices from the outermost jaxpr inwards


class Draws(NamedTuple):
    """The places of a program that draw random numbers, and those whose key is constant."""

    all: set[Place]
    constant: dict[Place, str]  # with the shape drawn


def draws_of(closed: Any, changing: list[bool]) -> Draws:
    """Finds the draws of a closed jaxpr, where `changing` says which inputs vary from step to step."""
    draws = Draws(set(), {})
    _follow(closed.jaxpr, changing, draws, ())
    return draws


def _follow(jaxpr: Any, changing: list[bool], draws: Draws, place: Place) -> list[bool]:
    """Returns which outputs of a jaxpr depend on changing inputs, and records its draws."""
    changes = dict(zip(jaxpr.invars, changing, strict=True))

    def depends(variable: Any) -> bool:
        return not isinstance(variable, Literal) and changes.get(variable, False)

    for number, equation in enumerate(jaxpr.eqns):
        inputs = [depends(variable) for variable in equation.invars]
        here = (*place, number)
        if equation.primitive.name in _DRAWS:
            draws.all.add(here)
            # In a loop a key may start as a constant and change later.
            draws.constant.pop(here, None)
            if not any(inputs):
                draws.constant[here] = str(equation.outvars[-1].aval)
        outputs = _through(equation, inputs, draws, here)
        changes.update(zip(equation.outvars, outputs, strict=True))
    return [depends(variable) for variable in jaxpr.outvars]


def _through(equation: Any, inputs: list[bool], draws: Draws, place: Place) -> list[bool]:
    """Returns which outputs of an operation depend on changing inputs."""
    name, params, count = equation.primitive.name, equation.params, len(equation.outvars)
    if name == "cond":
        branches = enumerate(params["branches"])
        ends = [_follow(branch.jaxpr, inputs[1:], draws, (*place, n)) for n, branch in branches]
        return [inputs[0] or any(outputs) for outputs in zip(*ends, strict=True)]
    if name == "while":
        skipped, constants = params["cond_nconsts"], params["body_nconsts"]
        used, carry = inputs[skipped : skipped + constants], inputs[skipped + constants :]
        return _loop(params["body_jaxpr"].jaxpr, used, carry, [], draws, place)
    if name == "scan":
        constants, carried = params["num_consts"], params["num_carry"]
        parts = (inputs[:constants], inputs[constants : constants + carried], inputs[constants + carried :])
        return _loop(params["jaxpr"].jaxpr, *parts, draws, place)
    for value in params.values():
        if (jaxpr := _jaxpr(value)) is not None:  # a called function, whose first jaxpr is its body
            fits = len(jaxpr.invars) == len(inputs)
            outputs = _follow(
                jaxpr, inputs if fits else [any(inputs)] * len(jaxpr.invars), draws, (*place, 0)
            )
            return outputs if len(outputs) == count else [any(inputs)] * count
    return [any(inputs)] * count


def _loop(
    jaxpr: Any, constants: list[bool], carried: list[bool], each: list[bool], draws: Draws, place: Place
) -> list[bool]:
    """Analyses a loop until the dependencies of its carry reach a fixed point."""
    while True:
        outputs = _follow(jaxpr, [*constants, *carried, *each], draws, (*place, 0))
        more = [old or new for old, new in zip(carried, outputs, strict=False)]
        if more == carried:
            return [*carried, *outputs[len(carried) :]]
        carried = more


def _jaxpr(value: Any) -> Any:
    if isinstance(value, ClosedJaxpr):
        return value.jaxpr
    return value if hasattr(value, "eqns") and hasattr(value, "invars") else None
