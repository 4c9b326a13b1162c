"""The embedded text through the command: what is learned beats counting pairs within seconds."""

import json

import pytest

from saddle_jax.base.checks import ArgumentError
from saddle_jax.cli import __main__ as cli
from saddle_jax.settings.settings import Settings
from saddle_jax.training.build import build


def test_a_few_agents_learn_the_text_and_tables_show_perplexity(tmp_path, capsys):
    settings = {"dataset": "characters", "agents": 2, "method": "qgm", "subset": 2000, "epochs": 2}
    settings |= {"devices": 1, "eval_every_epochs": 1, "eval_agents": "never", "schedule": "constant"}
    arguments = [f"--{name}={value}" for name, value in settings.items()]
    assert cli.main(["saddle", "train", f"--workdir={tmp_path / 'run'}", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "language, by perplexity (lower is better)" in printed
    assert "test perplexity" in printed
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["test_perplexity"] < 10.2  # of pairs; a model that knows nothing has 76
    assert cli.main(["saddle", "list", str(tmp_path)]) == 0
    assert f"{result['test_perplexity']:.4g}" in capsys.readouterr().out


def test_a_model_of_images_is_refused():
    with pytest.raises(ArgumentError, match=r"model must give logits \[B, 64, 76\] for characters"):
        build(Settings(dataset="characters", model="logistic"))
