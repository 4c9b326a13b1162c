"""A step compiled from shapes alone is the step that training runs, and what is told of it holds."""

import ast
import dataclasses
import json
import pathlib

import jax
import pytest

import saddle_jax
from saddle_jax.base.errors import RunError
from saddle_jax.cli import __main__ as cli
from saddle_jax.data.dataset import DataError
from saddle_jax.devices import policy
from saddle_jax.devices.placement import spread
from saddle_jax.planning import forecast as forecasts
from saddle_jax.planning import targets
from saddle_jax.planning.forecast import forecast, forecast_lines, remedies, stand_in
from saddle_jax.settings.settings import Settings
from saddle_jax.training import memory
from saddle_jax.training.batches import Feed
from saddle_jax.training.build import of_settings
from saddle_jax.training.program import build

MLP = Settings(agents=6, model="mlp", devices="1")
HERE = targets.target_of("here")
ROOT = pathlib.Path(saddle_jax.__file__).parents[1]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"devices": "4"},
        {"seeds": "0,1,2", "agents": 3, "agents_per_call": 9},
        {"seeds": "0,1", "subset": 500},
        {"method": "n_saddle(compressor=sign)", "model": "cnn", "agents": 3},
        {"agents": 12, "agents_per_call": 2, "batch_size": 64, "steps_per_dispatch": 3},
    ],
    ids=str,
)
def test_shapes_alone_give_the_program_that_training_runs_and_the_memory_that_it_takes(changes):
    config = dataclasses.replace(MLP, **changes)
    program = forecasts.program_on(config, HERE)
    real = build(config)
    assert program.placement == real.placement

    def check_same(told, given):
        assert (told.shape, told.dtype) == (given.shape, given.dtype)
        assert told.sharding is None or told.sharding.is_equivalent_to(given.sharding, given.ndim)

    given = (real.start()[0], Feed(real).at(0))
    jax.tree.map(check_same, (program.part_like, forecasts.input_shapes(program)), given)
    compiled, steps = forecasts.compile_step(program)
    assert steps == min(real.steps_per_dispatch, real.trial.steps)
    if config.devices == "1":
        found, told = compiled.memory_analysis(), memory.estimate(program)
        held = told.carried * program.at_once / len(program.trials) + told.data
        assert held == pytest.approx(found.argument_size_in_bytes, rel=0.05)
        assert 0.8 < told.working / found.temp_size_in_bytes < 3
        assert told.total == told.carried + told.data + told.working


def test_the_parts_add_up_to_what_the_compiler_counts():
    found = forecast(dataclasses.replace(MLP, devices="2"), HERE)
    assert found.fits
    assert found.devices == found.sharing == 2
    assert found.models == 3 * 17226 * 4
    assert found.models + found.state == found.estimate.carried
    assert found.data == pytest.approx(found.estimate.data, rel=0.05)
    assert 0.5 < found.estimate.working / found.working < 3
    moved = [one for one in found.collectives if one.bytes > 100]
    assert {one.kind for one in moved} == {"collective-permute"}
    assert sum(one.bytes for one in moved) == 2 * 17226 * 4  # a row across each of the two borders
    assert found.to_json().keys() >= {
        "target",
        "devices",
        "fits",
        "bytes_per_device",
        "collectives",
        "kernels",
        "largest_window",
        "compile_seconds",
    }


def test_what_does_not_fit_is_told_with_what_to_change(monkeypatch, capsys):
    config = Settings(
        agents=4, model="logistic", devices="1", agents_per_call=1, method="n_saddle(compressor=sign)"
    )
    needed = forecast(config, HERE).total
    monkeypatch.setattr(memory, "available", lambda: needed - 1)
    settings = ["--agents=4", "--model=logistic", "--devices=1", "--agents_per_call=1"]
    settings += ["--method=n_saddle(compressor=sign)"]
    assert cli.main(["saddle", "train", "--plan", "--target=here", "--json", *settings]) == 2
    found = json.loads(capsys.readouterr().out)
    assert not found["fits"]
    assert [line.partition(":")[0] for line in found["advice"]] == ["method.compressor=none"]
    assert forecast(dataclasses.replace(config, method="n_saddle"), HERE).fits
    monkeypatch.setattr(memory, "available", lambda: 1000)
    assert cli.main(["saddle", "train", "--plan", "--target=here", *settings]) == 2
    text = capsys.readouterr().out
    assert "fits        NO: " in text
    assert "to change   fewer agents, a smaller model or devices with more memory" in text


def test_remedies_are_tried_before_they_are_told():
    """On an accelerator, by the estimate alone: nothing is compiled."""
    config = Settings(agents=4, model="cnn", dataset="imagenette", agents_per_call=4, batch_size=128)
    with policy.targeting("gpu", 10**9):
        made = build(config, of_settings(config, stand_in("imagenette")))
        run = dataclasses.replace(made, placement=spread(4, 128, 1))

        def needed(count, agents_per_call):
            changed = dataclasses.replace(config, agents_per_call=agents_per_call)
            return memory.estimate(
                dataclasses.replace(run, config=changed, placement=spread(4, 128, count))
            ).total

        def told(room):
            lines = remedies(run, memory.estimate(run).working, room)
            return [line.partition(":")[0] for line in lines]

        assert needed(1, 2) < needed(1, 4)
        assert told(needed(1, 2)) == [
            "agents_per_call=2",
            "2 such devices and agents_per_call=0 instead of 1",
        ]
        assert needed(4, 0) < needed(1, 1)
        assert told(needed(4, 0)) == ["4 such devices and agents_per_call=0 instead of 1"]  # not fewer
        assert told(1000) == ["fewer agents, a smaller model or devices with more memory"]


def test_a_dataset_that_is_not_here_is_planned_by_its_shapes(monkeypatch, tmp_path):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    config = Settings(agents=2, model="logistic", dataset="cifar10", devices="1")
    found = forecast(config, HERE)
    assert not found.has_data
    assert found.data == pytest.approx(50_000 * (32 * 32 * 3 + 4), rel=0.05)
    streamed = Settings(agents=2, model="logistic", dataset="imagenet", devices="1")
    assert of_settings(streamed, stand_in("imagenet")).dataset.is_streamed
    with pytest.raises(DataError, match="is not prepared"):
        of_settings(config)  # which training does


def test_a_compiler_that_refuses_says_how_much_it_would_take(monkeypatch):
    """XLA does so for TPUs; no other compiler is asked here."""
    config = Settings(agents=4, model="mlp", devices="1", agents_per_call=4)
    text = "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used "

    def refuse(program, options=None):
        raise jax.errors.JaxRuntimeError(text + "30.50G of 15.48G hbm. Exceeded hbm capacity by 15.02G.")

    monkeypatch.setattr(forecasts, "compile_step", refuse)
    found = forecast(config, HERE)
    assert not found.fits
    assert found.total == int(30.5 * 2**30)
    assert found.memory == int(15.48 * 2**30)
    assert found.advice
    assert "the compiler refuses" in forecast_lines(found)[1][-1]
    text = "INTERNAL: something else"
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"):
        forecast(config, HERE)


def test_a_smaller_group_is_advised_that_then_fits(monkeypatch):
    config = Settings(agents=4, model="cnn", devices="1", agents_per_call=4)
    needed = forecast(config, HERE).total
    monkeypatch.setattr(memory, "available", lambda: int(0.8 * needed))
    found = forecast(config, HERE)
    (line,) = [line for line in found.advice if line.startswith("agents_per_call=")]
    agents_per_call = int(line.partition(":")[0].removeprefix("agents_per_call="))
    assert forecast(dataclasses.replace(config, agents_per_call=agents_per_call), HERE).fits


def test_mistakes(monkeypatch, capsys):
    for text in ("a41", "a40x0", "v5e", "v5e:4", "a40x", "x4", ""):
        assert cli.main(["saddle", "train", "--plan", f"--target={text}"]) == 2
        error = capsys.readouterr().err
        assert error.startswith("saddle: target must be here, one of a40, a100, h100, l4 with a number")
        assert error.endswith(f"got {text!r}\n")
    monkeypatch.setattr(targets.importlib.util, "find_spec", lambda name: None)
    for text, extra in (("a40x4", "plan-cuda"), ("v5e:2x2", "plan-tpu")):
        with pytest.raises(RunError, match=rf"target {text} needs pip install 'saddle_jax\[{extra}\]'"):
            targets.target_of(text)


def imported(name, found):
    """Adds the modules that a module of the package imports when it is imported itself, directly or not."""
    if name in found:
        return found
    found.add(name)
    path = ROOT.joinpath(*name.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(path.read_text()).body if path.is_file() else ():
        names = [node.module] if isinstance(node, ast.ImportFrom) else []
        if isinstance(node, ast.Import | ast.ImportFrom):
            names += [".".join([*names[:1], each.name]) for each in node.names]
        for each in names:
            imported(each, found)
    return found


def test_ordinary_use_imports_nothing_of_it():
    """A plan is for once; training must not pay for it."""
    found = imported("saddle_jax.cli.train", imported("saddle_jax.training.loop", set()))
    assert "saddle_jax.training.program" in found
    assert not {name for name in found if name.startswith("saddle_jax.planning.")}
    assert "jax.experimental.topologies" not in imported("saddle_jax.planning.targets", found)
