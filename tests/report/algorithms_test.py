"""What `saddle methods` and `saddle methods --gradients` say is what methods do, and nothing is left out."""

import functools
import re

import jax.numpy as jnp
import pytest

import saddle_jax as sj
from saddle_jax.base.types import About
from saddle_jax.methods import METHODS, base_methods
from saddle_jax.report import algorithms
from saddle_jax.report.tables import as_text
from saddle_jax.sam import GRADIENTS

# By hand, from the papers: models (and numbers) per link and step, backward passes on a ring.
PAPERS = {
    "dpsgd": ("1", 1),
    "q_saddle": ("1", 2),
    "n_saddle": ("2", 6),
    "gradient_tracking": ("2", 1),
    "d2": ("1", 1),
    "sgp": ("1 + a number", 1),
    "push_diging": ("2 + a number", 1),
    "relay_sgd": ("1 + a number", 1),
    "beer": ("2", 1),
    "kgt": ("2/5", 1),
    "dfedsam": ("1/5", 2),
}


@pytest.fixture(autouse=True, scope="module")
def measured_once():
    """Every method is measured once, however many tests ask for it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("facts_of_method", "facts_of_gradient"):
            patch.setattr(algorithms, name, functools.cache(getattr(algorithms, name)))
        yield


@pytest.mark.parametrize("name", PAPERS)
def test_what_is_measured_is_what_the_papers_say(name):
    facts = algorithms.facts_of_method(name)
    assert (facts.sends, facts.passes) == PAPERS[name]


@pytest.mark.parametrize("name", base_methods())
def test_every_method_says_what_cannot_be_measured_in_its_own_file(name):
    said, facts = algorithms.about(METHODS[name]), algorithms.facts_of_method(name)
    assert re.search(r"\d{4}$", said.citation)
    assert facts.citation == said.citation
    assert facts.requires
    doc = algorithms.describe_method(name)
    assert facts.sends in doc
    assert ("It is exact on heterogeneous data" in " ".join(doc.split())) == said.exact
    for option in algorithms.options_of_method(name):
        assert option.meaning, option.name
        assert option.line() in doc


def test_a_saddle_version_is_as_exact_and_demanding_as_its_base():
    assert algorithms.about(METHODS["n_saddle"]) == About(
        "Choudhary et al., WACV 2025", requires="undirected"
    )
    assert algorithms.about(METHODS["ngm"]).citation == "Aketi et al., 2023"


def test_a_graph_that_a_method_refuses_is_not_measured_on():
    assert algorithms.facts_of_method("relay_sgd").graph == "path(8)"
    assert algorithms.facts_of_method("dpsgd").graph == "ring(8)"


# A graph that lacks what a word of "requires" says.
LACKING = {
    "doubly stochastic": sj.from_matrix([[0.5, 0.5, 0.0], [0.25, 0.5, 0.25], [0.0, 0.5, 0.5]]),
    "columns sum to one": sj.from_matrix([[0.5, 0.5, 0.0], [0.25, 0.5, 0.25], [0.0, 0.5, 0.5]]),
    "undirected": sj.directed_ring(5),
    "fixed links": sj.one_peer_exponential(8),
    "a tree": sj.ring(5),
    "whatever its weights": None,
}


@pytest.mark.parametrize("name", base_methods())
def test_a_method_refuses_a_graph_that_lacks_what_it_requires(name):
    factory, facts = METHODS[name], algorithms.facts_of_method(name)
    required = [option.name for option in algorithms.options_of_method(name) if option.required]
    given = {option: sj.top_k(0.5) for option in required}
    for word in facts.requires.split(", "):
        if (graph := LACKING[word]) is not None:
            with pytest.raises(ValueError, match="topology"):
                factory(graph, 0.1, **given).init(jnp.zeros((graph.size, 4)))


def test_what_the_theorem_alone_asks_is_told_apart():
    facts = algorithms.facts_of_method("d2")
    assert (facts.requires, facts.theory) == ("doubly stochastic", "a fixed symmetric W")
    assert sj.d2(sj.directed_ring(8), 0.1).name == sj.d2(sj.one_peer_exponential(8), 0.1).name == "d2"
    ((_, *cells),) = [row for row in algorithms.method_rows([facts]) if row[0] == "d2"]
    assert "doubly stochastic (theory for: a fixed symmetric W)" in cells
    assert "  theory for a fixed symmetric W\n" in algorithms.describe_method("d2")
    assert "theory for" not in algorithms.describe_method("qgm")
    assert algorithms.describe_method("qgm").count("QGM (Lin et al., 2021)") == 1


def test_states_are_counted_in_models():
    states = {name: algorithms.facts_of_method(name).state for name in ("dpsgd", "beer", "gut")}
    assert states == {"dpsgd": 1, "beer": 4, "gut": 3}  # momentum; V, G, H, g'; d', c, m


def test_the_table_has_a_row_for_each_method_and_fits_a_terminal():
    rows = algorithms.method_rows([algorithms.facts_of_method(name) for name in base_methods()])
    assert [row[0] for row in rows[1:]] == base_methods()
    spared = [
        row[: rows[0].index("requires")] for row in rows
    ]  # what `saddle methods` shows there at the least
    assert max(map(len, as_text(spared).splitlines())) <= 60
    about = algorithms.about_methods()
    assert "--method='slowmo(METHOD, every=N)'" in about
    assert max(map(len, about.splitlines())) <= 80


def test_the_table_of_gradients():
    facts = {name: algorithms.facts_of_gradient(name) for name in GRADIENTS}
    passes = {"plain": 1, "sam": 2, "looksam": 1.2, "lesam": 1, "gsam": 2}
    assert {name: facts[name].passes for name in passes} == passes
    assert (facts["looksam"].state, facts["sam"].state) == (1, 0)
    for name in facts:
        text = algorithms.describe_gradient(name)
        assert f"--gradient='{name}(" in text or f"--gradient={name}" in text
        assert all(option.meaning for option in algorithms.options_of_gradient(name))
    listed = as_text(algorithms.gradient_rows([*facts.values()]))
    assert re.search(r"^looksam +1.2 +1 +rho=0.1, every=5, alpha=0.7 +Liu et al., CVPR 2022$", listed, re.M)


def test_an_example_names_an_option():
    assert "--method='gut(beta=0.9)'" in algorithms.describe_method("gut")
    assert "--method='slowmo(dpsgd, every=48)'" in algorithms.describe_method("slowmo")
    assert "--gradient='sam(rho=0.05)'" in algorithms.describe_gradient("sam")
    assert "--gradient=plain" in algorithms.describe_gradient("plain")
