"""A model, data and a loss of a user's own on the command line: train, resume, evaluate, and mistakes."""

import json

import numpy as np
import pytest

from saddle_jax.cli import __main__ as cli

MINE = """
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx


class Net(nn.Module):
    num_classes: int
    width: int = 4

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.num_classes)(nn.relu(nn.Dense(self.width)(x)))


class Other(nnx.Module):
    def __init__(self, rngs, num_classes, width=4):
        self.hidden, self.out = nnx.Linear(3, width, rngs=rngs), nnx.Linear(width, num_classes, rngs=rngs)

    def __call__(self, x):
        return self.out(nnx.relu(self.hidden(x)))


pair = (lambda key: {"w": jnp.zeros((3, 2))}, lambda params, x: x @ params["w"])


def load(samples=200, wrong=""):
    random = np.random.default_rng(0)
    x = random.normal(size=(samples, 3))
    y = (x[:, 0] > 0).astype(int)
    if wrong == "nan":
        x[7, 1] = np.nan
    test = (x[:50], y[:50] + 2) if wrong == "labels" else (x[:50], y[:50])
    return (x, y), test


def numbers():
    (x, _), _ = load()
    return {"train": (x, x @ [1.0, 2.0, 3.0]), "test": (x[:50], x[:50] @ [1.0, 2.0, 3.0])}


def hinge(params, batch):  # with the pair's parameters
    signs = 2 * batch["targets"] - 1
    return jnp.mean(jax.nn.relu(1 - signs * (batch["inputs"] @ params["w"])[:, 1]))


def scaled(apply, scale=1.0):
    def loss(params, batch):
        return scale * jnp.mean(jnp.abs(apply(params, batch["inputs"])[:, 0] - batch["targets"]))

    return loss


def five(*_):
    return 5
"""
SMALL = ["--agents=4", "--epochs=2", "--batch_size=10", "--method=qgm", "--devices=1", "--quiet"]

pytestmark = pytest.mark.usefixtures("unrendered")


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(*flags, workdir="run"):
    return cli.main(["saddle", "train", f"--workdir={workdir}", *SMALL, *flags])


def result(workdir="run"):
    with open(f"{workdir}/result.json") as file:
        return json.load(file)


@pytest.mark.parametrize("model", ["Net(width=6)", "Other(width=6)", "pair"])
def test_models(model, here, capsys):
    flags = ["--dataset=mine.py:load", f"--model=mine.py:{model}"]
    assert train(*flags) == 0
    assert result()["test_accuracy"] > 0.4
    numbers = {"Net(width=6)": 38, "Other(width=6)": 38, "pair": 6}
    assert json.loads((here / "run" / "config.json").read_text())["parameters"] == numbers[model]
    assert train(*flags) == 0  # it is finished, and says so
    assert cli.main(["saddle", "evaluate", "run", "--code=mine.py"]) == 0
    assert f"test accuracy {100 * result()['test_accuracy']:.2f} %" in capsys.readouterr().out
    assert cli.main(["saddle", "evaluate", "run"]) == 2
    assert "which is imported only when you say so: add --code=mine.py" in capsys.readouterr().err
    (here / "mine.py").write_text(MINE.replace("nn.relu", "nn.tanh"))
    assert train(*flags) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "run was trained with another mine.py: diff run/code/" in told


def test_a_loss_of_parameters_and_one_of_the_model(here):
    hinge = [
        "--dataset=mine.py:load",
        "--model=mine.py:pair",
        "--objective=mine.py:hinge",
    ]
    assert train(*hinge, "--seeds=0,1", "--faults.drop=0.2") == 0
    assert len(result()["trials"]) == 2
    scaled = ["--dataset=mine.py:numbers", "--model=mlp"]
    assert train(*scaled, "--objective=mine.py:scaled(scale=2.0)", workdir="twice") == 0
    assert train(*scaled, workdir="squares") == 0
    assert "test_rmse" in result("squares")
    assert result("twice")["status"] == "finished"
    assert cli.main(["saddle", "report", "run", "twice", "squares", "--output=page.html"]) == 0
    assert cli.main(["saddle", "list", "."]) == 0


def test_data_in_a_file_are_read_again_with_consent(here, capsys):
    x = np.random.default_rng(0).normal(size=(200, 3))
    np.savez("points.npz", x_train=x, y_train=x[:, 0] > 0, x_test=x, y_test=x[:, 0] > 0)  # two classes
    assert train("--dataset=points.npz", "--model=mlp") == 0
    assert result()["test_accuracy"] > 0.6
    assert cli.main(["saddle", "evaluate", "run"]) == 2
    assert "read only when you say so: add --data_dir=points.npz" in capsys.readouterr().err
    assert cli.main(["saddle", "evaluate", "run", "--data_dir=points.npz"]) == 0
    (here / "elsewhere").mkdir()
    (here / "points.npz").rename(here / "elsewhere" / "points.npz")
    assert cli.main(["saddle", "evaluate", "run", "--data_dir=elsewhere/points.npz"]) == 0


MISTAKES = {
    "no name": ("model=mine.py:Nett", "did you mean 'Net'? model must be in mine.py, got no 'Nett' there"),
    "no model": ("model=mine.py:five", "model must be a flax module (linen or nnx), a torch module, or"),
    "option": ("model=mine.py:Net(depth=3)", "got option 'depth'"),
    "made": ("model=mine.py:pair(width=3)", "is made already and takes no options"),
    "no data": ("dataset=mine.py:five", "dataset mine.py:five must be a data.Dataset, or samples"),
    "nan": ("dataset=mine.py:load(wrong=nan)", "got another in inputs of sample 7"),
    "labels": ("dataset=mine.py:load(wrong=labels)", "targets of the 2 classes, 0 to 1, got 3"),
    "too few": ("dataset=mine.py:load(samples=3)", "agents must be at most the number of samples, 3, got 4"),
    "no loss": ("objective=mine.py:five", "loss must be a function (params, batch) -> loss, got 5"),
    "fits not": ("dataset=mine.py:numbers model=mine.py:pair", "model must predict targets []"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_nothing_is_written(mistake, here, capsys):
    flag, told = MISTAKES[mistake]
    flags = {"dataset": "mine.py:load", "model": "mlp"} | dict(one.split("=", 1) for one in flag.split())
    assert train(*(f"--{name}={value}" for name, value in flags.items())) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert sorted(path.name for path in here.iterdir()) == ["mine.py"]
