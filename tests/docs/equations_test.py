"""Equations of docstrings become LaTeX that reads as they are meant, and MathML."""

import importlib.util
import inspect
import re
import sys
import xml.etree.ElementTree

import pages
import pytest

from saddle_jax.methods import METHODS
from saddle_jax.sam import GRADIENTS

_spec = importlib.util.spec_from_file_location("equations", pages.DOCS_FOLDER / "hooks" / "equations.py")
equations = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(equations)

MEANT = {
    "x <- W (x - eta g)": r"x \leftarrow W (x - \eta g)",
    "m-hat <- mu m-hat + (1 - mu) (x - x_new) / eta": (
        r"\hat{m} \leftarrow \mu \hat{m} + (1 - \mu ) (x - x_{\text{new}}) / \eta"
    ),
    "g~ = g_p - alpha (g - <g, g_p^> g_p^)": (
        r"\tilde{g} = g_{p} - \alpha (g - \langle g, \hat{g}_{p}\rangle \hat{g}_{p})"
    ),
    "x = h + min(gamma / (sqrt(v / (1 - beta2^t)) + 1e-8), 1) r": (
        r"x = h + \operatorname{min}(\gamma / (\sqrt{v / (1 - \beta _{2}^{t})} + 10^{-8}), 1) r"
    ),
    "xi = rho T^2 g / ||T g||": r"\xi = \rho T^{2} g / \| T g\|",
    "x+ = W y-hat - eta d(g(x))": r"x^{+} = W \hat{y} - \eta d(g(x))",
    "m_{i->j} = h_i + sum of m'_{k->i} over k != j": (
        r"m_{i\to j} = h_{i} + \text{ sum } \text{ of } m'_{k\to i} \text{ over } k \neq j"
    ),
}


@pytest.mark.parametrize("formula", MEANT)
def test_a_formula_reads_as_it_is_meant(formula):
    assert equations.is_formula(formula)
    assert re.sub(r"\s+", " ", equations.to_latex(formula)).strip() == MEANT[formula]


@pytest.mark.parametrize(
    "words", ["the local momentum", 'variant "atc"', "k times", "m': of the step before"]
)
def test_words_stay_words(words):
    assert not equations.is_formula(words)


def test_prose_says_symbols_as_formulas_do():
    text = "With lambda > mu it is x-hat <- eta' g, and beta2 of `beta` or lambda_max."
    assert equations.from_docstring(text) == "With λ > μ it is x\u0302 ← η' g, and β2 of `beta` or λ\\_max."


@pytest.mark.parametrize("name", [*METHODS.ours, *GRADIENTS.ours])
def test_the_equations_of_everything_can_be_drawn(name):
    factory = METHODS[name] if name in METHODS else GRADIENTS[name]
    docstring = inspect.getdoc(sys.modules[inspect.unwrap(factory).__module__])
    drawn = equations.from_docstring(docstring)
    for table in re.findall(r'<div class="equations">.*</div>', drawn):
        text = "".join(xml.etree.ElementTree.fromstring(table).itertext())
        assert not re.search(r"\\|_\{|<-|\beta\b", text), text
