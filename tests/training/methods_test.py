"""From settings to a method: each setting reaches it, or is refused in one line."""

import dataclasses
import functools

import jax
import optax
import pytest

import saddle_jax as sj
from saddle_jax.methods import METHODS
from saddle_jax.settings.settings import Settings, build_topology
from saddle_jax.training import build


def built(**settings):
    config = Settings(agents=8, **settings)
    return build.build_method(config, build_topology(config), optax.constant_schedule(config.learning_rate))


@pytest.fixture
def options(monkeypatch):
    """Builds a method and returns the options that its factory was called with."""

    def options_of(method, **settings):
        name, called = method.partition("(")[0], {}
        factory = METHODS[name]

        @functools.wraps(factory)
        def spy(topology, learning_rate, **options):
            called.update(options)
            return factory(topology, learning_rate, **options)

        monkeypatch.setitem(METHODS, name, spy)
        built(method=method, **settings)
        return called

    return options_of


def test_a_setting_reaches_the_method_whatever_its_value(options):
    assert options("beer(gamma=1.0)")["gamma"] == 1.0
    assert options("beer(gamma=0.2)")["gamma"] == 0.2
    assert "gamma" not in options("beer")  # its own default holds
    assert options("gut(nesterov=True)")["nesterov"] is True
    assert options("dfedsam(rho=0.05)")["rho"] == 0.05
    assert options("qgm(mu=0.0)")["mu"] == 0.0
    assert "mu" not in options("qgm")
    assert options("qgm(local_steps=3)")["local_steps"] == 3
    assert "local_steps" not in options("kgt")
    assert options("qgm(compressor=top_k(0.3))")["compressor"] == sj.top_k(0.3)


@pytest.mark.parametrize(
    ("settings", "estimator"),
    [
        ({"method": "qgm"}, "plain()"),
        ({"method": "q_saddle"}, "sam(rho=0.05)"),
        (
            {"method": "q_saddle(rho=0.2, ascent_every=5, ascent_reuse=True)"},
            "sam(rho=0.2, every=5, reuse=True)",
        ),
        ({"method": "q_saddle", "gradient": "plain"}, "plain()"),
        ({"method": "qgm", "gradient": "sam"}, "sam(rho=0.05)"),
        ({"method": "qgm", "gradient": "sam(rho=0.2, every=5)"}, "sam(rho=0.2, every=5)"),
        ({"method": "qgm", "gradient": "asam"}, "asam(rho=0.5, eta=0.01)"),
        ({"method": "q_saddle", "gradient": "lesam(rho=0.3)"}, "lesam(rho=0.3)"),
        ({"method": "dfedsam", "gradient": "esam"}, "esam(rho=0.05, beta=0.6, gamma=0.5)"),
    ],
)
def test_the_gradient_is_the_one_that_is_named(settings, estimator):
    method = built(**settings)
    assert str(method.gradient) == estimator
    assert method.name == settings["method"].partition("(")[0]


def test_gsam_follows_the_learning_rate():
    config = Settings(agents=8, method="qgm", gradient="gsam(rho_max=0.4, rho_min=0.1)", learning_rate=0.2)
    method = build.build_method(config, sj.ring(8), optax.piecewise_constant_schedule(0.2, {3: 0.5}))
    constant = build.build_method(config, sj.ring(8), optax.constant_schedule(0.2))
    assert method.gradient.needs == ("t",)
    model, ends = {"x": jax.numpy.ones(2)}, []
    for each in (method, constant):
        gradient = sj.Method("g", sj.isolated(1), sj.Rule(lambda x: (), _gradient), gradient=each.gradient)
        x = sj.replicate(model, 1)
        state = gradient.init(x)._replace(t=jax.numpy.int32(5))
        ends.append(
            gradient.step(lambda p, d: (p["x"] ** 3).sum() + d.sum(), x, state, jax.numpy.ones((1, 1)))[0]
        )
    assert abs(ends[0]["x"] - ends[1]["x"]).max() > 1e-3


def _gradient(s, x, state):
    return s.gradient(x), state


def test_slowmo_wraps_any_method_but_those_that_remember_where_they_were():
    assert built(method="slowmo(gradient_tracking, every=4)").rule.kinds[3] != 0
    for method in ("ecd(beta=0.0)", "d2(beta=0.0, variant=original)"):
        with pytest.raises(sj.ArgumentError, match="method must be one whose models may be set from outside"):
            built(method=f"slowmo({method}, every=4)")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "kgt(beta=0.5)"}, "method kgt takes .* got option 'beta'"),
        ({"gradient": "looksam(ascent_every=10)"}, "gradient looksam takes .* got option 'ascent_every'"),
        (
            {"method": "qgm", "sweep": "gradient.rho=0.1,0.2"},
            "gradient auto takes no options, got option 'rho'",
        ),
        (
            {"method": "qgm", "gradient": "gsam", "sweep": "gradient.rho=0.1,0.2"},
            "gradient gsam takes .* got option 'rho'",
        ),
        ({"method": "dpsgd(topology=ring)"}, "method dpsgd takes .* got option 'topology'"),
        ({"method": "qgm(beta={1, 2})"}, r"method must be NAME, NAME\(option=value"),
        ({"method": "qgm(beta={[]: 1})"}, r"method must be NAME, NAME\(option=value"),
        ({"topology": "spanning_tree(" * 3000 + "ring"}, "topology must be at most 500 letters long"),
        ({"topology": "random_matchings(1000000000)"}, "count must be an integer >= 1 and <= 1000"),
        ({"topology": "equi_static(1000000000)"}, "degree must be an integer >= 1 and <= 1000"),
    ],
)
def test_what_has_no_meaning_is_refused_in_one_line(settings, message):
    with pytest.raises(sj.ArgumentError, match=message) as error:
        Settings(**settings)
    assert "\n" not in str(error.value)


def test_somebody_elses_settings_open_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr("numpy.load", lambda *_, **__: pytest.fail("a file was opened"))
    config = Settings(timing=f"timing(latency={str(tmp_path / 'latency.npy')!r})")
    with pytest.raises(sj.ArgumentError, match="latency must be a file, got"):
        build.build_method(config, sj.ring(10), optax.constant_schedule(0.1))
    assert dataclasses.replace(config, timing="timing(latency='10ms')").timing == "timing(latency='10ms')"


def test_what_becomes_of_a_lost_message_is_no_option_of_relay_sgd(options):
    assert "missing" not in options(
        "relay_sgd", topology="path", faults="faults(drop=0.1, lost_weight=renormalise)"
    )
    assert options("relay_sgd(missing=last)", topology="path")["missing"] == "last"
