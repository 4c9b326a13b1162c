"""Ascents in text: what is written is what is made, and nothing else is run."""

import pytest

import saddle_jax as sj
from saddle_jax.sam import ASCENTS
from saddle_jax.settings.config import Config
from saddle_jax.training.build import make_ascent


@pytest.mark.parametrize(
    ("text", "settings", "expected"),
    [
        ("none", {}, "plain()"),
        ("plain", {}, "plain()"),
        ("sam", {"rho": 0.1}, "sam(rho=0.1)"),
        ("sam", {"rho": 0.1, "ascent_every": 5, "ascent_reuse": True}, "sam(rho=0.1, every=5, reuse=True)"),
        ("sam(rho=0.2, every=3)", {}, "sam(rho=0.2, every=3)"),
        ("sam(0.2)", {"ascent_every": 5}, "sam(rho=0.2, every=5)"),
        ("asam", {}, "asam(rho=0.5, eta=0.01)"),
        ("looksam(every=10, alpha=0.5)", {}, "looksam(rho=0.1, every=10, alpha=0.5)"),
        ("gsam( rho_max = 2e-1 )", {}, "gsam(rho_max=0.2, rho_min=0.02, alpha=0.4)"),
        (" esam(gamma=0.3) ", {}, "esam(rho=0.05, beta=0.6, gamma=0.3)"),
        ("lesam(rho=0)", {}, "plain()"),
    ],
)
def test_a_text_is_the_call_that_it_looks_like(text, settings, expected):
    config = Config(method="dpsgd" if text in ("none", "plain") else "qgm", ascent=text, **settings)
    assert str(make_ascent(config)) == expected


@pytest.mark.parametrize("name", ASCENTS)
def test_an_ascent_reads_its_own_name(name):
    ascent = ASCENTS.make("sam(rho=0.2)" if name == "sam" else name)
    assert str(ASCENTS.make(str(ascent))) == str(ascent)
    assert ASCENTS.make(ascent) is ascent


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lookam", "did you mean 'looksam'.*ascent must be one of plain, sam, .*, got 'lookam'"),
        ("esam(gama=0.3)", "did you mean 'gamma'.*ascent esam takes rho, beta, gamma, got option 'gama'"),
        ("plain(rho=1)", "ascent plain takes no options, got option 'rho'"),
        ("sam", "ascent sam must be given rho, got 'sam'"),
        ("sam(rho=1, rho=2)", r"ascent must be NAME, NAME\(option=value, ...\).*, got 'sam.*"),
        ("sam(rho=-1)", "rho must be a number >= 0, got -1"),
        ("looksam(every='x')", "every must be an integer >= 1, got 'x'"),
        ("gsam(share=0.5)", "ascent gsam takes rho_max, rho_min, alpha, got option 'share'"),
    ],
)
def test_what_is_no_ascent_is_refused_in_one_line(text, message):
    with pytest.raises(sj.ArgumentError, match=f"^{message.replace('?', '[?]')}$"):
        ASCENTS.make(text)
    with pytest.raises(sj.ArgumentError, match=r"^ascent none takes no options, got option 'rho'$"):
        Config(ascent="none(rho=1)")
