"""Seeds and sweeps that make no sense are reported in one line."""

import pytest

from saddle_jax.settings.settings import Settings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": "0,x"}, "seeds must be whole numbers >= 0 with commas between them, .* got '0,x'"),
        ({"seeds": "0,-1"}, "seeds must be whole numbers"),
        ({"seeds": "4294967296"}, "seeds must be whole numbers"),
        ({"seeds": "0,1,0"}, "seeds must name each number once, got '0,1,0' with 0 twice"),
        ({"seeds": "0,1", "seed": 3}, "seed must not be given beside seeds = 0,1, got 3"),
        ({"sweep": "learning_rat=1,2"}, r"did you mean 'learning_rate'.*got 'learning_rat'"),
        ({"sweep": "agents=1,2"}, "sweep must name numbers that one program can try, .* got 'agents'"),
        ({"sweep": "beta=0.1,0.2"}, "did you mean 'method.beta'.*got 'beta'"),
        ({"sweep": "method.beta"}, "sweep must be SETTING=VALUE,VALUE,..., .* got 'method.beta'"),
        ({"sweep": "method.beta:0.1,0.2"}, "sweep must be SETTING=VALUE,VALUE,..., .* got 'method.beta:0.1"),
        (
            {"sweep": "method.beta=0.1,x"},
            "sweep must give numbers for method.beta, such as .*, got 'method.beta=0.1,x'",
        ),
        ({"sweep": "method.lam=1,2"}, "method q_saddle takes .* got option 'lam'"),
        ({"sweep": "method.beta=0.1,0.10"}, "sweep of method.beta must name each number once"),
        ({"sweep": "method.beta=0.1 method.beta=0.2"}, "sweep must name method.beta once"),
        ({"sweep": "learning_rate=0.1,0"}, "learning_rate must be a number > 0, got 0.0"),
        ({"sweep": "learning_rate=nan"}, "learning_rate must be a number"),
        ({"sweep": "method.rho=0,1", "method": "qgm"}, "method qgm takes .* got option 'rho'"),
        ({"seeds": "0,1", "topology": "erdos_renyi(0.9)"}, "whose graph differs between seeds, got '0,1'"),
    ],
    ids=str,
)
def test_mistakes_in_settings(changes, message):
    with pytest.raises(ValueError, match=message):
        Settings(**changes)
