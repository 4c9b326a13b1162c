"""Ascents in text: what is written is what is made, and nothing else is run."""

import pytest

import saddle_jax as sj
from saddle_jax.ascents import ASCENTS
from saddle_jax.ascents.spelling import parse_ascent


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
        ("gsam( rho_max = 2e-1 )", {"rho": 0.7}, "gsam(rho_max=0.2, rho_min=0.1, alpha=0.6)"),
        (" esam(gamma=0.3) ", {}, "esam(rho=0.05, beta=0.6, gamma=0.3)"),
        ("lesam", {"rho": 0.4, "reuse": True}, "lesam(rho=0.4)"),
        ("lesam(rho=0)", {"rho": 0.4}, "plain()"),
    ],
)
def test_a_text_is_the_call_that_it_looks_like(text, settings, expected):
    assert str(parse_ascent(text, **settings)) == expected


@pytest.mark.parametrize("name", ASCENTS)
def test_an_ascent_reads_its_own_name(name):
    ascent = parse_ascent(name, rho=0.2)
    assert str(parse_ascent(str(ascent))) == str(ascent)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lookam", "ascent must be one of none, plain, sam, .*, got 'lookam'; did you mean 'looksam'?"),
        (
            "esam(gama=0.3)",
            "ascent esam must have options of rho, beta, gamma, got 'gama'; did you mean 'gamma'?",
        ),
        ("none(rho=1)", "ascent plain must have options of none, got 'rho'"),
        ("sam", r"ascent must say the rho of sam, as sam\(rho=0.1\), got 'sam'"),
        ("sam(0.1)", r"ascent must be .*, with its options named, got 'sam\(0.1\)'"),
        ("sam(**{})", "ascent must be .*, with its options named, got .*"),
        ("sam(rho=1 + x)", r"ascent must be .*, with numbers, True or False as options, got .*"),
        ("sam(rho=open('x'))", r"ascent must be .*, with numbers, True or False as options, got .*"),
        ("sj.sam(rho=1)", "ascent must be a name or a call such as .*, got 'sj.sam.*"),
        ("sam(rho=0.1", "ascent must be a name or a call such as .*, got 'sam.*"),
        ("sam(rho=1, rho=2)", "ascent must be .*, with each option once, got 'sam.*"),
        ("", "ascent must be a name or a call such as .*, got ''"),
        (None, "ascent must be a name or a call such as .*, got None"),
        ("0.1", "ascent must be a name or a call such as .*, got '0.1'"),
        ("sam(rho=-1)", "rho must be a number >= 0, got -1"),
        ("looksam(every='x')", "every must be an integer >= 1, got 'x'"),
        ("gsam(share=0.5)", "share must be a function of the step t, or None, got 0.5"),
    ],
)
def test_what_is_no_ascent_is_refused_in_one_line(text, message):
    with pytest.raises(sj.ArgumentError, match=f"^{message.replace('?', '[?]')}$"):
        parse_ascent(text)
