"""Several runs in one program: each is the run that it would be alone."""

import dataclasses
import json
import math
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dying import Deadly, Killed
from folders import OBJECTIVE

import saddle_jax as sj
from saddle_jax.cli.__main__ import main
from saddle_jax.runs import run_folder
from saddle_jax.runs.table import cell_of, load_runs, seeds_together
from saddle_jax.settings import sweep as trials
from saddle_jax.settings.settings import Settings
from saddle_jax.training import batches, describe, loop
from saddle_jax.training.program import build
from saddle_jax.training.progress import Screen
from saddle_jax.training.sweep import Runs, over_seeds

TINY = Settings(
    agents=3, model="logistic", batch_size=16, partition="dirichlet(1.0)", devices="1", learning_rate=0.05
)
# Two epochs of 15 steps; with 1e30 the loss is not finite from the third step on.
SMALL = dataclasses.replace(
    TINY, batch_size=32, epochs=2, eval_every_epochs=1, log_every_steps=1, checkpoint_every_steps=7,
    seeds="4,2", sweep="learning_rate=0.05,1e30",
)  # fmt: skip


class Quickly:
    """A jitted step, compiled once and fast: it runs for milliseconds. It takes back what it has returned."""

    def __init__(self, jitted):
        self._jitted, self._step = jitted, None

    def __call__(self, *arguments):
        if self._step is None:
            lowered = self._jitted.lower(*arguments)
            self._step = lowered.compile(compiler_options={"xla_backend_optimization_level": 0})
        return self._step(*arguments[:-2])


def after_steps(config, steps=3):
    """The parts, models and last metrics after some steps of one compiled program."""
    parts = build(config)
    vars(parts)["compiled"] = Quickly(parts.compiled)
    carry, inputs = parts.start(), batches.stored(parts, 0)
    for t in range(steps):
        carry, metrics = parts.steps(carry, inputs, t)
    return parts, carry, parts.of_each(jax.device_get(metrics))


def check_alone(config, tolerance=1e-6):
    """The last trial of a program against its own run: model and metrics; the first one is another."""
    parts, carry, metrics = after_steps(config)
    first, last = parts.models(carry, 0), parts.models(carry, len(parts.trials) - 1)
    _, alone, alone_metrics = after_steps(parts.trials[-1].config)
    chex.assert_trees_all_close(last, alone[0].params, rtol=1e-4, atol=tolerance)
    chex.assert_trees_all_close(metrics[-1], alone_metrics[0], rtol=1e-3, atol=10 * tolerance)
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(last), strict=True)
    assert all(np.abs(one - other).max() > 1e-3 for one, other in pairs)


def with_scalar(topology, learning_rate, **options):
    """D-PSGD whose steps grow with a scalar of its state, which differs between trials."""
    base = sj.dpsgd(topology, learning_rate).rule

    def step(s, x, state):
        inner, travelled = state
        new, inner = base.step(s, x, inner)
        new = jax.tree.map(lambda new, x: new + 0.1 * travelled * (new - x), new, x)
        return new, (inner, travelled + learning_rate(s.t))

    rule = sj.Rule(lambda x: (base.init(x), jnp.float32(0)), step)
    return sj.Method("dpsgd", topology, rule)


@pytest.mark.parametrize("agents_per_call", [1, 12])  # one trial at a time, and all of them by vmap
def test_a_scalar_of_the_state_may_differ_between_trials(monkeypatch, agents_per_call):
    monkeypatch.setitem(sj.METHODS, "dpsgd", with_scalar)
    sweep = "learning_rate=0.02,0.1"
    check_alone(dataclasses.replace(TINY, method="dpsgd", sweep=sweep, agents_per_call=agents_per_call))


@pytest.mark.parametrize(
    "changes",
    [
        {
            "method": "q_saddle",
            "seeds": "0,7",
            "sweep": "method.rho=0,0.1 method.gamma=0.5,1",
            "agents_per_call": 12,
        },
        {
            "method": "d_saddle(ascent_every=2, ascent_reuse=True)",
            "sweep": "method.rho=0,0.5",
            "agents_per_call": 6,
        },
        {"method": "n_saddle(compressor=sign)", "seeds": "4294967295,1", "diagnostics": True},
        {
            "method": "n_saddle",
            "sweep": "learning_rate=0.02,0.1 method.weight_decay=0,0.1",
            "agents_per_call": 6,
        },
        {
            "method": "qgm(compressor=random_k(0.3), gamma=0.4)",
            "seeds": "1,0",
            "sweep": "method.beta=0,0.9 method.mu=0.1,0.5",
        },
        {
            "method": "slowmo(qgm(beta=0.5), every=2)",
            "sweep": "learning_rate=0.02,0.1 method.alpha=0.5,1 method.beta=0,0.6",
        },
        {"method": "qgm", "gradient": "looksam(every=2)", "sweep": "gradient.rho=0,0.5 gradient.alpha=0,0.9"},
        {"method": "gut(beta=0.0)", "sweep": "method.mu=0,0.7", "agents_per_call": 6},
        {
            "method": "dpsgd",
            "seeds": "0,1",
            "subset": 300,
            "sweep": "method.beta=0,0.9",
            "schedule": "cosine",
        },
    ],
    ids=str,
)
def test_each_trial_is_its_own_run(changes):
    """One after the other, as on a CPU; with a group as large as several trials, so many at once."""
    check_alone(dataclasses.replace(TINY, **changes))


def test_each_trial_is_its_own_run_with_convolutions():
    convolutions = {"model": "strided_cnn", "agents": 2, "batch_size": 4, "agents_per_call": 4}
    check_alone(dataclasses.replace(TINY, method="qgm", seeds="0,1", **convolutions), 1e-5)


def test_devices_and_groups_change_nothing_but_rounding():
    config = dataclasses.replace(TINY, method="n_saddle(compressor=sign)", seeds="0,1")
    single, alone, _ = after_steps(config)
    for changes in (
        {"devices": "2", "agents_per_call": 4},  # with an idle agent
        {"agents_per_call": 2},
        {"agents_per_call": 6},
    ):
        parts, carry, _ = after_steps(dataclasses.replace(config, **changes))
        for number in (0, 1):
            models = jax.tree.map(lambda x: np.asarray(x)[:3], parts.models(carry, number))
            chex.assert_trees_all_close(models, single.models(alone, number), rtol=1e-4, atol=1e-6)
        if parts.placement.mesh is not None:
            leaf = jax.tree.leaves(carry[0][0])[0]
            assert len(leaf.sharding.device_set) == parts.placement.devices
            assert (
                leaf.addressable_shards[0].data.shape[-2 if leaf.ndim > 1 else -1]
                == parts.placement.per_device
            )


@pytest.fixture(scope="module")
def trained(tmp_path_factory, built_once):
    workdir = tmp_path_factory.mktemp("trials") / "run"
    return loop.train(SMALL, workdir, Screen(quiet=True)), workdir


def test_what_diverges_is_marked_and_stops_nobody(trained, tmp_path):
    result, workdir = trained
    assert result["status"] == "finished"
    assert result["diverged"] == 2
    assert [(one["seed"], one["learning_rate"], one["status"]) for one in result["trials"]] == [
        (4, 0.05, "finished"),
        (2, 0.05, "finished"),
        (4, 1e30, "diverged"),
        (2, 1e30, "diverged"),
    ]
    for one, config in zip(result["trials"], SMALL.each()[:2], strict=False):
        alone = loop.train(config, tmp_path / f"seed{one['seed']}", Screen(quiet=True))
        assert alone["test_accuracy"] == pytest.approx(one["test_accuracy"], abs=2 / 360)
        assert alone["test_loss"] == pytest.approx(one["test_loss"], rel=1e-3)
        assert alone["steps"] == result["steps"]
        assert set(alone) - set(one) <= set(result)
    for one in result["trials"][2:]:
        assert one["test_accuracy"] is None
        assert one["test_loss"] is None
        assert one["diverged_at_step"] == one["last_finite"]["step"] + 1 == 3
    accuracies = [one["test_accuracy"] for one in result["trials"][:2]]
    assert result["test_accuracy"] == pytest.approx(np.mean(accuracies))
    assert result["test_accuracy_std"] == pytest.approx(np.std(accuracies, ddof=1))
    assert result["settings"][0]["test_accuracy"] == result["test_accuracy"]
    assert result["settings"][1] == {"learning_rate": 1e30, "diverged": 2}
    assert result == json.loads((workdir / "result.json").read_text())


def test_a_line_has_all_trials_their_mean_and_spread(trained):
    _, workdir = trained
    lines = run_folder.read_metrics(workdir)
    logged = [line for line in lines if "train_loss" in line]
    assert len(logged) == 30
    assert len(lines) == 32
    for line in lines[-3:]:
        name = "train_loss" if "train_loss" in line else "test_loss"
        one, other, *diverged = line[f"{name}_by_trial"]
        assert diverged == [None, None]
        assert line[name] == pytest.approx((one + other) / 2)
        assert line[f"{name}_std"] == pytest.approx(abs(one - other) / math.sqrt(2))
    assert logged[-1]["learning_rate_by_trial"][2] == pytest.approx(1e28)  # after the milestones


def test_what_was_killed_goes_on_bit_for_bit(trained, tmp_path):
    result, workdir = trained
    for steps in (3, 12):
        with pytest.raises(Killed):
            loop.train(SMALL, tmp_path, Deadly(steps))
    again = loop.train(SMALL, tmp_path, Screen(quiet=True))
    untimed = {"seconds": 0, "ready_seconds": 0}
    assert again | untimed == result | untimed
    assert run_folder.read_metrics(tmp_path) == run_folder.read_metrics(workdir)


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "dpsgd", "sweep": "method.beta=0,0.9"},
        {"method": "d_saddle(ascent_every=2, ascent_reuse=True)", "sweep": "method.rho=0,0.5"},
        {"method": "dpsgd", "sweep": "method.beta=0"},
    ],
    ids=str,
)
def test_what_is_saved_has_the_shapes_that_are_expected(changes):
    """A swept zero must not be taken for an option that is not there, or a run could not be resumed."""
    parts = build(dataclasses.replace(TINY, **changes))
    saved = parts.saved(parts.start())
    chex.assert_trees_all_equal_shapes_and_dtypes(saved, parts.saved_like)
    chex.assert_trees_all_equal_shapes_and_dtypes(parts.saved(parts.loaded(saved)), parts.saved_like)


def test_several_steps_in_one_call_and_streamed_images_are_the_same_runs(tmp_path, monkeypatch):
    options = {"epochs": 1, "subset": 300, "eval_agents": "never", "devices": "2"}
    config = dataclasses.replace(TINY, **options, method="q_saddle(ascent_every=2)", seeds="0,1")
    parts = build(config)
    monkeypatch.setattr(loop, "build", lambda config, trial: parts)
    whole = loop.train(config, tmp_path / "whole", Screen(quiet=True))["trials"]
    several = dataclasses.replace(parts, config=dataclasses.replace(config, steps_per_dispatch=3))
    streamed = dataclasses.replace(parts, trials=tuple(map(as_if_streamed, parts.trials)))
    for other in (several, streamed):
        monkeypatch.setattr(loop, "build", lambda config, trial, other=other: other)
        found = loop.train(other.config, tmp_path / f"{id(other)}", Screen(quiet=True))["trials"]
        for one, expected in zip(found, whole, strict=True):
            assert one["test_loss"] == pytest.approx(expected["test_loss"], rel=1e-5)
            assert one["consensus_distance"] == pytest.approx(expected["consensus_distance"], rel=1e-3)


def as_if_streamed(run):
    class Images:
        shape, dtype = run.dataset.train["inputs"].shape, run.dataset.train["inputs"].dtype

        def ahead(self, samples):
            return lambda: np.asarray(run.dataset.train["inputs"])[samples]

    subset = dataclasses.replace(run.dataset, train={**run.dataset.train, "inputs": Images()})
    return dataclasses.replace(run, data=subset, config=dataclasses.replace(run.config, subset=0))


def test_reports_see_runs(trained):
    result, workdir = trained
    runs = load_runs([workdir])
    assert [run.config for run in runs] == SMALL.each()
    assert [run.state for run in runs] == ["finished"] * 2 + ["diverged"] * 2
    assert [len(agents_per_call) for agents_per_call in seeds_together(runs)] == [2, 2]
    assert runs[1].name == "run (seed 2, learning_rate 0.05)"
    assert runs[1].result["test_accuracy"] == result["trials"][1]["test_accuracy"]
    lines = [line for line in run_folder.read_metrics(workdir) if "test_loss" in line]
    assert runs[1].curve("test_loss")[1] == [line["test_loss_by_trial"][1] for line in lines]
    assert runs[0].fact("partition", "fingerprint") != runs[1].fact("partition", "fingerprint")
    cell = cell_of(runs)
    assert cell.diverged == 2
    assert cell.scores == tuple(100 * one["test_accuracy"] for one in result["trials"][:2])


def test_verbs_take_one_trial_or_say_so(trained, capsys, tmp_path):
    result, workdir = trained
    assert main(["saddle", "evaluate", str(workdir), "--trial=1"]) == 0
    assert f"test accuracy {100 * result['trials'][1]['test_accuracy']:.2f} %" in capsys.readouterr().out
    assert main(["saddle", "export", str(workdir), "--trial=0", f"--output={tmp_path / 'model'}"]) == 0
    assert main(["saddle", "list", str(workdir.parent)]) == 0
    each = [100 * one["test_accuracy"] for one in result["trials"][:2]]  # the others have diverged
    assert f"accuracy {min(each):.2f} to {max(each):.2f} %" in capsys.readouterr().out
    for verb in (["evaluate"], ["export"], ["landscape"], ["reproduce", "theory"]):
        assert main(["saddle", *verb, str(workdir)]) == 2
        assert "holds 4 runs: --trial=0 to 3 chooses one of them" in capsys.readouterr().err
    assert main(["saddle", "evaluate", str(workdir), "--trial=4"]) == 2
    assert "trial must be 0 to 3" in capsys.readouterr().err


def test_sweeps_from_the_command_line_are_one_setting(tmp_path, unrendered, capsys):
    small = ["--agents=2", "--model=logistic", "--epochs=1", "--devices=1", "--batch_size=128"]
    sweeps = ["--sweep=method.beta=0,0.9", "--sweep=method.gamma=0.5,1"]
    assert main(["saddle", "train", *small, *sweeps, f"--workdir={tmp_path / 'run'}"]) == 0
    printed = capsys.readouterr().out
    assert "4 in one program: method.beta=0,0.9 x method.gamma=0.5,1" in printed
    assert re.search(
        r"^epoch 1: test accuracy \S+ to \S+ %, loss \S+ to \S+, over all settings$", printed, re.M
    )
    assert re.search(r"^test accuracy +of each setting", printed, re.M)
    assert len(re.findall(r"^  beta \S+, gamma \S+ +\d+\.\d\d", printed, re.M)) == 4
    assert "consensus distance" not in printed
    assert run_folder.read_config(tmp_path / "run").sweep == "method.beta=0,0.9 method.gamma=0.5,1"
    assert (tmp_path / "run" / "curves.png").is_file()
    assert main(["saddle", "train", *sweeps, "--sweep=method.beta=0,0.5"]) == 2
    assert "sweep must name method.beta once" in capsys.readouterr().err


def test_records_together_and_apart():
    records = [{"a": 1.0, "b": [1, 2]}, {"a": 3.0, "b": [3, 4]}, {}]
    joined = trials.together(records)
    assert joined["a"] == 2
    assert joined["a_std"] == pytest.approx(math.sqrt(2))
    assert "b" not in joined
    assert trials.of_trial({"step": 5, **joined}, 1) == {"step": 5, **records[1]}
    alone = {"step": 1, "agent_accuracy_std": 0.5}
    assert trials.of_trial(alone, 0) == alone


def test_a_comparison_is_the_same_together_and_apart(tmp_path, unrendered):
    small = ["--agents=2", "--model=logistic", "--epochs=1", "--devices=1", "--batch_size=128"]
    grid = ["compare", "--compare=method=dpsgd", "--quiet", *small]
    tables = []
    for options in (["--seeds=1,3"], ["--seeds=1,3", "--nosingle_program"]):
        folder = tmp_path / f"{len(tables)}"
        assert main(["saddle", *grid, *options, f"--workdir={folder}"]) == 0
        tables.append((folder / "comparison.txt").read_text())
    assert tables[0] == tables[1]
    assert " +- " in tables[0]
    runs = {path.parent.name for path in tmp_path.glob("*/*/result.json")}
    assert runs == {"method=dpsgd-seeds1,3", "method=dpsgd-seed1", "method=dpsgd-seed3"}


def test_seeds_that_are_there_are_used_whichever_way_they_were_trained(tmp_path):
    def folders(found, seeds):
        return {path.name for path in over_seeds(found, seeds, single_program=True).runs}

    for name, there in {"a": ["a-seeds1,3"], "b": ["b-seed1", "b-seed3"]}.items():
        found = Runs({tmp_path / name: TINY}, [], [])
        assert folders(found, [1, 3]) == {f"{name}-seeds1,3"}
        for each in there:
            (tmp_path / each).mkdir()
            (tmp_path / each / "config.json").touch()
        assert folders(found, [1, 3, 5]) == {*there, f"{name}-seed5"}
    random = dataclasses.replace(TINY, agents=4, topology="random_regular(2)")
    assert folders(Runs({tmp_path / "c": random}, [], []), [0, 1]) == {"c-seed0", "c-seed1"}


def test_seeds_whose_epochs_differ_are_refused():
    """As many steps, but not as many samples in the last of them."""
    config = Settings(model="logistic", agents=5, batch_size=128, partition="quantity_skew(5.0)", seeds="0,1")
    with pytest.raises(ValueError, match=r"seeds must give equally long epochs .* got \[\d+, \d+\] samples"):
        build(config)


def test_trials_that_nobody_evaluated_have_not_diverged():
    ended = {"status": "interrupted", "diverged": 0, "steps": 1, "seconds": 1.0}
    ended |= {"bytes_sent_per_agent": 1, "paper_bytes_sent_per_agent": 1}
    told = describe.closing_table(ended | {"trials": [{"seed": 1234567}, {"seed": 1234568}]}, OBJECTIVE)
    assert re.search(r"seed 1234567 +not evaluated", told)
    assert re.search(r"seed 1234568 +not evaluated", told)
