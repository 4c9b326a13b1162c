"""What a traced function multiplies, read from its jaxpr."""

import jax
import jax.extend

PRODUCTS = ("conv_general_dilated", "dot_general")


def equations(jaxpr):
    """All equations of a jaxpr, those of its inner ones too."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jax.extend.core.jaxprs_in_params(equation.params):
            yield from equations(inner)


def products(function, *arguments):
    """The convolutions and matrix products of a function, as (dtype of the operands, precision).

    The function is wrapped: what JAX has traced before, for another hardware, does not count.
    """
    found = []
    for equation in equations(jax.make_jaxpr(lambda *given: function(*given))(*arguments).jaxpr):
        if equation.primitive.name in PRODUCTS:
            (dtype,) = {str(operand.aval.dtype) for operand in equation.invars}
            precision = equation.params["precision"]
            found.append((dtype, None if precision is None else {str(each) for each in precision}.pop()))
    return found
