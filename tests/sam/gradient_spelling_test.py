"""Gradient estimators in text: what is written is what is made, and nothing else is run."""

import pytest

import saddle_jax as sj
from saddle_jax.sam import GRADIENTS
from saddle_jax.settings.settings import Settings
from saddle_jax.training.build import build_method


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain()"),
        ("sam", "sam(rho=0.05)"),
        ("sam(rho=0.1, every=5, reuse=True)", "sam(rho=0.1, every=5, reuse=True)"),
        ("sam(rho=0.2, every=3)", "sam(rho=0.2, every=3)"),
        ("sam(0.2, every=5)", "sam(rho=0.2, every=5)"),
        ("asam", "asam(rho=0.5, eta=0.01)"),
        ("looksam(every=10, alpha=0.5)", "looksam(rho=0.1, every=10, alpha=0.5)"),
        ("gsam( rho_max = 2e-1 )", "gsam(rho_max=0.2, rho_min=0.02, alpha=0.4)"),
        (" esam(gamma=0.3) ", "esam(rho=0.05, beta=0.6, gamma=0.3)"),
        ("lesam(rho=0)", "plain()"),
    ],
)
def test_a_text_is_the_call_that_it_looks_like(text, expected):
    method = build_method(Settings(method="qgm", gradient=text), sj.ring(10), lambda t: 0.1)
    assert str(method.gradient) == expected


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_gradient_reads_its_own_name(name):
    estimator = GRADIENTS.make(name)
    assert str(GRADIENTS.make(str(estimator))) == str(estimator)
    assert GRADIENTS.make(estimator) is estimator


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lookam", "did you mean 'looksam'.*gradient must be one of .*plain, sam, .*, got 'lookam'"),
        ("esam(gama=0.3)", "did you mean 'gamma'.*gradient esam takes rho, beta, gamma, got option 'gama'"),
        ("plain(rho=1)", "gradient plain takes no options, got option 'rho'"),
        ("sam(rho=1, rho=2)", r"gradient must be NAME, NAME\(option=value, ...\).*, got 'sam.*"),
        ("sam(rho=-1)", "rho must be a number >= 0, got -1"),
        ("looksam(every='x')", "every must be an integer >= 1, got 'x'"),
        ("gsam(share=0.5)", "gradient gsam takes rho_max, rho_min, alpha, got option 'share'"),
    ],
)
def test_what_is_no_gradient_is_refused_in_one_line(text, message):
    with pytest.raises(sj.ArgumentError, match=f"^{message.replace('?', '[?]')}$"):
        GRADIENTS.make(text)
    with pytest.raises(sj.ArgumentError, match=f"{message.replace('?', '[?]')}$"):
        build_method(Settings(method="qgm", gradient=text), sj.ring(10), lambda t: 0.1)
