"""Experiments of Python objects: the loop, resume, tables and pictures of the command, without settings."""

import dataclasses
import json
import shutil
import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import saddle_jax as sj
from saddle_jax.base.errors import RunError
from saddle_jax.settings.settings import Settings
from saddle_jax.training import loop

RANDOM = np.random.default_rng(0)
LABELS = RANDOM.integers(0, 3, 260)
POINTS = np.array([[0.0, 2.0], [-2.0, -1.0], [2.0, -1.0]])[LABELS] + RANDOM.normal(size=(260, 2))
RING = sj.ring(4)


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.relu(nn.Dense(8)(x)))


def descent(topology, eta):
    """D-PSGD by hand, as a user writes a method."""

    def step(s, x, state):
        half = jax.tree.map(lambda x, g: x - eta * g, x, s.gradient(x))
        return s.network.mix(half), state

    return sj.Method("descent", topology, sj.Rule(lambda x: (), step, requires="doubly"))


TRAIN, TEST = (POINTS[:200], LABELS[:200]), (POINTS[200:], LABELS[200:])
SETTINGS = {"epochs": 4, "batch_size": 16, "eval_every_epochs": 2, "log_every_steps": 3}


def make(workdir, method=None, *, train=TRAIN, test=TEST, **options):
    chosen = {"model": Net(), "partition": "dirichlet(0.5)", **SETTINGS, **options}
    return sj.Experiment(method or descent(RING, 0.1), train, test, workdir=workdir, **chosen)


@pytest.fixture(scope="module")
def descended(tmp_path_factory):
    """A finished run of the method above."""
    workdir = tmp_path_factory.mktemp("descended") / "run"
    make(workdir).train(quiet=True)
    return workdir


@pytest.fixture
def copied(descended, tmp_path):
    """A copy of it, to go on with."""
    return shutil.copytree(descended, tmp_path / "copied")


def test_a_run_trains_and_shows(tmp_path, rendered, capsys):
    run = make(tmp_path / "mine", sj.saddle(descent(RING, 0.1), 0.05), keep_every_epochs=2)
    assert run.result() is None
    result = run.train()
    assert result["status"] == "finished"
    assert result["test_accuracy"] > 0.8
    printed = capsys.readouterr().out
    assert "test accuracy" in printed
    assert "<descent" in printed
    assert run.evaluate() == pytest.approx({"accuracy": result["test_accuracy"], "loss": result["test_loss"]})
    mean = np.mean([run.evaluate(agent)["accuracy"] for agent in range(4)])
    assert mean == pytest.approx(result["agent_accuracy_mean"])
    assert [record["step"] for record in run.records() if "test_accuracy" in record] == [8, 16]
    assert run.model()["Dense_0"]["kernel"].shape == (8, 3)
    assert run.figure()._repr_png_().startswith(b"\x89PNG")
    assert "<iframe" in run.report()._repr_html_()
    stages = run.sharpness(images=64, iterations=4)
    assert [stage["epoch"] for stage in stages] == [2, 4]
    assert run.landscape(points=3, images=32)._repr_png_().startswith(b"\x89PNG")
    again = make(tmp_path / "mine", sj.saddle(descent(RING, 0.1), 0.05), keep_every_epochs=2)
    assert again.train(quiet=True) == result  # it is finished: nothing is trained again
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine"]


def test_it_is_the_run_of_the_command(tmp_path):
    """The same method by its settings, on the same data from a file: the same models, bit for bit."""
    from saddle_jax.cli import __main__ as cli

    data = dict(zip(("x_train", "y_train"), (POINTS[:200], LABELS[:200]), strict=True))
    np.savez(tmp_path / "points.npz", **data, x_test=POINTS[200:], y_test=LABELS[200:])
    file = str(tmp_path / "points.npz")
    by_objects = make(
        tmp_path / "objects", sj.qgm(RING, 0.1), train=file, test=None, model="mlp", devices="1"
    )
    settings = {
        "dataset": file, "model": "mlp", "method": "qgm", "agents": 4, "partition": "dirichlet(0.5)",
        "schedule": "constant", "devices": "1", **SETTINGS,
    }  # fmt: skip
    by_settings = sj.Experiment.from_settings(Settings(**settings), tmp_path / "settings")
    assert by_settings.method.name == "qgm"
    flags = [f"--{name}={value}" for name, value in settings.items()]
    assert cli.main(["saddle", "train", f"--workdir={tmp_path / 'command'}", "--quiet", *flags]) == 0
    hashes = {json.loads((tmp_path / "command" / "result.json").read_text())["params_sha256"]}
    hashes |= {one.train(quiet=True)["params_sha256"] for one in (by_objects, by_settings)}
    assert len(hashes) == 1


def test_an_interrupted_run_goes_on_bit_for_bit(descended, tmp_path, monkeypatch):
    broken = make(tmp_path / "broken", checkpoint_every_steps=5)
    advance, taken = loop._Run._advance, []

    def stopping(self, feed):
        if len(taken) == 9:
            raise MemoryError("as if killed")
        taken.append(1)
        advance(self, feed)

    monkeypatch.setattr(loop._Run, "_advance", stopping)
    with pytest.raises(MemoryError):
        broken.train(quiet=True)
    monkeypatch.undo()
    resumed = make(tmp_path / "broken", checkpoint_every_steps=5).train(quiet=True)
    assert resumed["params_sha256"] == make(descended).result()["params_sha256"]


def test_a_run_whose_objects_changed_is_refused(copied):
    other_model = lambda key: {"w": jnp.zeros((2, 3))}, lambda p, x: x @ p["w"]
    changed = {
        "rate": make(copied, descent(RING, 0.2)),
        "rule": make(copied, dataclasses.replace(sj.dpsgd(RING, 0.1, beta=0.5), name="descent")),
        "gradient": make(copied, dataclasses.replace(descent(RING, 0.1), gradient=sj.sam(0.1))),
    }
    for run in changed.values():
        with pytest.raises(RunError, match="method, model, loss or graph computed something else"):
            run.train(quiet=True)
    with pytest.raises(
        RunError, match=r'holds a run with other settings: model "<Net>" -> "<<lambda>>"|model'
    ):
        make(copied, model=other_model).train(quiet=True)
    with pytest.raises(RunError, match="from 4 to 3 epochs: they must not be lowered"):
        make(copied, epochs=3).train(quiet=True)
    with pytest.raises(RunError, match="holds a run on other samples"):
        make(copied, train=(-POINTS[:200], LABELS[:200])).train(quiet=True)
    assert make(copied).train(quiet=True)["status"] == "finished"  # the same again is the same


def test_seeds_and_numbers_are_one_program_and_each_is_its_own_run(tmp_path):
    many = make(tmp_path / "many", lambda eta: descent(RING, eta), seeds=[0, 1], sweep={"eta": [0.01, 0.2]})
    result = many.train(quiet=True)
    assert len(result["trials"]) == 4
    alone = make(tmp_path / "alone", descent(RING, 0.2), seed=1).train(quiet=True)
    assert result["trials"][3]["test_loss"] == pytest.approx(alone["test_loss"], rel=1e-4)
    assert result["settings"][0]["test_loss"] > result["settings"][1]["test_loss"]
    records = many.records()
    assert {(record["seed"], record["eta"]) for record in records} == {
        (s, e) for s in (0, 1) for e in (0.01, 0.2)
    }
    assert many.evaluate(trial=3)["loss"] == pytest.approx(alone["test_loss"], rel=1e-4)
    with pytest.raises(ValueError, match="sharpness needs a run of one seed"):
        many.sharpness()
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    table = many.metrics()
    assert isinstance(table, pandas.DataFrame)
    assert len(table) == len(records)


def test_metrics_are_records_without_pandas(descended, monkeypatch):
    run = make(descended)
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert run.metrics() == run.records()


def test_runs_are_compared_by_name(tmp_path, capsys):
    runs = {
        "slow": make(tmp_path / "a", descent(RING, 0.01), seeds=[0, 1]),
        "fast": make(tmp_path / "b", descent(RING, 0.1), seeds=[0, 1]),
    }
    compared = sj.compare(runs, quiet=True)
    assert capsys.readouterr().out == ""
    head, slow, fast = compared.table.rows
    assert head == ["run", "test accuracy, %", "seeds"]
    accuracies = [100 * one["test_accuracy"] for one in runs["fast"].result()["trials"]]
    assert fast == ["fast", f"{np.mean(accuracies):.2f} +- {np.std(accuracies, ddof=1):.2f}", "2"]
    assert slow[0] == "slow"
    assert "slow" in str(compared)
    assert "<td>fast</td>" in compared._repr_html_()
    assert compared.figure().path == tmp_path / "comparison.png"
    page = compared.report().path.read_text()
    assert "slow (seed 0)" in page
    with pytest.raises(ValueError, match="experiments must have folders of their own"):
        sj.compare({"one": runs["slow"], "two": runs["slow"]})
    with pytest.raises(ValueError, match=r"experiments must be sj\.Experiment by name"):
        sj.compare({})


def test_faults_time_compression_and_books(tmp_path):
    method = dataclasses.replace(
        sj.qgm(RING, 0.1, compressor=sj.sign(), gamma=0.4), timing=sj.Timing(latency=0.01)
    )
    result = make(tmp_path / "signs", method, diagnostics=True).train(quiet=True)
    assert result["simulated_seconds"] > 0
    # two neighbours, 16 steps: one bit a number of each tensor, filled up to bytes, and a scale of 4 bytes
    sizes = (8 * 3, 3, 2 * 8, 8)
    assert result["bytes_sent_per_agent"] == 2 * 16 * sum(-(-size // 8) + 4 for size in sizes)
    lossy = dataclasses.replace(descent(RING, 0.1), faults=sj.Faults(drop=0.5))
    assert make(tmp_path / "lossy", lossy).train(quiet=True)["status"] == "finished"


def test_data_that_is_divided_already_and_a_loss_of_ones_own(tmp_path):
    """Four agents with shares of unequal size, a tree of their own, and the mean absolute error."""
    starts = ((0, 40), (40, 100), (100, 150), (150, 200))
    shares = [{"a": POINTS[i:j], "b": POINTS[i:j] @ [1.0, -2.0]} for i, j in starts]
    test = {"a": POINTS[200:], "b": POINTS[200:] @ [1.0, -2.0]}

    def loss(params, batch):
        errors = jnp.abs(batch["a"] @ params["w"] - batch["b"])
        return jnp.mean(errors), {"largest": jnp.max(errors)}

    line = (lambda key: {"w": jnp.zeros(2)}, lambda params, x: x @ params["w"])
    largest = sj.Metric("largest", "lower", title="largest error")
    run = make(
        tmp_path, descent(RING, 0.05), train=shares, test=test, model=line, loss=loss, metrics=[largest],
        partition="auto", epochs=10,
    )  # fmt: skip
    result = run.train(quiet=True)
    assert result["test_loss"] < 0.3
    assert result["agent_largest_mean"] == pytest.approx(np.mean(result["agent_largest_each"]))
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["objective"]["metrics"][0] == {
        "name": "largest", "better": "lower", "title": "largest error", "percent": False,
    }  # fmt: skip
    assert config["partition"]["sizes"] == [40, 60, 50, 50]
    assert result["steps"] == 10 * (60 // 16)  # whole batches alone: there is no mask
    run.report()
    stages = run.sharpness(images=50, iterations=2)
    assert stages[-1]["lambda_max"] == pytest.approx(0, abs=1e-3)  # |x| has no curvature


class Source:
    """Samples that are fetched when they are asked for, as from a database."""

    def __init__(self, array):
        self._array, self.shape, self.dtype = array, array.shape, array.dtype

    def __getitem__(self, samples):
        return self._array[samples]


def test_a_source_of_samples_trains_as_the_array_does(descended, tmp_path):
    points, labels = POINTS.astype(np.float32), LABELS.astype(np.int32)
    test = (points[200:], labels[200:])
    fetched = make(tmp_path / "fetched", train=(Source(points[:200]), labels[:200]), test=test)
    assert fetched.trial.dataset.is_streamed
    held = make(descended).result()
    assert fetched.train(quiet=True)["test_loss"] == pytest.approx(held["test_loss"], rel=1e-5)


def test_optax_inside_a_method(tmp_path):
    rate = optax.cosine_decay_schedule(0.05, 100)
    chain = optax.chain(sj.per_agent(optax.clip_by_global_norm(1.0)), optax.adam(rate), sj.gossip(RING))
    method = sj.Method("adam", RING, sj.rule_of(chain))
    assert make(tmp_path, method).train(quiet=True)["test_accuracy"] > 0.8


@pytest.mark.parametrize("agents", [6, 10])
def test_four_devices_give_the_same_run(tmp_path, agents):
    """Six agents and ten: some devices hold idle agents."""
    samples = POINTS, POINTS @ [1.0, 2.0]
    line = (lambda key: {"w": jnp.zeros(2)}, lambda params, x: x @ params["w"])
    chain = optax.chain(optax.sgd(0.05), sj.gossip(sj.ring(10)))
    methods = {6: descent(sj.ring(6), 0.05), 10: sj.Method("chain", sj.ring(10), sj.rule_of(chain))}
    losses = [
        make(
            tmp_path / devices, methods[agents], train=samples, test=samples, model=line, devices=devices,
            partition="iid", batch_size=8, epochs=2,
        ).train(quiet=True)["test_loss"]
        for devices in ("1", "4")
    ]  # fmt: skip
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.fixture
def rendered():
    """Pictures are rendered, which takes a second each."""


@pytest.fixture(autouse=True)
def as_a_user_has_it(request):
    """Without the strictness of the tests; and without pictures, unless a test looks at them."""
    if "rendered" not in request.fixturenames:
        request.getfixturevalue("unrendered")
    with jax.numpy_rank_promotion("allow"):
        yield


def test_a_run_goes_on_with_the_same_first_model_and_metrics_alone(tmp_path):
    """What no traced step shows is refused as well."""
    line = (lambda key: {"w": jnp.zeros((2, 3))}, lambda params, x: x @ params["w"])
    other = (lambda key: {"w": jnp.ones((2, 3))}, line[1])
    first = sj.Metric("size", "lower", lambda params, batch: jnp.sum(params["w"]))
    twice = sj.Metric("size", "lower", lambda params, batch: 2 * jnp.sum(params["w"]))

    def of(model, metric):
        return make(tmp_path, model=model, metrics=[metric])

    of(line, first).train(quiet=True)
    for changed in (of(other, first), of(line, twice)):
        with pytest.raises(RunError, match="computed something else"):
            changed.train(quiet=True)


def test_agents_that_only_gossip(tmp_path):
    def step(s, x, state):
        return s.network.mix(x), state

    method = sj.Method("gossip", RING, sj.Rule(lambda x: (), step, requires="doubly"))
    assert make(tmp_path, method).train(quiet=True)["consensus_distance"] == pytest.approx(0, abs=1e-6)


def test_the_optimum_is_that_of_the_weight_decay_of_the_method(tmp_path):
    options = {"epochs": 200, "batch_size": 0, "eval_every_epochs": 200, "eval_agents": "never"}
    method = sj.gradient_tracking(sj.ring(4), 0.3, weight_decay=0.05)
    run = sj.Experiment(method, "convex", workdir=tmp_path / "run", **options)
    result = run.train(quiet=True)
    assert result["test_distance"] < 1e-4
    without = sj.Experiment(sj.gradient_tracking(sj.ring(4), 0.3, weight_decay=0.0), "convex", **options)
    assert without.trial.evaluate(run.model())["distance"] > 0.01
