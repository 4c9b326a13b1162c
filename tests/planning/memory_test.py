"""Memory told from shapes; forecast_test.py compares it with what compiled programs say of themselves."""

import dataclasses

import pytest

from saddle_jax.devices import policy
from saddle_jax.devices.placement import spread
from saddle_jax.planning.forecast import stand_in
from saddle_jax.settings.settings import Settings
from saddle_jax.training import loop, memory
from saddle_jax.training.build import of_settings
from saddle_jax.training.program import build
from saddle_jax.training.progress import Screen

MLP = Settings(agents=3, model="mlp", devices="1")


def test_an_accelerator_takes_as_many_agents_at_a_time_as_find_room():
    config = Settings(agents=16, model="cnn", dataset="imagenette", batch_size=64)
    shared = of_settings(config, stand_in("imagenette"))
    groups = []
    for room in (10**9, 200 * 10**6, 100 * 10**6):
        with policy.targeting("gpu", room):
            program = build(config, shared)
            program = dataclasses.replace(program, placement=spread(16, 64, 1))
            groups.append(program.agents_per_call)
            assert memory.estimate(program).total <= room
    assert groups == sorted(groups, reverse=True)
    assert groups[0] == 16
    assert 1 < groups[1] < 16
    streamed = build(config, of_settings(config, stand_in("imagenet")))
    told = memory.estimate(dataclasses.replace(streamed, placement=spread(16, 64, 1)))
    assert told.data == 16 * 64 * (256 * 256 * 3 + 4)  # a batch for each agent, as it is stored


def test_devices_share_the_agents():
    one, three = (memory.estimate(build(dataclasses.replace(MLP, devices=n))) for n in ("1", "3"))
    assert three.carried == pytest.approx(one.carried / 3, rel=1e-3)
    assert three.sharing == 3  # host devices share one memory
    assert three.least == pytest.approx(one.least, rel=1e-3)


def test_what_cannot_fit_is_refused_and_what_may_not_is_told(monkeypatch, tmp_path, capsys):
    config = dataclasses.replace(MLP, model="logistic", agents=2, epochs=1, seeds="0,1")
    told = memory.estimate(build(config))
    monkeypatch.setattr(memory, "available", lambda: told.least - 1)
    message = (
        r"memory does not suffice: models and state of 2 agents in 2 trials take [\d.]+ kB, "
        r"there are [\d.]+ kB; use fewer agents or trials or more devices"
    )
    with pytest.raises(ValueError, match=message):
        loop.train(config, tmp_path / "run", Screen(quiet=True))
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr(memory, "available", lambda: told.least + 1)
    assert not memory.fits(build(config))
    loop.train(config, tmp_path / "run", Screen(quiet=True))
    assert "memory may not suffice" in capsys.readouterr().err
    monkeypatch.setattr(memory, "available", lambda: None)
    assert memory.fits(build(config))
    assert memory.check(build(config)) is None


def test_there_is_memory():
    assert memory.available() > 2**27
