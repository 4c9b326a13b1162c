"""Tables of names: a line says where a thing is, and each thing answers to its name."""

import pytest
from suited import suited

import saddle_jax as sj
from saddle_jax.base import tables
from saddle_jax.compression import COMPRESSORS
from saddle_jax.data.sources import BUILTIN
from saddle_jax.graphs import GRAPHS
from saddle_jax.methods import METHODS
from saddle_jax.models import MODELS
from saddle_jax.sam import GRADIENTS


def test_places_are_imported_under_the_names_of_the_table():
    table = tables.load({"mine": "saddle_jax.methods.qgm:qgm", "his": "math:sqrt"})
    assert list(table) == ["mine", "his"]
    assert table["mine"] is sj.qgm
    assert table["his"](9) == 3
    assert list(tables.options(sj.ring)) == ["n"]


@pytest.mark.parametrize(
    ("place", "error"), [("saddle_jax.no_such:thing", ImportError), ("math:no_such", AttributeError)]
)
def test_a_wrong_place_is_a_bug_and_keeps_its_traceback(place, error):
    with pytest.raises(error, match="no_such"):
        tables.load({"mine": place})


@pytest.mark.parametrize("table", [METHODS, GRAPHS, COMPRESSORS, GRADIENTS])
def test_what_is_public_is_what_the_table_says(table):
    for name, factory in table.items():
        assert getattr(sj, name, factory) is factory


def test_things_answer_to_their_names():
    for name, method in METHODS.items():
        rho = {"rho": 0.1} if "rho" in tables.options(method) else {}
        assert method(suited(name, sj.ring(4)), 0.1, **rho).name == name
    for name, load in BUILTIN.items():
        assert load().name == name
    assert all(callable(model) for model in MODELS.values())
