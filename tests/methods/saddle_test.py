"""`sj.saddle` gives an estimator to a method that has none."""

import pytest

import saddle_jax as sj


@pytest.mark.parametrize("again", [0.2, sj.asam(0.5), sj.plain_gradient()])
def test_a_gradient_is_given_once(again):
    for method in (
        sj.q_saddle(sj.ring(4), 0.1, 0.05),
        sj.saddle(sj.qgm(sj.ring(4), 0.1), 0.05),
        sj.slowmo(sj.dfedsam(sj.ring(4), 0.1, rho=0.05), 0.1),
    ):
        with pytest.raises(
            ValueError, match=r"^method must be one with plain gradients.* got .*rho=0\.05\)$"
        ):
            sj.saddle(method, again)


def test_no_gradient_is_none():
    plain = sj.saddle(sj.q_saddle(sj.ring(4), 0.1, 0.0), 0.0)
    assert sj.saddle(plain, 0.05).gradient.name == "sam(rho=0.05)"
