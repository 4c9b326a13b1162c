"""Seeds and sweeps that make no sense are reported in one line."""

import pytest

from saddle_jax.settings.config import Config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": "0,x"}, "seeds must be whole numbers >= 0 with commas between them, .* got '0,x'"),
        ({"seeds": "0,-1"}, "seeds must be whole numbers"),
        ({"seeds": "4294967296"}, "seeds must be whole numbers"),
        ({"seeds": "0,1,0"}, "seeds must name each number once, got '0,1,0' with 0 twice"),
        ({"seeds": "0,1", "seed": 3}, "seed must not be given beside seeds = 0,1, got 3"),
        ({"sweep": "learning_rat:1,2"}, r"did you mean 'learning_rate'.*got 'learning_rat'"),
        ({"sweep": "agents:1,2"}, "sweep must name numbers that one program can try, .* got 'agents'"),
        ({"sweep": "beta"}, "sweep must be SETTING:VALUE,VALUE,..., .* got 'beta'"),
        ({"sweep": "beta:0.1,x"}, "sweep must give numbers for beta, such as beta:0.1,0.2, got 'beta:0.1,x'"),
        ({"sweep": "method.lam:1,2"}, "sweep must not name method.lam for q_saddle, which has none"),
        ({"sweep": "beta:0.1,0.10"}, "sweep of beta must name each number once"),
        ({"sweep": "beta:0.1 beta:0.2"}, "sweep must name beta once"),
        ({"sweep": "beta:0.1,1"}, "beta must be a number >= 0 and < 1, got 1.0"),
        ({"sweep": "gamma:nan"}, "gamma must be a number"),
        ({"sweep": "rho:0,1", "method": "qgm"}, "sweep must not name rho for qgm, which has none"),
        ({"seeds": "0,1", "topology": "erdos_renyi(0.9)"}, "whose graph differs between seeds, got '0,1'"),
    ],
    ids=str,
)
def test_mistakes_in_settings(changes, message):
    with pytest.raises(ValueError, match=message):
        Config(**changes)
