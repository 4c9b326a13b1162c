"""One thing of each kind that a table names, for the invariants that hold for all of them."""

from saddle_jax.base.registry import parameters_of

# What a factory is given for a parameter that it cannot do without, by the parameter's type.
_GIVEN = {int: 4, float: 0.3}


def one_of_each(table):
    """A thing of each factory in a table, by name; numbers that must be given are small."""
    return {name: factory(**needed(factory)) for name, factory in table.items()}


def needed(factory):
    """What a factory must be given, by name."""
    parameters = parameters_of(factory).values()
    return {each.name: _GIVEN.get(each.annotation, 0.3) for each in parameters if each.default is each.empty}
