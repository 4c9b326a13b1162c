"""Gradient estimators in text: what is written is what is made, and nothing else is run."""

import pytest

import saddle_jax as sj
from saddle_jax.sam import GRADIENTS
from saddle_jax.sam.spelling import make_gradient


@pytest.mark.parametrize(
    ("text", "settings", "expected"),
    [
        ("none", {"rho": 0.1, "every": 5, "reuse": True}, "plain()"),
        ("plain", {}, "plain()"),
        ("sam", {"rho": 0.1}, "sam(rho=0.1)"),
        ("sam", {"rho": 0.1, "every": 5, "reuse": True}, "sam(rho=0.1, every=5, reuse=True)"),
        ("sam(rho=0.2, every=3)", {"rho": 0.1, "every": 5, "reuse": False}, "sam(rho=0.2, every=3)"),
        ("asam", {}, "asam(rho=0.5, eta=0.01)"),
        ("asam()", {"rho": 0.3, "every": 5}, "asam(rho=0.3, eta=0.01)"),
        ("looksam(every=10, alpha=0.5)", {"rho": 0.2}, "looksam(rho=0.2, every=10, alpha=0.5)"),
        ("looksam", {"every": 7}, "looksam(rho=0.1, every=7, alpha=0.7)"),
        ("gsam( rho_max = 2e-1 )", {"rho": 0.7}, "gsam(rho_max=0.2, rho_min=0.02, alpha=0.4)"),
        (" esam(gamma=0.3) ", {}, "esam(rho=0.05, beta=0.6, gamma=0.3)"),
        ("lesam", {"rho": 0.4, "reuse": True}, "lesam(rho=0.4)"),
        ("lesam(rho=0)", {"rho": 0.4}, "plain()"),
    ],
)
def test_a_text_is_the_call_that_it_looks_like(text, settings, expected):
    assert str(make_gradient(text, **settings)) == expected


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_gradient_reads_its_own_name(name):
    estimator = make_gradient(name, rho=0.2)
    assert str(make_gradient(str(estimator))) == str(estimator)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "lookam",
            "did you mean 'looksam'.*gradient must be one of auto, none, plain, sam, .*, got 'lookam'",
        ),
        ("esam(gama=0.3)", "did you mean 'gamma'.*gradient esam takes beta, gamma, rho, got option 'gama'"),
        ("none(rho=1)", "gradient none takes no options, got option 'rho'"),
        ("sam", r"gradient must say the rho of sam, as sam\(rho=0.1\), got 'sam'"),
        ("sam(rho=1, rho=2)", r"gradient must be NAME or NAME\(option=value, ...\) .*, got 'sam.*"),
        ("sam(rho=-1)", "rho must be a number >= 0, got -1"),
        ("looksam(every='x')", "every must be an integer >= 1, got 'x'"),
        ("gsam(share=0.5)", "gradient gsam takes alpha, rho_max, rho_min, got option 'share'"),
    ],
)
def test_what_is_no_gradient_is_refused_in_one_line(text, message):
    with pytest.raises(sj.ArgumentError, match=f"^{message.replace('?', '[?]')}$"):
        make_gradient(text)
