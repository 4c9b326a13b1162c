"""Settings are text: what they import, and that their help names what they may be."""

import dataclasses
import re
import subprocess
import sys

import pytest

from saddle_jax.base.checks import ArgumentError
from saddle_jax.data.partition import PARTITIONS
from saddle_jax.data.recipes import AUGMENTATIONS
from saddle_jax.kernels.convolution import CONV_IMPLS
from saddle_jax.models import MODELS
from saddle_jax.models.layers import NORMS
from saddle_jax.models.precision import PRECISIONS
from saddle_jax.runs.source_files import source_refs
from saddle_jax.settings import settings as config
from saddle_jax.settings import sweep
from saddle_jax.settings.settings import Settings

NAMES = {
    "model": MODELS,
    "norm": NORMS,
    "precision": PRECISIONS,
    "partition": PARTITIONS,
    "augmentation": AUGMENTATIONS,
    "conv_impl": CONV_IMPLS,
}
IMPORTS = """
import sys
from saddle_jax.settings.settings import Settings
Settings()
print([name for name in ("jax", "flax", "optax") if name in sys.modules])
"""


def test_settings_import_no_jax():
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", NAMES)
def test_the_help_of_a_setting_names_what_it_may_be(name):
    meaning = Settings.__dataclass_fields__[name].metadata["meaning"]
    words = re.findall(r"\w+", meaning.partition(":")[2])
    assert [word for word in NAMES[name] if word not in words] == []


def test_defaults_pass_their_own_checks():
    for field in dataclasses.fields(Settings):
        if field.metadata["check"]:
            field.metadata["check"](field.name, field.default)


@pytest.mark.parametrize(
    ("settings", "values", "expected"),
    [
        ({}, {"faults.drop": 0.1}, {"faults": "faults(drop=0.1)"}),
        ({"faults": "faults(burst=3)"}, {"faults.drop": "0.1"}, {"faults": "faults(burst=3, drop=0.1)"}),
        ({}, {"timing.latency": "10ms"}, {"timing": "timing(latency='10ms')"}),
        ({}, {"partition.alpha": 1.0}, {"partition": "dirichlet(alpha=1.0)"}),
        ({"partition": "shards"}, {"partition.per_agent": 3}, {"partition": "shards(per_agent=3)"}),
        ({}, {"method.point": "mixed"}, {"method": "q_saddle(point=mixed)"}),
    ],
    ids=str,
)
def test_an_option_is_written_into_its_setting(settings, values, expected):
    assert sweep.in_settings(Settings().to_json() | settings, values) == expected


def test_a_users_code_is_not_imported_by_settings(tmp_path):
    (tmp_path / "mine.py").write_text("raise SystemExit('imported')")
    place = f"{tmp_path / 'mine.py'}:thing"
    for name, text in {
        "faults": f"{place}(drop=0.1)",
        "timing": f"timing(latency={place}())",
        "partition": f"dirichlet({place}())",
    }.items():
        assert getattr(Settings(**{name: text}), name) == text
        assert source_refs(Settings(**{name: text}))[0].setting == name


def test_options_have_values():
    lossy = Settings(faults="faults(drop=0.1)")
    assert config.value_of(lossy, "faults.drop") == 0.1
    assert config.value_of(lossy, "faults.offline") == 0.0
    assert config.value_of(Settings(), "faults.drop") == 0.0
    assert config.value_of(Settings(partition="shards(3)"), "partition.per_agent") == 3
    assert config.value_of(lossy, "agents") == 10


def test_what_has_no_options_is_told():
    with pytest.raises(ArgumentError, match=r"partition.alpha must not be given for partition given"):
        sweep.in_settings({"partition": "given"}, {"partition.alpha": 1.0})


PARTITION = """
import numpy as np

def halves(labels, agents, seed, shift=0):
    order = np.roll(np.random.default_rng(seed).permutation(len(labels)), shift)
    return order[: len(order) // agents * agents].reshape(agents, -1)
"""


def test_a_partition_may_be_a_users_own(tmp_path):
    from saddle_jax.data import load, make_partition

    (tmp_path / "mine.py").write_text(PARTITION)
    text = f"{tmp_path / 'mine.py'}:halves(shift=3)"
    assert Settings(partition=text).partition == text
    labels = load("digits").labels
    made = make_partition(text, labels, 4, seed=1)
    assert made.samples.shape == (4, len(labels) // 4)
    assert made.name.endswith("halves(4 agents, shift=3, seed=1)")


def test_options_are_flags(tmp_path, capsys):
    from saddle_jax.cli.__main__ import main

    given = ["--faults.drop=0.2", "--faults.symmetric=false", "--timing.latency=10ms", "--method.beta=0.5"]
    assert main(["saddle", "settings", "--json", "--method=qgm", *given]) == 0
    told = capsys.readouterr().out
    for text in ("qgm(beta=0.5)", "faults(drop=0.2, symmetric=False)", "timing(latency='10ms')"):
        assert text in told
    assert main(["saddle", "train", "--faults.drp=0.2", f"--workdir={tmp_path / 'run'}"]) == 2
    assert "did you mean 'drop'" in capsys.readouterr().err
    assert main(["saddle", "train", "--agents.drop=0.2"]) == 2
    assert "there is no option --agents.drop here" in capsys.readouterr().err


def test_train_makes_its_settings_once(tmp_path, monkeypatch):
    """And once more when the picture is drawn, from config.json: they are the same."""
    from saddle_jax.cli.__main__ import main

    made, check = [], Settings.__post_init__

    def counted(self):
        made.append(self)
        check(self)

    monkeypatch.setattr(Settings, "__post_init__", counted)
    given = ["--model=logistic", "--agents=2", "--epochs=1", "--devices=1"]
    given += ["--method=qgm", "--method.beta=0.5"]
    assert main(["saddle", "train", "--quiet", *given, f"--workdir={tmp_path / 'run'}"]) == 0
    ours, recorded = made
    assert ours.method == "qgm(beta=0.5)"
    assert recorded == ours
