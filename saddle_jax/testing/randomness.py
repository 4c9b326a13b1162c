"""Where the random numbers of a program come from, read off the program itself.

A number that is drawn from a key which no input of the step has touched is the same in every step. No run can
tell it from a constant of the algorithm, but its jaxpr does: each draw is an operation, and what its key was
made of can be followed back.
"""

from typing import Any, NamedTuple, TypeAlias

from jax.extend.core import ClosedJaxpr, Literal

# The operations that turn a key into numbers; splitting a key or folding into it draws nothing.
_DRAWS = ("random_bits", "threefry2x32", "rng_bit_generator", "rng_uniform", "random_gamma")

Place: TypeAlias = tuple[int, ...]  # the way to an operation, by its numbers from the outside inwards


class Draws(NamedTuple):
    """The places of a program that draw random numbers, and those of them whose key never changes."""

    all: set[Place]
    constant: dict[Place, str]  # with the shape that is drawn


def draws_of(closed: Any, changing: list[bool]) -> Draws:
    """Finds the draws of a closed jaxpr, given which of its inputs change from step to step."""
    draws = Draws(set(), {})
    _follow(closed.jaxpr, changing, draws, ())
    return draws


def _follow(jaxpr: Any, changing: list[bool], draws: Draws, place: Place) -> list[bool]:
    """Returns which outputs of a jaxpr depend on changing inputs, and notes the draws on the way."""
    changes = dict(zip(jaxpr.invars, changing, strict=True))

    def depends(variable: Any) -> bool:
        return not isinstance(variable, Literal) and changes.get(variable, False)

    for number, equation in enumerate(jaxpr.eqns):
        inputs = [depends(variable) for variable in equation.invars]
        here = (*place, number)
        if equation.primitive.name in _DRAWS:
            draws.all.add(here)
            # In a loop a key may begin as a constant, and change then.
            draws.constant.pop(here, None)
            if not any(inputs):
                draws.constant[here] = str(equation.outvars[-1].aval)
        outputs = _through(equation, inputs, draws, here)
        changes.update(zip(equation.outvars, outputs, strict=True))
    return [depends(variable) for variable in jaxpr.outvars]


def _through(equation: Any, inputs: list[bool], draws: Draws, place: Place) -> list[bool]:
    """Returns which outputs of an operation depend on inputs that change."""
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
        if (jaxpr := _jaxpr(value)) is not None:  # a function that is called: the first is its own program
            fits = len(jaxpr.invars) == len(inputs)
            outputs = _follow(
                jaxpr, inputs if fits else [any(inputs)] * len(jaxpr.invars), draws, (*place, 0)
            )
            return outputs if len(outputs) == count else [any(inputs)] * count
    return [any(inputs)] * count


def _loop(
    jaxpr: Any, constants: list[bool], carried: list[bool], each: list[bool], draws: Draws, place: Place
) -> list[bool]:
    """Follows a loop until what it carries depends on nothing more."""
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
